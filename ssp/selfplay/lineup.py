"""Who plays a round: the newest versions, or past ones too where an extra keeps a league of them.

The run tells a `Lineup` what is published and settled, and asks it who plays. It knows no more of a
league than this file says."""

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, Protocol

from ssp.base.extras import extra
from ssp.base.played import Game
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.records import Match, Published
from ssp.selfplay.settled import Round
from ssp.selfplay.versions import WeightStore


class Lineup(Protocol):
    """Who asks and who answers in each round of a run.

    `begin`: play begins, from a checkpoint of these `versions` with this `state` (both empty: from
    the start), after `redraws` returns from a collapse; `newest` are the numbers under which the
    same weights have just been published. `published`: after update `step` of `learner`, or at the
    start; `versions` are the newest of its roles, and `meta` is written beside weights that are
    kept.

    `askers`, `graders`: who writes the questions of which games, and who tries them; the newest
    version first. `graders` may add games of the kind `TRIED` to the newest version's; `asked_by`
    is the version that is paid for them. Games that a past version plays say so (`Game.frozen`).

    `settled`: a round is settled, in the order of rounds. `figures`: of a role after the last
    round. `state`: plain data for a checkpoint. `tidy`: weights go that neither the present nor one
    of these states names."""

    async def begin(
        self,
        versions: Mapping[str, int],
        state: Mapping[str, Any],
        redraws: int,
        newest: dict[str, int],
    ) -> None: ...

    async def published(
        self, learner: str, step: int, versions: Mapping[str, int], meta: Mapping[str, Any]
    ) -> None: ...

    def askers(self, round_: int, games: list[Game], newest: Published) -> list[Match]: ...

    def graders(
        self, round_: int, chosen: list[Game], newest: Published, asked_by: int | None
    ) -> list[Match]: ...

    def settled(self, this: Round) -> None: ...

    def figures(self, role: str) -> Mapping[str, float]: ...

    def state(self) -> dict[str, Any]: ...

    def tidy(self, states: Iterable[Mapping[str, Any]]) -> None: ...


class NewestOnly(Lineup):
    """A lineup without past versions: the newest of each role plays everything."""

    async def begin(
        self,
        versions: Mapping[str, int],
        state: Mapping[str, Any],
        redraws: int,
        newest: dict[str, int],
    ) -> None:
        """Nothing is restored."""

    async def published(
        self, learner: str, step: int, versions: Mapping[str, int], meta: Mapping[str, Any]
    ) -> None:
        """No weights are kept."""

    def askers(self, round_: int, games: list[Game], newest: Published) -> list[Match]:
        """The newest version asks in all games."""
        return [(newest, [*games])]

    def graders(
        self, round_: int, chosen: list[Game], newest: Published, asked_by: int | None
    ) -> list[Match]:
        """The newest version tries all questions."""
        return [(newest, [*chosen])]

    def settled(self, this: Round) -> None:
        """Nothing is counted."""

    def figures(self, role: str) -> Mapping[str, float]:
        """None."""
        return {}

    def state(self) -> dict[str, Any]:
        """Nothing is to be restored."""
        return {}

    def tidy(self, states: Iterable[Mapping[str, Any]]) -> None:
        """There are no weights to remove."""


def lineup(cfg: Config, cast: Cast, folder: RunFolder, store: WeightStore) -> Lineup:
    """The lineup of a run. InputError where a league is asked for and the extra is missing."""
    if not meets_past(cfg):
        return NewestOnly()
    made: Lineup = _league("matchmaker").Matchmaker(cfg, cast, folder, store)
    return made


def meets_past(cfg: Config) -> bool:
    """Whether past versions play in a run."""
    return cfg.league.match != "self"


def check_kept(folder: RunFolder, states: Iterable[Mapping[str, Any]]) -> None:
    """InputError unless the weights that these states of a lineup name are as they were written."""
    named = [state for state in states if state]
    if named:
        _league("members").check(folder, named)


def _league(module: str) -> ModuleType:
    return extra("league", "a league (league.match)", module)
