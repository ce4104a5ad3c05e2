"""One round of a game: its stages are played in the order in which the game declares them.

Owns which games a round has, who plays them, and by which weights; each role's are the newest that
the pace allows, once a round. Refuses to know what an episode earns, and what follows a round."""

from collections.abc import Sequence

from ssp.base.episode import REPLAYED, TRIED
from ssp.base.gamespec import Check, Grading, Keep, Play, Rate, Stage
from ssp.base.played import Game
from ssp.config.schema import Config
from ssp.game.declaration import is_played, rates, who_plays
from ssp.selfplay.admission import Pace, VoidGate
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.lineup import Lineup
from ssp.selfplay.records import Match
from ssp.selfplay.refill import Refill
from ssp.selfplay.report import Report
from ssp.selfplay.settled import Round
from ssp.selfplay.stages import Stages
from ssp.selfplay.targets import Batches, Targets, keep_best
from ssp.selfplay.versions import WeightStore


class RoundPlayer:
    """Plays rounds up to the grades. `pace`: whom a round waits for, which begins anew with each
    start of the run."""

    pace: Pace

    def __init__(
        self,
        cfg: Config,
        cast: Cast,
        gate: VoidGate,
        store: WeightStore,
        targets: Targets,
        batches: Batches,
        lineup: Lineup,
        refill: Refill,
        report: Report,
    ) -> None:
        self.stages = Stages(cfg, cast, gate, store)
        self._cfg = cfg
        self._spec = cfg.spec
        self._ledger = cast.ledger.first
        self._gate = gate
        self._store = store
        self._targets = targets
        self._batches = batches
        self._lineup = lineup
        self._refill = refill
        self._report = report

    async def play(self, this: Round) -> bool:
        """Play all stages of a round. False where the run ends meanwhile."""
        await self._enter_weights(this, self._cfg.roles[0])
        await self._ask(this)
        await self._resample(this)
        for role in self._cfg.roles[1:]:
            await self._enter_weights(this, role)
        if self.pace.over:
            return False
        await self._try(this)
        # Valid questions that nobody tried come before further ones (DAPO's dynamic sampling, arXiv
        # 2503.14476, section 3.2). All play by the same weights.
        batch = self._cfg.block(self._spec.answerer).batch
        while self._refill.wanted(this, this.further + 1):
            await self._gate.admit()
            this.further += 1
            untried = sum(game.valid and not game.chosen for game in this.games)
            if untried < batch:
                await self._ask(this, this.further)
                await self._resample(this)
            await self._try(this)
        return True

    async def _enter_weights(self, this: Round, role: str) -> None:
        """Wait until the round may play `role`, and take its newest weights; once a round."""
        if role in this.weights:
            return
        with self._report.waiting(this.clock.track, f"{role}'s learner"):
            await self.pace.admit(role, this.number)
        this.weights[role] = self._store.latest(role)

    async def _ask(self, this: Round, again: int = 0) -> None:
        """Open games about the next rows, and play the stages up to the choice of what goes on."""
        games = self._targets.take(this.number, self.stages.incarnation)
        await self._enter(this, games)
        this.games += games
        for stage in self._spec.before:
            await self._run(stage, this, games, again)

    async def _resample(self, this: Round) -> None:
        """Ask about further rows, by the same weights, while too few questions pass."""
        if self._spec.asking is None:
            return
        for again in range(1, self._batches.extra + 1):
            if self._batches.enough(this.games, self._targets.given.number(this.number)):
                break
            await self._gate.admit()
            await self._ask(this, again)

    async def _try(self, this: Round) -> None:
        """Choose the games that go on, and play the stages after the choice. The newest version
        tries once more what a past version grades."""
        number, start, earlier = this.number, self.stages.incarnation, this.unasked
        given = self._targets.given.take(number, start, earlier)
        chosen = self._batches.choose(number, this.games, start, earlier, given)
        newest = this.weights[self._spec.answerer]
        this.tried = self._lineup.graders(this.number, chosen, newest, this.asked_by)
        known = [game for game in chosen if game.kind == REPLAYED]
        known += [game for game in this.tried[0][1] if game.kind == TRIED]
        await self._enter(this, [*given, *known])
        this.given += given
        this.refills += known
        going_on = [game for _, games in this.tried for game in games]
        for stage in self._spec.after:
            among = this.played if isinstance(stage, Rate) else going_on
            await self._run(stage, this, among, this.further)

    async def _run(self, stage: Stage, this: Round, games: Sequence[Game], again: int) -> None:
        """Run one stage of `games`. `again`: 0, or the number of the further batch of this round,
        which its episodes' ids and draws follow from."""
        if isinstance(stage, Play):
            for role in stage.roles:
                await self._enter_weights(this, role)
            going_on = [game for game in games if is_played(self._cfg, stage, game)]
            for weights, mine in self._players(stage, this, going_on):
                await self.stages.play(stage, this.number, mine, weights, this.clock, again)
        elif isinstance(stage, Check):
            verifier = None
            if stage.by is None and self._cfg.referee.verifier == "solver":
                await self._enter_weights(this, self._spec.answerer)
                verifier = this.weights[self._spec.answerer]
            await self.stages.check(stage, games, verifier, this.clock)
        elif isinstance(stage, Grading):
            await self.stages.grade(stage, games, this.clock)
        elif isinstance(stage, Rate):
            numbers = rates(self._cfg, stage.by, list(games))
            for game in games:
                game.rates[stage.name] = numbers[game.id]
        elif isinstance(stage, Keep):
            keep_best(self._cfg, stage, games)

    def _players(self, stage: Play, this: Round, games: list[Game]) -> list[Match]:
        """Who plays which games of a stage: past versions too where it asks or answers."""
        if stage.name == self._spec.asks:
            newest = this.weights[self._spec.asker]
            this.asked_by = newest.version
            return self._lineup.askers(this.number, games, newest)
        matches = []
        if stage.name == self._spec.answers:
            known = {game.id for game in games}
            for weights, tried in this.tried:
                matches.append((weights, [game for game in tried if game.id in known]))
            return matches
        for role in stage.roles:
            mine = [game for game in games if who_plays(self._cfg, stage, game) == role]
            matches.append((this.weights[role], mine))
        return matches

    async def _enter(self, this: Round, games: list[Game]) -> None:
        """Enter new games of a round into the ledger."""
        of_all = {"round": this.step, "incarnation": self.stages.incarnation}
        rows = []
        for game in games:
            facts = {"target": game.target or None, "kind": game.kind, "number": game.number}
            rows.append({"id": game.id, **facts, **of_all})
        await self._ledger.create_games(rows)
