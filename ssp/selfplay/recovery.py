"""Going back: the one way in which a run goes on after a resume, a lost learner or a collapse.

Owns what a checkpoint holds beside weights (replay pool, data cursor, league, health), when it is due, and how often a run
may go back. Promises that all of it is restored together. Refuses to know rounds.
"""

from __future__ import annotations

from collections.abc import Mapping

from ssp.base.errors import SspError
from ssp.config import own
from ssp.config.crews import bound
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.record.runfolder import RunFolder
from ssp.selfplay.batches import Batches
from ssp.selfplay.checkpoint import Checkpoints, State
from ssp.selfplay.crews.cast import Cast, LearnerLost
from ssp.selfplay.events import Round, Update
from ssp.selfplay.health.limits import Collapse, HealthWatch
from ssp.selfplay.league.matchmaker import Matchmaker
from ssp.selfplay.report import Report
from ssp.selfplay.targets import Targets


class Recovery:
    """Checkpoints of one run, and the judgement of its health that they hang on."""

    def __init__(
        self,
        cfg: Config,
        cast: Cast,
        folder: RunFolder,
        batches: Batches,
        targets: Targets,
        league: Matchmaker,
        report: Report,
    ) -> None:
        self._cfg, self._ledger, self._report = cfg, cast.ledger.first, report
        self._batches, self._targets, self._league = batches, targets, league
        self._checkpoints = Checkpoints(cfg, cast, folder)
        self._health = HealthWatch(cfg.health, cfg.roles)
        self._lost = 0
        self.incarnation = 0

    @property
    def saved(self) -> int:
        """The step of the last checkpoint, -1 without one."""
        return self._checkpoints.saved

    async def restore(self) -> State:
        """Put learners, ledger, health, pool and cursor where the last consistent checkpoint is. LearnerLost."""
        state = await self._checkpoints.restore()
        self.incarnation = await self._ledger.next_version("run")
        self._health.restore(state.health)
        self._batches.restore(state.pool)
        self._targets.restore(state.cursor)
        return state

    async def go_back(self, cause: Exception) -> None:
        """Where the run goes on after `cause`: at its last checkpoint, or the last good one; raises what ends it."""
        if isinstance(cause, Collapse):
            spent = self._checkpoints.rollbacks
            step = self._checkpoints.back()
            if self._cfg.health.on_collapse == "stop" or spent >= self._cfg.health.rollbacks:
                await self._ledger.rollback(dict.fromkeys(self._cfg.roles, step))
                known = f"went back {spent} times before" if spent else "health.on_collapse=stop"
                raise Collapse(f"{cause} ({known}; the run folder is as it was at step {step})") from cause
            self._report.say(f"{cause} Back to the checkpoint of step {step}, with other draws")
            return
        if not isinstance(cause, LearnerLost):
            raise cause
        self._lost += 1
        if self._lost > self._cfg.placement.restarts:
            raise SspError(f"learners died {self._lost} times: giving up") from cause
        self._report.say(f"{cause}; back to the last checkpoint")

    def settled(self, this: Round) -> None:
        """Keep what a checkpoint of this round's update will hold."""
        kept = self._batches.state(), self._targets.state(this.number), self._league.state()
        self._checkpoints.remember(this.step, *kept)

    def examine(self, update: Update, stopping: bool) -> None:
        """Judge the figures of an update, and add the number of alarms that last. Collapse, unless it is only said, or the
        run is `stopping` anyway (by the junk alarm, which knows more)."""
        for role, figures in update.figures.items():
            found = self._health.see(role, update.step, figures)
            ends = self._cfg.health.on_collapse != "warn" and not stopping
            if fatal := [alarm.text for alarm in found if alarm.collapse and ends]:
                raise Collapse(" ".join(fatal))
            for alarm in found:
                self._report.say(alarm.text)
            if not self._health.suspects(role):  # what was played with these weights was well
                self._checkpoints.confirm(role, update.step - 1 - bound(self._cfg, role))
            figures["health/alarms"] = float(self._health.alarms(role))

    def due(self, step: int) -> bool:
        """See `Checkpoints.due`."""
        return self._checkpoints.due(step)

    async def save(self, learner: str, step: int, versions: Mapping[str, int]) -> None:
        """Save one learner at `step`, with the versions of its roles. LearnerLost."""
        health = {role: self._health.state(role) for role in versions}
        await self._checkpoints.save(learner, step, versions, self.meta(learner), health)
        self._league.tidy(self._checkpoints.leagues)

    def meta(self, learner: str) -> dict[str, object]:
        """What is written beside weights."""
        spoken = {**protocols.get(self._cfg.protocol).mark, **own.mark(self._cfg)}
        return {"role": learner, **spoken, "incarnation": self.incarnation}
