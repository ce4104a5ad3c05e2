"""The main loop: rounds of games on one side, the learners on the other, a pace between them.

Owns the order of things and nothing else. Promises: a round is proposed, verified, solved, graded, settled and handed
to the learners; each learner takes batches in round order; every episode ends in one final ledger state. With
staleness bound 0 the two sides alternate, which is synchronous training; there is no second code path. Where questions
are given, nobody proposes and nothing is verified; the rest is the same.
Refuses to know where workers run, what an algorithm is, or how a reward is made.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ssp.base.episode import PROPOSER, SOLVER, TRIED
from ssp.base.errors import Fault, SspError, VoidLimit
from ssp.config import own
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.record.runfolder import RunFolder
from ssp.selfplay.admission import Pace, VoidGate
from ssp.selfplay.batches import Batches
from ssp.selfplay.cast import Cast
from ssp.selfplay.checkpoint import Checkpoints
from ssp.selfplay.curriculum.watch import Watch
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.health.junk import JunkWatch
from ssp.selfplay.health.limits import Collapse, HealthWatch
from ssp.selfplay.league.lineup import Lineup
from ssp.selfplay.learning import Schooling, tickets, whole
from ssp.selfplay.lost import GONE, LearnerLost
from ssp.selfplay.queues import Channel
from ssp.selfplay.records import Game, TrainBatch
from ssp.selfplay.report import Report
from ssp.selfplay.settle import TOO_FEW, settle
from ssp.selfplay.stages import Hand, Stages
from ssp.selfplay.targets import Targets
from ssp.selfplay.transfer.courier import Courier
from ssp.selfplay.turns import Turns
from ssp.selfplay.versions import Published, WeightStore
from ssp.selfplay.workers.activity import STEP
from ssp.telemetry.clock import Clock

TURN = "turn"
"""The track of the pace that keeps finished rounds in order."""


class SelfPlay:
    """One run. `run()` plays until `cfg.steps`, `stop()`, an alarm, or too many voids."""

    def __init__(
        self, cfg: Config, cast: Cast, folder: RunFolder, targets: Targets, report: Report, evaluator: Evaluator
    ):
        cast = Turns(cfg, cast).seated()
        self._cfg, self._cast, self._targets, self._report = cfg, cast, targets, report
        self._roles, self._learners = cfg.roles, learners(cfg)
        self._gate = VoidGate(cfg.void, report.say, self._judges_answer)
        self._store = WeightStore(cast.ledger, Courier(cfg, cast, folder.name, str(folder.path), report.say))
        self._stages = Stages(cfg, cast, self._gate, self._store)
        self._batches = Batches(cfg.game, cfg.solver.batch, cfg.seed)
        self._queues = {name: Channel(crew, cfg.queue.timeout) for name, crew in cast.queues.items()}
        self._checkpoints = Checkpoints(cfg, cast, folder)
        self._lineup = Lineup(cfg, cast, folder, self._store)
        self._schooling = Schooling(cfg, cast, self._store, self._lost)
        self._evaluator = evaluator
        self._watch, self._health = JunkWatch(cfg.referee), HealthWatch(cfg.health, cfg.roles)
        self._curriculum = Watch(cfg, folder, report.say)
        self._pace: Pace
        self._turns: Pace
        self._first = self._cut = self._deaths = 0
        self._why: SspError | None = None
        self._stopping = False

    def stop(self, why: SspError | None = None) -> None:
        """Admit no further round; what is in flight is finished, trained and saved. `why` is raised at the end."""
        self._stopping, self._why = True, self._why or why

    async def run(self) -> None:
        """Play to the end. Raises VoidLimit or JunkAlarm after saving, Collapse after going back to the last good
        checkpoint; any other error propagates as it was raised."""
        while True:
            try:
                await self._restore()
                # A task of its own: groups leave marks of cancellation on the one that they are in.
                await asyncio.create_task(self._play())
                break
            except (LearnerLost, ExceptionGroup) as error:
                if (this := asyncio.current_task()) is not None and this.cancelling():
                    raise asyncio.CancelledError from error  # a group that has an error raises that alone
                await self._go_back(_first(error))
        if not self._stopping:  # someone is waiting for the end
            await self._evaluate(self._pace.done[SOLVER], final=True)
        await self._ledger("check")
        await self._ledger("fold")
        why = self._why or self._gate.verdict()
        if why is not None:
            raise why

    async def _go_back(self, cause: Exception) -> None:
        """Where the run goes on after `cause`: at its last checkpoint, or the last good one; raises what ends it."""
        if isinstance(cause, Collapse):
            spent = self._checkpoints.rollbacks
            step = self._checkpoints.back()
            if self._cfg.health.on_collapse == "stop" or spent >= self._cfg.health.rollbacks:
                await self._ledger("rollback", dict.fromkeys(self._roles, step))
                known = f"went back {spent} times before" if spent else "health.on_collapse=stop"
                raise Collapse(f"{cause} ({known}; the run folder is as it was at step {step})") from cause
            self._report.say(f"{cause} Back to the checkpoint of step {step}, with other draws")
            return
        if not isinstance(cause, LearnerLost):
            raise cause
        self._deaths += 1
        if self._deaths > self._cfg.placement.restarts:
            raise SspError(f"learners died {self._deaths} times: giving up") from cause
        self._report.say(f"{cause}; back to the last checkpoint")

    async def _play(self) -> None:
        """Rounds and learners until no further round is admitted; ends saved."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rounds())
            for learner in self._learners:
                group.create_task(self._train(learner))
        end = self._pace.done[SOLVER]
        if self._checkpoints.saved < end:
            for learner in self._learners:
                await self._save(learner, end)
        if self._pace.over:  # what the void limit cut short has no other end
            await self._ledger("rollback", dict.fromkeys(self._roles, end))

    async def _rounds(self) -> None:
        """Start rounds as pace and void limit allow, at most one more than the larger staleness bound at once."""
        end = self._first
        async with asyncio.TaskGroup() as group:
            for round_ in range(self._first, self._cfg.steps):
                with self._report.waiting("next round", f"{self._roles[0]}'s learner"):
                    await self._pace.admit(self._roles[0], round_)
                try:
                    with self._report.waiting("next round", "fewer voids"):
                        await self._gate.admit()
                except VoidLimit as limit:
                    self.stop(limit)
                if self._stopping:
                    break
                end = round_ + 1
                group.create_task(self._guarded(round_))
        for queue in self._queues.values():
            await queue.close(min(end, self._cut))

    async def _guarded(self, round_: int) -> None:
        """A round that the void limit stops is given up with all later ones; earlier ones are trained and saved."""
        try:
            await self._round(round_)
        except VoidLimit as limit:
            self._cut = min(self._cut, round_)
            await self._give_up(limit)

    async def _give_up(self, limit: VoidLimit) -> None:
        """Stop, and let no round wait for one that will not come."""
        self.stop(limit)
        await self._pace.release()
        await self._turns.release()

    async def _round(self, round_: int) -> None:
        """One round: the game, whole."""
        STEP.set(round_ + 1)
        clock = Clock(self._report.span, f"round-{round_ % self._abreast}")
        proposer = self._store.latest(PROPOSER) if PROPOSER in self._roles else None
        games = await self._open(round_)
        asked = [] if proposer is None else await self._propose(round_, games, proposer, clock)
        with self._report.waiting(clock.track, "solver's learner"):
            await self._pace.admit(SOLVER, round_)
        if self._pace.over:
            self._cut = min(self._cut, round_)
            return
        solver = self._store.latest(SOLVER)
        if proposer is not None:
            await self._stages.verify(round_, asked, solver, clock)
            await self._resample(round_, games, proposer, solver, clock)

        chosen = self._batches.choose(round_, games, self._stages.incarnation)
        refills = [game for game in chosen if game.replayed]
        await self._enter(round_, refills)
        asked_by = None if proposer is None else proposer.version
        tried = self._lineup.graders(round_, chosen, solver, asked_by)
        further = [game for game in tried[0][1] if game.kind == TRIED]
        await self._enter(round_, further)
        refills += further
        for weights, mine in tried:
            await self._stages.solve(round_, mine, weights, clock)
        for weights, mine in tried:
            await self._stages.grade(round_, mine, weights, clock)

        # Rounds are handed over in order: a later one must not fill a queue whose taker waits for this one.
        with self._report.waiting(clock.track, "round before"):
            await self._turns.admit(TURN, round_)
        if self._turns.done[TURN] < round_:
            self._cut = min(self._cut, round_)
            return
        settled = settle(self._cfg, [*games, *refills], asked_by, round_ + 1)
        self._batches.remember(round_, [*games, *refills])
        self._lineup.turn(round_, [*games, *refills], asked_by, solver.version)
        kept = self._batches.state(), self._targets.state(round_), self._lineup.state()
        self._checkpoints.remember(round_ + 1, *kept)
        await self._ledger("together", [("judge_games", settled.games), ("advance", settled.rows)])
        self._gate.record(TOO_FEW, settled.counts[f"void/{TOO_FEW}"])
        curriculum = self._curriculum.round(round_ + 1, [*games, *refills])
        self._report.round(round_ + 1, games, refills, settled, self._gate.news(), clock, curriculum)
        alarm = (None if proposer is None else self._watch.see([*games, *further])) or self._curriculum.fatal
        if alarm is not None:
            self.stop(alarm)
        for role in self._roles:
            items = settled.items[role]
            rewards = [item.reward for item in items]
            figures = {**settled.figures(role), **self._lineup.figures(role)}
            batch = TrainBatch(role, round_ + 1, items, rewards, settled.nbytes[role], figures)
            with self._report.waiting(clock.track, f"room in queue {role}"):
                await self._queues[role].put(round_, tickets(batch))
        await self._turns.advance(TURN)

    async def _open(self, round_: int) -> list[Game]:
        """The next games of the data, now this round's and in the ledger."""
        games = self._targets.take(round_, self._stages.incarnation)
        await self._enter(round_, games)
        return games

    async def _enter(self, round_: int, games: list[Game]) -> None:
        """Games of a round, new in the ledger."""
        of_all = {"round": round_ + 1, "incarnation": self._stages.incarnation}
        rows = [{"id": g.id, "target": g.target, "kind": g.kind, "number": g.number, **of_all} for g in games]
        await self._ledger("create_games", rows)

    async def _propose(
        self, round_: int, games: list[Game], proposer: Published, clock: Clock, again: int = 0
    ) -> list[Hand]:
        """Have a question written for each game, by the newest proposer or a past one; who wrote which."""
        asked = self._lineup.askers(round_, games, proposer)
        for weights, mine in asked:
            await self._stages.propose(round_, mine, weights, clock, again)
        return asked

    async def _resample(
        self, round_: int, games: list[Game], proposer: Published, solver: Published, clock: Clock
    ) -> None:
        """Ask about further targets, by the same weights, while too few questions are valid; adds to `games`."""
        for again in range(1, self._batches.extra + 1):
            if self._batches.enough(games):
                return
            await self._gate.admit()
            more = await self._open(round_)
            asked = await self._propose(round_, more, proposer, clock, again)
            await self._stages.verify(round_, asked, solver, clock, again)
            games += more

    async def _train(self, learner: str) -> None:
        """One learner: take the next batch of each of its roles, update, publish, commit, tell, save; then go on."""
        roles = self._learners[learner]
        while True:
            round_ = self._pace.done[learner]
            STEP.set(round_ + 1)
            batches: list[TrainBatch] = []
            for role in roles:
                with self._report.waiting(f"learner-{learner}-0", "batch"):
                    blocks = await self._queues[role].take(round_)
                if blocks is None:
                    return
                batches.append(whole(blocks))
            learned = await self._schooling.learn(*batches)
            stats = {batch.role: {**batch.figures, **learned[batch.role]} for batch in batches}
            step = round_ + 1
            for role in roles:
                await self._queues[role].ack(round_)
                await self._schooling.sweep(role, self._queues[role])
                stats[role]["health/alarms"] = self._examine(role, step, stats[role])
            if SOLVER in roles:
                await self._evaluate(step)
            if self._report.learned(step, stats):
                await self._ledger("check")
            await self._publish_members(learner, step)
            if self._checkpoints.due(step):  # last: a run that goes on from this step has all its rows
                await self._save(learner, step)
            for role in roles:
                await self._pace.advance(role)

    def _lost(self, round_: int, games: list[int], episodes: int) -> None:
        """A learner did not get episodes of `round_`: a round that begins later plays their games (numbers) again."""
        self._gate.record(GONE, episodes)
        self._targets.lose(round_, games)
        self._report.say(
            f"{episodes} episodes of step {round_ + 1} are gone with their node, and void; {len(games)} games again"
        )

    def _examine(self, role: str, step: int, stats: dict[str, float]) -> float:
        """Let the figures of an update be judged; the number of alarms that last. Collapse, unless it is only said, or the
        run is ending anyway (by the junk alarm, which knows more)."""
        found = self._health.see(role, step, stats)
        ends = self._cfg.health.on_collapse != "warn" and not self._stopping
        fatal = [alarm.text for alarm in found if alarm.collapse and ends]
        if fatal:
            raise Collapse(" ".join(fatal))
        for alarm in found:
            self._report.say(alarm.text)
        if not self._health.suspects(role):  # what was played with these weights was well
            self._checkpoints.vouch(role, step - 1 - getattr(self._cfg.schedule.max_staleness, role))
        return float(self._health.alarms(role))

    async def _evaluate(self, step: int, final: bool = False) -> None:
        started = time.perf_counter()
        scores: dict[str, float] = {}
        try:
            if self._evaluator.due(step, final):
                scores |= await self._evaluator.run(step, self._store.latest(SOLVER), self._stages, final)
            if self._evaluator.anchor_due(step, final):
                anchor = await self._schooling.anchor(step)
                scores |= await self._evaluator.run_anchor(step, anchor, self._stages, final)
        except VoidLimit as limit:
            await self._give_up(limit)
            return
        if scores:
            self._report.evaluated(step, scores, time.perf_counter() - started)

    async def _restore(self) -> None:
        """Put learners, ledger, pool and cursor where the last consistent checkpoint is, and publish its weights."""
        state = await self._checkpoints.restore()
        self._first, self._cut = state.step, self._cfg.steps
        self._stages.incarnation = await self._ledger("next_version", "run")
        self._schooling.incarnation = self._stages.incarnation
        self._stages.redraws = state.rollbacks
        self._health.restore(state.health)
        self._batches.restore(state.pool)
        self._targets.restore(state.cursor)
        for queue in self._queues.values():
            await queue.clear()
        bounds = {role: getattr(self._cfg.schedule.max_staleness, role) for role in self._roles}
        self._pace, self._turns = Pace(bounds, done=state.step), Pace({TURN: 0}, done=state.step)
        self._abreast = max(bounds.values()) + 1
        for learner in self._learners:
            await self._schooling.start(learner, state.step)
        newest = {role: self._store.latest(role).version for role in self._roles}
        await self._lineup.begin(state.step, state.versions, state.league, state.rollbacks, newest)
        for learner in self._learners:
            await self._publish_members(learner, state.step)
        if self._checkpoints.saved < 0:
            for learner in self._learners:
                await self._save(learner, 0)
            await self._evaluate(0, final=True)
        self._curriculum.restart(state.step)
        self._report.restart(state.step)

    def _meta(self, learner: str) -> dict[str, Any]:
        spoken = {**protocols.get(self._cfg.protocol).mark, **own.mark(self._cfg)}
        return {"role": learner, **spoken, "incarnation": self._stages.incarnation}

    async def _publish_members(self, learner: str, step: int) -> None:
        versions = {role: self._store.latest(role).version for role in self._learners[learner]}
        await self._lineup.published(learner, step, versions, self._meta(learner))

    async def _save(self, learner: str, step: int) -> None:
        meta = self._meta(learner)
        roles = self._learners[learner]
        versions = {role: self._store.latest(role).version for role in roles}
        health = {role: self._health.state(role) for role in roles}
        await self._checkpoints.save(learner, step, versions, meta, health, self._targets.owed(step))
        self._lineup.tidy(self._checkpoints.leagues)

    async def _judges_answer(self) -> bool:
        """Whether a round can be judged: without a judge only exact answers count, and training would learn from these."""
        try:
            return bool(await self._cast.judges.call(0, "answers"))
        except Fault:
            return False

    async def _ledger(self, method: str, *args: Any) -> Any:
        return await self._cast.ledger.call(0, method, *args)


def _first(error: Exception) -> Exception:
    """What went wrong, out of the groups that tasks wrap it in; a lost learner only when nothing else did."""
    if not isinstance(error, ExceptionGroup):
        return error
    found = [_first(inner) for inner in error.exceptions]
    return next((inner for inner in found if not isinstance(inner, LearnerLost)), found[0])
