"""The main loop: play the stages of a game, settle, train, publish.

`_round` plays the game that `game.kind` declares, and `_train` drives a learner. A pace between
them holds the staleness bounds; with bounds of 0 they alternate, which is synchronous training.
Promises that rounds are handed over and trained in order, and that every episode ends in one final
ledger state. Lineup, replay pool, curriculum, junk watch, report, evaluation and checkpoints are
told of settled rounds and published updates; their alarms end a run between rounds. Refuses to know
where workers run, what an algorithm is, or how a reward is made."""

import asyncio
import time

from ssp.base.errors import SspError, TooFewGroups, VoidLimit
from ssp.config.crews import bound, learners, queue_budget
from ssp.config.schema import Config
from ssp.game import voids
from ssp.record.runfolder import RunFolder
from ssp.selfplay.admission import Pace, VoidGate
from ssp.selfplay.credit import Credits
from ssp.selfplay.crews.cast import Cast, LearnerLost
from ssp.selfplay.crews.turns import seated
from ssp.selfplay.curriculum.figures import Watch
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.health import JunkWatch
from ssp.selfplay.lineup import lineup
from ssp.selfplay.recovery import Recovery
from ssp.selfplay.refill import Refill
from ssp.selfplay.report import Report
from ssp.selfplay.rollout_queue import RolloutQueue
from ssp.selfplay.round_player import RoundPlayer
from ssp.selfplay.settle import settle
from ssp.selfplay.settled import Round
from ssp.selfplay.targets import Batches, Targets
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
        self._batches = Batches(cfg.game, cfg.block(self._spec.answerer).batch, cfg.seed)
        self.queues = {role: RolloutQueue(role, *queue_budget(cfg)) for role in cfg.roles}
        self._lineup = lineup(cfg, cast, folder, self._store)
        self._trainer = Trainer(cfg, cast, self._store)
        self._credits = Credits(cfg)
        refill = Refill(cfg, self._credits)
        self._player = RoundPlayer(
            cfg,
            cast,
            self._gate,
            self._store,
            targets,
            self._batches,
            self._lineup,
            refill,
            report,
        )
        self._stages = self._player.stages
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
        self._pace = self._player.pace = Pace(bounds, done=state.step)
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
        if not await self._player.play(this):
            return False
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

    async def _settle(self, this: Round) -> None:
        """Write outcomes, rewards and what is trained into the ledger; then tell everybody who
        follows, in this order."""
        this.settled = settle(self._cfg, this.played, this.asked_by, this.step, self._credits)
        await self._ledger.settle(this.settled.games, this.settled.rows)
        for cause in voids.LATE:
            self._gate.record(cause, this.settled.counts[f"void/{cause}"])
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
            batches = []
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
                await self._ledger.recheck()
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
