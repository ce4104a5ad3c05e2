"""The main loop: play the stages of a game, settle, train, publish.

`_round` plays the game that `game.kind` declares, and `_train` drives a learner. A pace between
them holds the staleness bounds; with bounds of 0 they alternate, which is synchronous training.
Promises that rounds are handed over and trained in order, and that every episode ends in one final
ledger state. Lineup, replay pool, curriculum, junk watch, report, evaluation and checkpoints are
told of settled rounds and published updates; their alarms end a run between rounds. Refuses to know
where workers run, what an algorithm is, or how a reward is made."""

import asyncio
import time
from collections.abc import Sequence

from ssp.base.episode import REPLAYED, TRIED
from ssp.base.errors import SspError, TooFewGroups, VoidLimit
from ssp.base.gamespec import Check, Grading, Keep, Play, Rate, Stage
from ssp.base.played import Game
from ssp.config.crews import bound, learners, queue_budget
from ssp.config.schema import Config
from ssp.game.declaration import is_played, rates, who_plays
from ssp.record.runfolder import RunFolder
from ssp.selfplay.admission import Pace, VoidGate
from ssp.selfplay.credit import Credits
from ssp.selfplay.crews.cast import Cast, LearnerLost
from ssp.selfplay.crews.turns import seated
from ssp.selfplay.curriculum.figures import Watch
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.health import JunkWatch
from ssp.selfplay.lineup import lineup
from ssp.selfplay.records import Match, TrainBatch
from ssp.selfplay.recovery import Recovery
from ssp.selfplay.refill import Refill
from ssp.selfplay.report import Report
from ssp.selfplay.rollout_queue import RolloutQueue
from ssp.selfplay.settle import TOO_FEW, settle
from ssp.selfplay.settled import Round
from ssp.selfplay.stages import Stages
from ssp.selfplay.targets import Batches, Targets, keep_best
from ssp.selfplay.training import Trainer
from ssp.selfplay.versions import WeightStore
from ssp.telemetry.activity import STEP
from ssp.telemetry.clock import Clock

ORDER = "order"
"""The track of the pace that keeps finished rounds in order."""


class SelfPlay:
    """One run. `run()` plays until `cfg.steps`, `stop()`, an alarm, or too many voids."""

    def __init__(
        self,
        cfg: Config,
        cast: Cast,
        folder: RunFolder,
        targets: Targets,
        report: Report,
        evaluator: Evaluator,
    ):
        cast = seated(cfg, cast)
        self._cfg = cfg
        self._cast = cast
        self._targets = targets
        self._report = report
        self._spec = cfg.spec
        self._learners = learners(cfg)
        self._ledger = cast.ledger.first
        self._gate = VoidGate(cfg.void, report.say, cast.judges[0].answers)
        self._store = WeightStore(cfg, cast, report.say)
        self._stages = Stages(cfg, cast, self._gate, self._store)
        self._batches = Batches(cfg.game, cfg.block(self._spec.answerer).batch, cfg.seed)
        self.queues = {role: RolloutQueue(role, *queue_budget(cfg)) for role in cfg.roles}
        self._lineup = lineup(cfg, cast, folder, self._store)
        self._trainer = Trainer(cfg, cast, self._store)
        self._credits = Credits(cfg)
        self._refill = Refill(cfg, self._credits)
        parts = (self._batches, targets, self._lineup, self._credits)
        self._recovery = Recovery(cfg, cast, folder, parts, report)
        self._curriculum = Watch(cfg, folder, report.say)
        self._junk = JunkWatch(cfg, report.say)
        self._evaluator = evaluator
        self._pace: Pace
        self._order: Pace
        self._start = 0  # the first round after a start or a return
        self._cut = 0  # the first round that is given up
        self._why: SspError | None = None
        self._stopping = False

    def stop(self, why: SspError | None = None) -> None:
        """Admit no further round. What is in flight is finished, trained and saved; then `why` is
        raised."""
        # A consequence of stopping is no reason for it.
        self._why = self._why or (None if self._stopping else why)
        self._stopping = self._gate.stopping = True

    async def run(self) -> None:
        """Play to the end.

        Raises VoidLimit, TooFewGroups or JunkAlarm after saving, and Collapse after going back to
        the last good checkpoint. Any other error propagates as it was raised."""
        while True:
            try:
                await self._restore()
                # A task of its own: groups leave marks of cancellation on the one that they are in.
                await asyncio.create_task(self._play())
                if not self._stopping:  # someone is waiting for the end
                    await self._evaluate(self._end, final=True)
                break
            except (LearnerLost, ExceptionGroup) as error:
                this = asyncio.current_task()
                if this is not None and this.cancelling():
                    # A task group that has an error raises that alone.
                    raise asyncio.CancelledError from error
                await self._recovery.handle(error)
        if self._pace.over:  # what the void limit cut short has no other end
            await self._ledger.rollback(dict.fromkeys(self._cfg.roles, self._end))
        await self._ledger.check()
        await self._ledger.fold()
        why = self._why if self._stopping else self._gate.verdict()
        if why is not None:
            raise why

    async def _restore(self) -> None:
        """Put learners, ledger, pool and cursor where the last consistent checkpoint is, and
        publish its weights."""
        state = await self._recovery.restore()
        self._start = state.step
        self._cut = self._cfg.steps
        self._stages.incarnation = self._trainer.incarnation = self._recovery.incarnation
        self._stages.redraws = state.rollbacks
        for queue in self.queues.values():
            queue.clear()
        bounds = {role: bound(self._cfg, role) for role in self._cfg.roles}
        self._pace = Pace(bounds, done=state.step)
        self._order = Pace({ORDER: 0}, done=state.step)
        self._abreast = max(bounds.values()) + 1
        for learner in self._learners:
            await self._trainer.start(learner, state.step)
        newest = {role: self._store.latest(role).version for role in self._cfg.roles}
        await self._lineup.begin(state.versions, state.league, state.rollbacks, newest)
        for learner in self._learners:
            versions = self._versions(learner)
            meta = self._recovery.meta(learner)
            await self._lineup.published(learner, state.step, versions, meta)
        self._curriculum.restart(state.step)
        self._junk.restart(state.step)
        if self._recovery.saved < 0:
            # first: a run that goes on from step 0 has these rows
            await self._evaluate(0, final=True)
            for learner in self._learners:
                await self._recovery.save(learner, 0, self._versions(learner))
        self._report.restart(state.step)

    async def _play(self) -> None:
        """Rounds and learners until no further round is admitted; ends saved."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rounds())
            for learner in self._learners:
                group.create_task(self._train(learner))
        if self._recovery.saved < self._end:
            for learner in self._learners:
                await self._recovery.save(learner, self._end, self._versions(learner))

    async def _rounds(self) -> None:
        """Start rounds as pace and void limit allow, at most one more than the larger staleness
        bound at once."""
        end = self._start
        async with asyncio.TaskGroup() as group:
            for number in range(self._start, self._cfg.steps):
                with self._report.waiting("next round", f"{self._cfg.roles[0]}'s learner"):
                    await self._pace.admit(self._cfg.roles[0], number)
                try:
                    with self._report.waiting("next round", "fewer voids"):
                        await self._gate.admit()
                except VoidLimit as limit:
                    self.stop(limit)
                if self._stopping:
                    break
                end = number + 1
                group.create_task(self._guarded(number))
        for queue in self.queues.values():
            await queue.close(min(end, self._cut))

    async def _guarded(self, number: int) -> None:
        """Play a round. If the void limit or too few groups stop it, it is given up with all later
        ones; earlier ones are trained and saved."""
        done = False
        try:
            done = await self._round(number)
        except (VoidLimit, TooFewGroups) as limit:
            await self._give_up(limit)
        if not done:
            self._cut = min(self._cut, number)

    async def _round(self, number: int) -> bool:
        """Play one whole round of the game. False where it is given up."""
        STEP.set(number + 1)
        this = Round(number, Clock(self._report.span, f"round-{number % self._abreast}"))
        await self._enter_weights(this, self._cfg.roles[0])
        await self._ask(this)
        await self._resample(this)
        for role in self._cfg.roles[1:]:
            await self._enter_weights(this, role)
        if self._pace.over:
            return False
        await self._try(this)
        await self._play_further(this)
        # Rounds are handed over in order: a later one must not fill a queue whose taker waits for
        # this one.
        with self._report.waiting(this.clock.track, "round before"):
            await self._order.admit(ORDER, number)
        if self._order.done[ORDER] < number:
            return False
        await self._settle(this)
        for role in self._cfg.roles:
            batch = this.settled.batch(role, self._lineup.figures(role))
            with self._report.waiting(this.clock.track, f"room in queue {role}"):
                await self.queues[role].put(batch)
        await self._order.advance(ORDER)
        return True

    async def _enter_weights(self, this: Round, role: str) -> None:
        """Wait until the round may play `role`, and take its newest weights; once a round."""
        if role in this.weights:
            return
        with self._report.waiting(this.clock.track, f"{role}'s learner"):
            await self._pace.admit(role, this.number)
        this.weights[role] = self._store.latest(role)

    async def _ask(self, this: Round, again: int = 0) -> None:
        """Open games about the next rows, and play the stages up to the choice of what goes on."""
        games = self._targets.take(this.number, self._stages.incarnation)
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
        number, start, earlier = this.number, self._stages.incarnation, this.unasked
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
                await self._stages.play(stage, this.number, mine, weights, this.clock, again)
        elif isinstance(stage, Check):
            verifier = None
            if stage.by is None and self._cfg.referee.verifier == "solver":
                await self._enter_weights(this, self._spec.answerer)
                verifier = this.weights[self._spec.answerer]
            await self._stages.check(stage, games, verifier, this.clock)
        elif isinstance(stage, Grading):
            await self._stages.grade(stage, games, this.clock)
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
        matches: list[Match] = []
        if stage.name == self._spec.answers:
            known = {game.id for game in games}
            for weights, tried in this.tried:
                matches.append((weights, [game for game in tried if game.id in known]))
            return matches
        for role in stage.roles:
            mine = [game for game in games if who_plays(self._cfg, stage, game) == role]
            matches.append((this.weights[role], mine))
        return matches

    async def _play_further(self, this: Round) -> None:
        """Play further batches by the same weights while they are wanted. Valid questions that
        nobody tried come first (DAPO's dynamic sampling, arXiv 2503.14476, section 3.2)."""
        batch = self._cfg.block(self._spec.answerer).batch
        while self._refill.wanted(this, this.further + 1):
            await self._gate.admit()
            this.further += 1
            untried = sum(game.valid and not game.chosen for game in this.games)
            if untried < batch:
                await self._ask(this, this.further)
                await self._resample(this)
            await self._try(this)

    async def _settle(self, this: Round) -> None:
        """Write outcomes, rewards and what is trained into the ledger; then tell everybody who
        follows, in this order."""
        this.settled = settle(self._cfg, this.played, this.asked_by, this.step, self._credits)
        await self._ledger.settle(this.settled.games, this.settled.rows)
        self._gate.record(TOO_FEW, this.settled.counts[f"void/{TOO_FEW}"])
        self._batches.remember(this.number, this.played)
        this.figures |= self._targets.saw(this.played)
        self._lineup.settled(this)
        self._recovery.settled(this)
        this.figures |= self._curriculum.round(this.step, this.played)
        self._report.round(this, self._gate.news())
        if this.asked_by is not None:
            asked = [game for game in this.played if game.number >= 0]
            alarm = self._junk.see(this.step, asked)
            if alarm is not None:
                self.stop(alarm)

    async def _train(self, learner: str) -> None:
        """Drive one learner: take the next batch of each of its roles, update, publish, commit and
        tell, again and again."""
        roles = self._learners[learner]
        while True:
            number = self._pace.done[learner]
            STEP.set(number + 1)
            batches: list[TrainBatch] = []
            for role in roles:
                with self._report.waiting(f"learner-{learner}-0", "batch"):
                    batch = await self.queues[role].take(number)
                if batch is None:
                    return
                batches.append(batch)
            figures = await self._trainer.learn(*batches)
            for role in roles:
                await self.queues[role].done(number)
            step = number + 1
            versions = self._versions(learner)
            self._recovery.examine(step, figures, self._stopping)
            if self._spec.answerer in roles:
                await self._evaluate(step)
            if self._report.learned(step, figures):
                await self._ledger.check()
            await self._lineup.published(learner, step, versions, self._recovery.meta(learner))
            if self._recovery.due(step):  # last: a run that goes on from this step has all its rows
                await self._recovery.save(learner, step, versions)
            for role in roles:
                await self._pace.advance(role)

    async def _evaluate(self, step: int, final: bool = False) -> None:
        try:
            started = time.perf_counter()
            newest = self._store.latest(self._spec.answerer)
            anchor = self._trainer.anchor
            scores = await self._evaluator.run(step, final, newest, anchor, self._stages)
            if scores:
                self._report.evaluated(step, scores, time.perf_counter() - started)
        except VoidLimit as limit:
            await self._give_up(limit)

    async def _give_up(self, limit: SspError) -> None:
        """Stop, and let no round wait for one that will not come."""
        self.stop(limit)
        await self._pace.release()
        await self._order.release()

    @property
    def _end(self) -> int:
        return self._pace.done[self._spec.answerer]

    def _versions(self, learner: str) -> dict[str, int]:
        return {role: self._store.latest(role).version for role in self._learners[learner]}

    async def _enter(self, this: Round, games: list[Game]) -> None:
        """Enter new games of a round into the ledger."""
        of_all = {"round": this.step, "incarnation": self._stages.incarnation}
        rows = []
        for game in games:
            facts = {"target": game.target or None, "kind": game.kind, "number": game.number}
            rows.append({"id": game.id, **facts, **of_all})
        await self._ledger.create_games(rows)
