"""Who follows a run: league, replay pool, curriculum, junk watch, report, evaluation, checkpoints, each told in this order.
An alarm ends a run between rounds; nothing else that they find influences one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ssp.record.ledger.writer import LedgerWriter
from ssp.selfplay.checkpoint import State
from ssp.selfplay.curriculum.figures import Watch
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.health import JunkWatch
from ssp.selfplay.league.matchmaker import Matchmaker
from ssp.selfplay.records import Published
from ssp.selfplay.recovery import Recovery
from ssp.selfplay.report import Report
from ssp.selfplay.settle import Round, Update
from ssp.selfplay.stages import Stages
from ssp.selfplay.targets import Batches
from ssp.selfplay.training import Trainer


@dataclass
class Followers:
    """Everybody who hears of what happened."""

    ledger: LedgerWriter
    batches: Batches
    league: Matchmaker
    recovery: Recovery
    curriculum: Watch
    junk: JunkWatch
    report: Report
    evaluator: Evaluator

    async def started(self, state: State, versions: Mapping[str, Mapping[str, int]]) -> None:
        """Play begins after `state`, whose weights have just been published under these versions, by learner."""
        newest = {role: number for mine in versions.values() for role, number in mine.items()}
        await self.league.begin(state.versions, state.league, state.rollbacks, newest)
        for learner, mine in versions.items():
            await self.league.published(learner, state.step, mine, self.recovery.meta(learner))
        self.curriculum.restart(state.step)

    def settled(self, this: Round, voids: Mapping[str, int]) -> None:
        """A round is settled, in the order of rounds. `voids`: by cause, since the last one."""
        self.batches.remember(this.number, this.played)
        self.league.settled(this)
        self.recovery.settled(this)
        this.figures |= self.curriculum.round(this.step, this.played)
        self.report.round(this, voids)
        if this.proposer is not None:
            this.alarm = self.junk.see([game for game in this.played if game.number >= 0])

    async def updated(self, update: Update) -> None:
        """An update is published and committed."""
        if self.report.learned(update.step, update.figures):
            await self.ledger.check()
        await self.league.published(update.learner, update.step, update.versions, self.recovery.meta(update.learner))
        if self.recovery.due(update.step):  # last: a run that goes on from this step has all its rows
            await self.recovery.save(update.learner, update.step, update.versions)

    async def evaluate(self, step: int, solver: Published, stages: Stages, trainer: Trainer, final: bool) -> None:
        """Evaluate the solver after `step`, where that is due. VoidLimit."""
        started = time.perf_counter()
        if scores := await self.evaluator.run(step, final, solver, trainer.anchor, stages):
            self.report.evaluated(step, scores, time.perf_counter() - started)
