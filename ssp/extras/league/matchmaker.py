"""Who plays a round of a run with a league: the newest versions, and members of the league, whose
weights are model folders.

A game has one past side at most. A past version that asks writes questions for the newest that
answers alone. A past version that answers grades questions in place of the newest, one for all that
share a baseline (law 4); the newest tries the same questions in games of their own, by the same
draws, which only it learns from. Who does not learn meets the newest. Members are counted by the
update that made them, which a restart does not change."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ssp.base.episode import TRIED
from ssp.base.played import ANSWERS, ASKS, Game
from ssp.base.values import Values
from ssp.config.crews import learns
from ssp.config.schema import Config
from ssp.extras.league import members
from ssp.extras.league.league import League
from ssp.extras.league.payoff import MatchResult
from ssp.learning import algorithms
from ssp.record.runfolder import RunFolder
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.lineup import Lineup
from ssp.selfplay.records import Match, Published
from ssp.selfplay.settled import Round
from ssp.selfplay.transfer.parcel import Parcel
from ssp.selfplay.versions import WeightStore

PARTS = 4
"""Into how many parts a round's targets go, with an opponent each: an engine loads that many past
versions at most. For every other target the newest version always asks, so that it learns from half
its batch at least."""


class Matchmaker(Lineup):
    """The league of a run, as its `Lineup`. An update is the one that made a version's weights."""

    def __init__(self, cfg: Config, cast: Cast, folder: RunFolder, store: WeightStore) -> None:
        self._cfg, self._cast, self._folder = cfg, cast, folder
        self._asker, self._answerer = cfg.spec.asker, cfg.spec.answerer
        self._sides = {self._asker: ASKS, self._answerer: ANSWERS}
        # Where each group has a baseline of its own, groups may have graders of their own.
        self._apart = algorithms.get(cfg.block(self._asker).algorithm).baseline == "group"
        self._updates = store.made  # role → version → update
        self._league: League
        self._newest: dict[str, tuple[int, int]]  # role → (update, version) of the newest weights
        # role → its last publication, which at a start has the same weights
        self._seen: dict[str, int]
        # role → update → version, of members and of those to be
        self._kept: dict[str, dict[int, int]]
        # role → the update whose weights are kept, a member from the next round on
        self._ready: dict[str, int]
        self._figures: dict[str, Values]

    async def begin(
        self,
        versions: Mapping[str, int],
        state: Mapping[str, Any],
        redraws: int,
        newest: dict[str, int],
    ) -> None:
        """Restore the league, and what its members' versions were made by."""
        self._league = League(self._cfg.league, self._cfg.seed, self._asker, self._answerer)
        self._league.redraws = redraws
        if versions:
            known = await self._cast.ledger.first.versions()
            for role in self._sides:
                self._updates[role] |= made_by(known[role])
        self._newest = {}
        for role, version in (versions or newest).items():
            self._newest[role] = (self._updates[role][version], version)
        self._seen, self._ready, self._figures = newest, {}, {}

        self._kept = {role: {} for role in self._sides}
        if state:
            self._league.restore(state["league"])
            for role, kept in state["kept"].items():
                self._kept[role] = {int(made): version for made, version in kept.items()}
        else:
            for role, (made, _) in self._newest.items():
                self._league.newest(role, made)
        members.sweep(self._folder)

    async def published(
        self, learner: str, step: int, versions: Mapping[str, int], meta: Mapping[str, Any]
    ) -> None:
        """Keep the newest weights of the learner's roles that are to become members."""
        for role, version in versions.items():
            if version != self._seen[role]:
                self._seen[role] = version
                self._newest[role] = (step, version)
            made, number = self._newest[role]
            if made != step or role in self._ready or not self._league.wants(role, step):
                continue
            self._kept[role][step] = number
            path = self._folder.member(role, number)
            if not path.is_dir():
                about = {**meta, "role": role, "version": number, "run_step": step}
                await self._cast.learner(learner).export(str(path), about)
            self._ready[role] = step

    def askers(self, round_: int, games: list[Game], newest: Published) -> list[Match]:
        """Who writes the questions of which games, the newest first."""
        slots = {}
        if self._meets(self._answerer, round_):
            slots = {game: part for game, part in self._parts(games).items() if part % 2}
        return self._dealt(self._answerer, round_, games, newest, slots)

    def graders(
        self, round_: int, chosen: list[Game], newest: Published, asked_by: int | None
    ) -> list[Match]:
        """Who tries which questions, the newest first. What a past version grades, the newest tries
        in a further game, while it learns."""
        slots = {}
        if self._meets(self._asker, round_):
            paid = [game for game in chosen if game.proposal is not None and not game.frozen]
            slots = {game: part if self._apart else 0 for game, part in self._parts(paid).items()}
        matches = self._dealt(self._asker, round_, chosen, newest, slots)
        if self._meets(self._answerer, round_):
            own = matches[0][1]
            own += [tried_again(game, asked_by) for game in chosen if game.frozen == ANSWERS]
        return matches

    def _meets(self, role: str, round_: int) -> bool:
        """Opponents are for who learns from them."""
        return learns(self._cfg, role, round_ + 1)

    def _parts(self, games: Sequence[Game]) -> dict[str, int]:
        """Game → the part of the round that its target is in. Targets go there in turn, by how many
        questions they are asked for: of one that is owed to a learner there may be fewer."""
        targets = {game.id: game.number // self._cfg.game.proposals for game in games}
        counted = Counter(targets.values()).most_common()
        part_of = {target: place % PARTS for place, (target, _) in enumerate(counted)}
        return {game: part_of[target] for game, target in targets.items()}

    def _dealt(
        self,
        role: str,
        round_: int,
        games: list[Game],
        newest: Published,
        slots: Mapping[str, int],
    ) -> list[Match]:
        """`games` by who plays against `role`: in those with a slot whom the league draws for
        it."""
        other = self._league.other[role]
        own = []
        past: dict[int, list[Game]] = defaultdict(list)
        for game in games:
            made = None
            if game.id in slots:
                made = self._league.opponent(role, round_, slots[game.id])
            if made is None or made == self._updates[other][newest.version]:
                own.append(game)
                continue
            past[made].append(game)
            game.frozen = self._sides[other]
            if other == self._asker:
                game.asked_by = self._kept[other][made]

        matches = [(newest, own)]
        for made in sorted(past):
            version = self._kept[other][made]
            parcel = Parcel(path=str(self._folder.member(other, version)))
            matches.append((Published(version, parcel, -1, past=f"-v{version}"), past[made]))
        return matches

    def settled(self, this: Round) -> None:
        """Count a settled round; who is ready becomes a member."""
        games = this.played
        versions = {role: this.weights[role].version for role in self._sides}
        for role in self._sides:
            self._league.newest(role, self._newest[role][0])
            if role in self._ready:
                self._drop(role, self._league.admit(role, self._ready.pop(role)))
        self._league.saw(self._results(games, versions))
        for role, left in self._league.done(this.number).items():
            self._drop(role, left)
        self._figures = {role: self._told(role, games, versions) for role in self._sides}

    def _drop(self, role: str, left: Iterable[int]) -> None:
        for made in left:
            del self._kept[role][made]

    def figures(self, role: str) -> Mapping[str, float]:
        """What is known of `role` after the last round."""
        return self._figures.get(role, {})

    def state(self) -> dict[str, Any]:
        """The league, and under which numbers its members' weights are kept."""
        kept = {}
        for role in self._sides:
            pool = self._league.members(role)
            kept[role] = {str(made): self._kept[role][made] for made in pool}
        return {"league": self._league.state(), "kept": kept}

    def tidy(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Remove the weights of past versions that are no members, neither now nor in `states`."""
        needed = {role: {*kept.values()} for role, kept in self._kept.items()}
        for state in states:
            for role, kept in state.get("kept", {}).items():
                needed[role] |= {*kept.values()}
        for role, versions in needed.items():
            members.remove(self._folder, role, versions)

    def _results(self, games: Sequence[Game], versions: Mapping[str, int]) -> list[MatchResult]:
        """What `payoff.count` will read of these games, the versions by their updates."""
        results = []
        for game in games:
            asking = self._updates[self._asker].get(_asked_by(game, versions[self._asker]))
            answering = self._updates[self._answerer].get(game.tried_by)
            if asking is None or answering is None or game.win_rate is None:
                continue
            graded = [brief for brief in game.attempts if game.right(brief) is not None]
            right = sum(game.right(brief) is True for brief in graded)
            if any(brief.version_min >= 0 for brief in graded):
                results.append(MatchResult(answering, asking, right, len(graded)))
        return results

    def _told(self, role: str, games: Sequence[Game], versions: Mapping[str, int]) -> Values:
        """The figures of a role after a round."""
        other = self._league.other[role]
        updates, newest = self._updates[other], self._updates[other][versions[other]]
        ages = []
        past = 0
        for game in games:
            # replayed questions nobody was drawn for
            drawn = game.chosen and game.number >= 0
            plays = role == self._answerer or game.proposal is not None
            if not drawn or not plays or game.frozen == self._sides[role]:
                continue
            met = game.tried_by
            if other == self._asker:
                met = _asked_by(game, versions[other])
            ages.append(newest - updates.get(met, newest))
            past += game.frozen == self._sides[other]

        pool = self._league.members(role)
        figures = {"league/pool": float(len(pool))}
        if ages:
            figures["league/past"] = past / len(ages)
            figures["league/opponent_age"] = sum(ages) / len(ages)
        if pool:
            gain, error = self._league.gain(role, self._newest[role][0], pool[0])
            figures |= {"league/rating": gain, "league/rating_error": error}
        return figures


def made_by(given: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Version → the update that made its weights; `given`: (incarnation, step) of each publication
    of a role. The first one of an incarnation is of what was loaded, which an update may have made
    long before that step."""
    made = {}
    contained = [0]  # updates that the weights contain
    last = None
    for version, (incarnation, step) in sorted(given.items()):
        if incarnation == last:
            contained.append(step)
        else:
            contained = [update for update in contained if update <= step]
        made[version] = contained[-1]
        last = incarnation
    return made


def tried_again(game: Game, asked_by: int | None) -> Game:
    """A further game: the same question for the newest version."""
    return Game(
        f"r{game.id[1:]}n",
        game.number,
        game.target,
        question=game.question,
        golds=game.golds,
        rubric=game.rubric,
        kind=TRIED,
        valid=True,
        chosen=True,
        asked_by=asked_by,
        source=game.source,
    )


def _asked_by(game: Game, newest: int) -> int:
    """The version that wrote a game's question; `newest` wrote what no past one did."""
    past = game.proposal is None or game.frozen == ASKS
    asked = game.asked_by if past else newest
    return -1 if asked is None else asked
