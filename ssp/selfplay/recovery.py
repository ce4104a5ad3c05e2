"""Checkpoints of a run, and the way back to them after a resume, a lost learner or a collapse, with
the number of times that a run may go back.

Promises that state.json always names complete folders of the same step: each is written aside and
renamed, state.json last. All that it holds beside weights (replay pool, data cursor, lineup,
health) is restored together. While a collapse is watched for, a set of checkpoints that later
figures confirmed stays on the disk."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from ssp.base.errors import InputError, InvariantError, SspError
from ssp.base.values import Values
from ssp.config import own
from ssp.config.crews import bound, learners
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.record.runfolder import RunFolder, check_space
from ssp.selfplay.best import Evaluations
from ssp.selfplay.checkpoint import SavedState, read
from ssp.selfplay.credit import Credits
from ssp.selfplay.crews.cast import Cast, LearnerLost
from ssp.selfplay.health import Collapse, HealthWatch
from ssp.selfplay.lineup import Lineup
from ssp.selfplay.report import Report
from ssp.selfplay.settled import Round
from ssp.selfplay.targets import Batches, Targets

SAVE_BYTES = 50_000_000
"""Free bytes that a save asks for first. The learner of a bigger model needs more, and fails with
its own error."""


class Recovery:
    """Saves and restores the learners of one run together, and judges the health that decides
    which checkpoint is good. `parts`: what has a state beside weights. `saved`: the step of the
    last checkpoint, -1 without one."""

    def __init__(
        self,
        cfg: Config,
        cast: Cast,
        folder: RunFolder,
        parts: tuple[Batches, Targets, Lineup, Credits],
        report: Report,
    ) -> None:
        self._cfg = cfg
        self._cast = cast
        self._folder = folder
        self._report = report
        self._batches, self._targets, self._lineup, self._credits = parts
        # The code as it is now, which the players have read: a file that is written anew while they
        # play does not change them.
        self._spoken = {**protocols.get(cfg.protocol).mark, **own.mark(cfg)}
        self._health = HealthWatch(cfg.health, cfg.roles, cfg.spec.answerer)
        self._watched = cfg.health.on_collapse != "warn"
        self._evaluations = Evaluations(folder)
        self._half: dict[int, SavedState] = {}
        self._kept: dict[int, dict[str, Any]] = {}
        self._written: dict[str, int] = {}
        self._states: list[SavedState] = []  # the good one, then those that wait to be confirmed
        self._confirmed: dict[str, int] = {}
        self._lost = 0
        self.incarnation = 0
        self.saved = -1

    async def restore(self) -> SavedState:
        """Put learners, ledger, health, pool and cursor where state.json says; without one, at step
        0. LearnerLost."""
        for forgotten in (self._half, self._kept, self._confirmed):
            forgotten.clear()
        state = SavedState()
        self.saved = -1
        self._states = []
        saved = read(self._folder, self._cfg.roles)
        if saved is not None:
            state = saved
            self.saved = saved.step
            if state.good and self._watched:
                self._states.append(SavedState(**state.good))
            self._states.append(state)
        if state.folders:
            for learner in learners(self._cfg):
                path = self._folder.path / state.folders[learner]
                await self._cast.learner(learner).load(str(path))
        ledger = self._cast.ledger.first
        await ledger.rollback(dict.fromkeys(self._cfg.roles, state.step))
        self._folder.forget(state.step)
        self.incarnation = await ledger.next_version("run")
        self._health.restore(state.health)
        self._batches.restore(state.pool)
        self._targets.restore(state.cursor)
        self._credits.restore(state.credit)
        return state

    async def handle(self, error: Exception) -> None:
        """Decide whether the run survives an error, and raise what ends it. After a collapse
        `restore` will read the last good checkpoint, else the newest one."""
        cause = _cause(error)
        if isinstance(cause, Collapse):
            await self._back_from(cause)
        elif isinstance(cause, LearnerLost):
            self._lost += 1
            if self._lost > self._cfg.placement.restarts:
                raise SspError(f"learners died {self._lost} times: giving up") from cause
            self._report.say(f"{cause}; back to the last checkpoint")
        else:
            raise cause

    async def _back_from(self, collapse: Collapse) -> None:
        """Let state.json name the last good checkpoint. Collapse when the run may not go on."""
        good = self._good()
        spent = self._rollbacks
        if good is None:
            raise InvariantError("a run goes back only after its first checkpoint")
        self._folder.write_state(asdict(replace(good, rollbacks=spent + 1, good={})))
        if self._cfg.health.on_collapse == "stop" or spent >= self._cfg.health.rollbacks:
            await self._cast.ledger.first.rollback(dict.fromkeys(self._cfg.roles, good.step))
            known = f"went back {spent} times before" if spent else "health.on_collapse=stop"
            left = f"the run folder is as it was at step {good.step}"
            raise Collapse(f"{collapse} ({known}; {left})") from collapse
        back = f"Back to the checkpoint of step {good.step}, with other draws"
        self._report.say(f"{collapse} {back}")

    def settled(self, this: Round) -> None:
        """Keep what a checkpoint of this round's update will hold; called in the order of rounds.
        The run cannot end at an earlier step: of those, only the ones to be saved are kept."""
        self._kept = {step: kept for step, kept in self._kept.items() if self.due(step)}
        self._kept[this.step] = {
            "pool": self._batches.state(),
            "cursor": self._targets.state(this.number),
            "league": self._lineup.state(),
            "credit": self._credits.state(),
        }

    def examine(self, step: int, by_role: Mapping[str, Values], stopping: bool) -> None:
        """Judge the figures of update `step`, and add to them the number of alarms that last.

        Raises Collapse, unless `health.on_collapse` only warns or the run is `stopping` anyway (by
        the junk alarm, which knows more)."""
        for role, figures in by_role.items():
            alarms = self._health.see(role, step, figures)
            fatal = [alarm.text for alarm in alarms if alarm.collapse]
            if fatal and self._watched and not stopping:
                raise Collapse(" ".join(fatal))
            for alarm in alarms:
                self._report.say(alarm.text)
            if not self._health.suspects(role):  # the weights that played this round were sound
                played = step - 1 - bound(self._cfg, role)
                self._confirmed[role] = max(self._confirmed.get(role, played), played)
            figures["health/alarms"] = float(self._health.alarms(role))

    def due(self, step: int) -> bool:
        """Whether `step` is saved while the run goes on; the last step is saved at the end."""
        return self._cfg.save.every > 0 and step % self._cfg.save.every == 0

    async def save(self, learner: str, step: int, versions: Mapping[str, int]) -> None:
        """Save one learner at `step`, with the `versions` of the roles that it trains. After the
        last learner state.json names them all, and old folders go. LearnerLost."""
        version = versions[learner]
        path = self._folder.checkpoint(learner, version)
        # A learner that published nothing since is on the disk already.
        if self._written.get(learner) != version:
            check_space(self._folder.path, SAVE_BYTES)
            # What is left of a save that died: no state names it.
            for left in (path, *path.parent.glob("v*.tmp-*")):
                shutil.rmtree(left, ignore_errors=True)
            meta = {**self.meta(learner), "version": version, "run_step": step}
            await self._cast.learner(learner).save(str(path), meta)
            self._written[learner] = version
        state = self._half.setdefault(step, SavedState(step))
        state.folders |= dict.fromkeys(versions, self._folder.relative(path))
        state.versions |= versions
        state.health |= {role: self._health.state(role) for role in versions}
        if len(state.folders) == len(self._cfg.roles):
            del self._half[step]
            kept = self._kept.get(step, {})
            await self._name(replace(state, rollbacks=self._rollbacks, **kept))
        self._lineup.tidy(self._lineups())

    def meta(self, learner: str) -> dict[str, object]:
        """The facts that are written beside weights."""
        return {"role": learner, **self._spoken, "incarnation": self.incarnation}

    async def _name(self, state: SavedState) -> None:
        """Let state.json name a state whose learners are all saved."""
        self._kept = {later: kept for later, kept in self._kept.items() if later > state.step}
        good = self._good()
        self._states = [*self._states, state] if self._watched else [state]
        if self._watched and good is not None:
            state.good = asdict(replace(good, good={}))
        await self._cast.ledger.first.keep()
        self._folder.write_state(asdict(state))
        # A learner that runs ahead has saved steps that the next states will name: these stay too.
        needed = [path for waits in self._states for path in waits.folders.values()]
        best_path = self._evaluations.best(self._cfg.roles[-1])
        if best_path is not None:
            needed.append(self._folder.relative(best_path))
        self._folder.prune(self._cfg.save.keep + len(self._half), needed)
        self.saved = state.step

    @property
    def _rollbacks(self) -> int:
        return self._states[-1].rollbacks if self._states else 0

    def _good(self) -> SavedState | None:
        """The newest saved state that all roles confirm; else the oldest one."""
        proven = min(self._confirmed.get(role, -1) for role in self._cfg.roles)
        while len(self._states) > 1 and self._states[1].step <= proven:
            self._states.pop(0)
        return self._states[0] if self._states else None

    def _lineups(self) -> list[dict[str, Any]]:
        """The lineup of every state to which the run may go back or that may still be saved."""
        lineups = [state.league for state in self._states]
        lineups += [kept["league"] for kept in self._kept.values()]
        for step in self._folder.steps():
            with suppress(InputError):  # no run goes on from a broken copy
                state = read(self._folder, step=step)
                if state is not None:
                    lineups.append(state.league)
        return lineups


def _cause(error: Exception) -> Exception:
    """The error inside the groups that tasks wrap it in; a lost learner only where there is no
    other."""
    if not isinstance(error, ExceptionGroup):
        return error
    causes = [_cause(inner) for inner in error.exceptions]
    others = [cause for cause in causes if not isinstance(cause, LearnerLost)]
    return (others or causes)[0]
