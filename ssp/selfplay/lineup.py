"""Who plays a round: the newest versions, or past ones too where an extra keeps a league of them.

The run tells its `Lineup` what is published and settled, and asks it who plays. It knows nothing
else of a league."""

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from ssp.base.extras import extra
from ssp.base.played import Game
from ssp.config.schema import Config
from ssp.record.runfolder import RunFolder
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.records import Match, Published
from ssp.selfplay.settled import Round
from ssp.selfplay.versions import WeightStore


class Lineup:
    """Chooses who asks and who answers in each round: here the newest versions alone. A league is a
    subclass."""

    async def begin(
        self,
        versions: Mapping[str, int],
        state: Mapping[str, Any],
        redraws: int,
        newest: dict[str, int],
    ) -> None:
        """Begin play from a checkpoint of these `versions` with this `state`; both are empty at the
        start of a run. `redraws`: how often the run went back after a collapse. `newest`: the
        versions under which the same weights have just been published."""

    async def published(
        self, learner: str, step: int, versions: Mapping[str, int], meta: Mapping[str, Any]
    ) -> None:
        """Hear of update `step` of `learner`, or of its start. `versions`: the newest of its roles.
        `meta` is written beside weights that are kept."""

    def askers(self, round_: int, games: list[Game], newest: Published) -> list[Match]:
        """Who writes the questions of which games, the newest version first. Games that a past
        version plays say so (`Game.frozen`)."""
        return [(newest, games)]

    def graders(
        self, round_: int, chosen: list[Game], newest: Published, asked_by: int | None
    ) -> list[Match]:
        """Who tries which questions, the newest version first. They may be tried in further games
        of the kind `TRIED`. `asked_by`: the version that is paid for the questions."""
        return [(newest, chosen)]

    def settled(self, this: Round) -> None:
        """Hear of a settled round; called in the order of rounds."""

    def figures(self, role: str) -> Mapping[str, float]:
        """Figures of `role` after the last round, for its row of the metrics."""
        return {}

    def state(self) -> dict[str, Any]:
        """Plain data for a checkpoint, after a round: what `begin` takes."""
        return {}

    def tidy(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Remove weights of past versions that neither the present nor one of `states` names."""


def lineup(cfg: Config, cast: Cast, folder: RunFolder, store: WeightStore) -> Lineup:
    """The lineup of a run. InputError where a league is asked for and the extra is missing."""
    if not meets_past(cfg):
        return Lineup()
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
