"""Who plays a round of a run: the newest versions, and members of the league, whose weights are
model folders in `members/`.

A game has one past side at most. A past proposer writes questions for the solver alone. A past
solver grades questions in place of the newest, one for all that share a baseline (law 4); the
newest tries the same questions in games of their own, by the same draws, which only it learns from.
Who does not learn meets the newest. Members are counted by the update that made them, which a
restart does not change."""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssp.base.episode import TRIED
from ssp.base.errors import InputError, hold
from ssp.base.played import ANSWERS, ASKS, Game
from ssp.config.crews import learns
from ssp.config.schema import Config
from ssp.learning import algorithms
from ssp.record.manifest import check_files
from ssp.record.runfolder import RunFolder
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.league.league import League
from ssp.selfplay.league.payoff import MatchResult
from ssp.selfplay.records import Match, Published
from ssp.selfplay.settled import Round
from ssp.selfplay.transfer.parcel import Parcel
from ssp.selfplay.versions import WeightStore

PARTS = 4
"""Into how many parts a round's targets go, with an opponent each: an engine loads that many past
versions at most. For every other target the newest proposer always writes, so that it learns from
half its batch at least."""


def member(folder: RunFolder, role: str, version: int) -> Path:
    """The model folder of a member, made or not."""
    return folder.path / "members" / role / f"v{version}"


def check(folder: RunFolder, states: Iterable[Mapping[str, Any]]) -> None:
    """InputError when the weights of a member that one of these states names are gone, or not as
    they were written."""
    named = {
        (role, v)
        for state in states
        for role, kept in state.get("kept", {}).items()
        for v in kept.values()
    }
    for role, version in sorted(named):
        path, missed = (
            member(folder, role, version),
            "restore that folder, or set league.match=self",
        )
        hold(path.is_dir(), "the weights of the league's members are there", f"no {path}", missed)
        try:
            check_files(path, whole=True)
        except InputError as error:
            raise InputError(
                f"the league's members are whole; {error.rule}", error.found, missed
            ) from error


class Matchmaker:
    """The league of a run; with league.match=self, none."""

    def __init__(self, cfg: Config, cast: Cast, folder: RunFolder, store: WeightStore) -> None:
        self._cfg, self._cast, self._folder = cfg, cast, folder
        self._on = cfg.league.match != "self"
        # Where each group has a baseline of its own, groups may have graders of their own.
        self._asker, self._answerer = cfg.spec.asker, cfg.spec.answerer
        self._sides = {self._asker: ASKS, self._answerer: ANSWERS}
        asks = cfg.block(self._asker or self._answerer)
        self._apart = algorithms.get(asks.algorithm).baseline == "group"
        self._league = self._new()
        self._steps = store.made
        # role → (update, version) of the newest weights
        self._newest: dict[str, tuple[int, int]] = {}
        # role → its last publication, which at a start has the same weights
        self._seen: dict[str, int] = {}
        # role → update → version, of members and of those to be
        self._kept: dict[str, dict[int, int]] = {}
        # role → updates whose weights are kept, members from the next round on
        self._ready: dict[str, list[int]] = {}
        self._figures: dict[str, dict[str, float]] = {}

    def _new(self) -> League:
        return League(self._cfg.league, self._cfg.seed, self._asker, self._answerer)

    async def begin(
        self,
        versions: Mapping[str, int],
        state: Mapping[str, Any],
        redraws: int,
        newest: dict[str, int],
    ) -> None:
        """Play begins, from a checkpoint of these `versions` with this `state` (both empty: from
        the start). `newest`: the numbers under which the same weights have just been published."""
        if not self._on:
            return
        self._league = self._new()
        self._league.redraws = redraws
        if versions:
            known = await self._cast.ledger.first.versions()
            for role in self._sides:
                self._steps[role] |= _made(known[role])
        self._newest = {
            role: (self._steps[role][number], number)
            for role, number in (versions or newest).items()
        }
        self._seen = newest
        kept = state.get("kept", {})
        self._kept = {
            role: {int(made): version for made, version in kept.get(role, {}).items()}
            for role in self._sides
        }
        self._ready, self._figures = {role: [] for role in self._sides}, {}
        if state:
            self._league.restore(state["league"])
        else:
            for role, (made, _) in self._newest.items():
                self._league.newest(role, made)
        for ending in ("*.tmp-*", ".*.gone"):  # of what died while it wrote, or removed
            for left in self._folder.path.glob(f"members/*/{ending}"):
                shutil.rmtree(left, ignore_errors=True)

    async def published(
        self, learner: str, step: int, versions: Mapping[str, int], meta: Mapping[str, Any]
    ) -> None:
        """After update `step`, or at the start: `versions` are the newest of the roles of
        `learner`, whose weights are kept when they are to become members."""
        for role, version in versions.items() if self._on else ():
            if version != self._seen[role]:
                self._seen[role], self._newest[role] = version, (step, version)
            made, number = self._newest[role]
            if made != step or self._ready[role] or not self._league.wants(role, step):
                continue
            self._kept[role][step] = number
            path = member(self._folder, role, number)
            if not path.is_dir():
                full = {**meta, "role": role, "version": number, "run_step": step}
                await self._cast.learner(learner).export(str(path), full)
            self._ready[role].append(step)

    def askers(self, round_: int, games: list[Game], newest: Published) -> list[Match]:
        """Who writes the questions of which games, the newest first; says in the others' games that
        it is a past version."""
        return self._dealt(
            self._answerer,
            round_,
            games,
            newest,
            games if self._meets(self._answerer, round_) else (),
        )

    def graders(
        self, round_: int, chosen: list[Game], newest: Published, asked_by: int | None
    ) -> list[Match]:
        """Who tries which questions, the newest first. What a past solver grades, the newest tries
        in a further game, while it learns; `asked_by`: version of the proposer that is paid for
        it."""
        paid = [game for game in chosen if game.proposal is not None and not game.frozen]
        matches = self._dealt(
            self._asker, round_, chosen, newest, paid if self._meets(self._asker, round_) else ()
        )
        if self._meets(self._answerer, round_):
            matches[0][1].extend(
                _again(game, asked_by) for game in chosen if game.frozen == ANSWERS
            )
        return matches

    def _meets(self, role: str, round_: int) -> bool:
        """Opponents are for who learns from them."""
        return self._on and learns(self._cfg, role, round_ + 1)

    def _dealt(
        self, role: str, round_: int, games: list[Game], newest: Published, some: Sequence[Game]
    ) -> list[Match]:
        """`games` by who plays the role that `role` meets; `some` of them may have a past version
        there."""
        other = self._league.other[role]
        matches: dict[int, list[Game]] = defaultdict(list)
        targets = Counter(game.number // self._cfg.game.proposals for game in some)
        # In turn by how many questions they are asked for: of one that is owed to a learner there
        # may be fewer.
        part_of = {target: at % PARTS for at, (target, _) in enumerate(targets.most_common())}
        for game in some:
            part = (
                part_of[game.number // self._cfg.game.proposals]
                if role == self._answerer or self._apart
                else 0
            )
            made = (
                self._league.opponent(role, round_, part)
                if role == self._asker or part % 2
                else None
            )
            if made is not None and made != self._steps[other][newest.version]:
                matches[made].append(game)
                game.frozen = self._sides[other]
                if other == self._asker:
                    game.asked_by = self._kept[other][made]
        found = [(newest, [game for game in games if game.frozen != self._sides[other]])]
        for made in sorted(matches):
            version = self._kept[other][made]
            parcel = Parcel(path=str(member(self._folder, other, version)))
            found.append((Published(version, parcel, -1, past=f"-v{version}"), matches[made]))
        return found

    def settled(self, this: Round) -> None:
        """A round is settled, in the order of rounds."""
        if not self._on or this.asked_by is None:
            return
        games, versions = (
            this.played,
            {self._asker: this.asked_by, self._answerer: this.weights[self._answerer].version},
        )
        gone = []
        for role in self._sides:
            self._league.newest(role, self._newest[role][0])
            gone += [
                (role, left)
                for made in self._ready[role]
                for left in self._league.admit(role, made)
            ]
            self._ready[role] = []
        self._league.saw(self._results(games, versions))
        gone += [
            (role, left)
            for role, members in self._league.done(this.number).items()
            for left in members
        ]
        for role, made in gone:
            del self._kept[role][made]
        self._figures = {role: self._told(role, games, versions) for role in self._sides}

    def figures(self, role: str) -> dict[str, float]:
        """What is known of `role` after the last round; for its row of the metrics."""
        return self._figures.get(role, {})

    def state(self) -> dict[str, Any]:
        """As plain data, after a round: what `begin` takes."""
        if not self._on:
            return {}
        kept = {
            role: {str(made): self._kept[role][made] for made in self._league.members(role)}
            for role in self._sides
        }
        return {"league": self._league.state(), "kept": kept}

    def tidy(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Remove the weights of past versions that are no members, neither now nor in `states`."""
        for role in self._sides if self._on else ():
            kept = [self._kept[role], *(state.get("kept", {}).get(role, {}) for state in states)]
            named = {version for members in kept for version in members.values()}
            for path in (self._folder.path / "members" / role).glob("v*"):
                if (
                    path.name.removeprefix("v").isdecimal()
                    and int(path.name.removeprefix("v")) not in named
                ):
                    # never half a folder under its name
                    trash = path.rename(path.with_name(f".{path.name}.gone"))
                    shutil.rmtree(trash, ignore_errors=True)

    def _results(self, games: Sequence[Game], versions: Mapping[str, int]) -> list[MatchResult]:
        """What `payoff.count` will read of these games, the versions by the updates that made
        them."""
        found = []
        for game in games:
            asked = self._steps[self._asker].get(_asked_by(game, versions[self._asker]))
            solver = self._steps[self._answerer].get(game.tried_by)
            graded = [
                (one, p.version_min) for p in game.attempts if (one := game.right(p)) is not None
            ]
            wrote = game.win_rate is not None and any(version >= 0 for _, version in graded)
            if asked is not None and solver is not None and wrote:
                found.append(MatchResult(solver, asked, sum(one for one, _ in graded), len(graded)))
        return found

    def _told(
        self, role: str, games: Sequence[Game], versions: Mapping[str, int]
    ) -> dict[str, float]:
        other = self._league.other[role]
        # What was asked or tried by a past version of the role is not its newest's; replayed
        # questions nobody was drawn for.
        mine = [
            game
            for game in games
            if game.chosen and game.number >= 0 and game.frozen != self._sides[role]
        ]
        mine = [game for game in mine if role == self._answerer or game.proposal is not None]
        now, ages = self._steps[other][versions[other]], []
        for game in mine:
            met = _asked_by(game, versions[self._asker]) if other == self._asker else game.tried_by
            ages.append(now - self._steps[other].get(met, now))
        found = {"league/pool": float(len(self._league.members(role)))}
        if ages:
            past = sum(game.frozen == self._sides[other] for game in mine)
            found |= {"league/past": past / len(mine), "league/opponent_age": sum(ages) / len(ages)}
        if members := self._league.members(role):
            gain, error = self._league.gain(role, self._newest[role][0], members[0])
            found |= {"league/rating": gain, "league/rating_error": error}
        return found


def _made(given: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Version → the update that made its weights; `given`: (incarnation, step) of each publication
    of a role. The first one of an incarnation is of what was loaded, which an update may have made
    long before that step."""
    found: dict[int, int] = {}
    live, last = [0], None  # updates that the weights contain
    for version, (incarnation, step) in sorted(given.items()):
        live = [*live, step] if incarnation == last else [made for made in live if made <= step]
        found[version], last = live[-1], incarnation
    return found


def _again(game: Game, asked_by: int | None) -> Game:
    """The same question for the newest solver."""
    made = Game(
        f"r{game.id[1:]}n",
        game.number,
        game.target,
        question=game.question,
        golds=game.golds,
        kind=TRIED,
    )
    return replace(made, rubric=game.rubric, valid=True, chosen=True, asked_by=asked_by)


def _asked_by(game: Game, newest: int) -> int:
    """The version that wrote a game's question; `newest` wrote what no past one did."""
    past = game.proposal is None or game.frozen == ASKS
    asked = game.asked_by if past else newest
    return -1 if asked is None else asked
