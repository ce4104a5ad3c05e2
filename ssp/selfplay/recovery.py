"""Checkpoints of a run, and going back to them: the one way in which a run goes on after a resume,
a lost learner or a collapse; and how often it may.

Promises that state.json always names complete folders of the same step (each is written aside and
renamed, state.json last), that all that it holds beside weights (replay pool, data cursor, lineup,
health) is restored together, and, while a collapse is watched for, that a set whose weights later
figures confirmed stays on the disk."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from ssp.base.errors import InputError, InvariantError, SspError
from ssp.config import own
from ssp.config.crews import bound, learners
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.record.runfolder import RunFolder, check_space
from ssp.selfplay.best import best
from ssp.selfplay.checkpoint import SavedState, read
from ssp.selfplay.credit import Credits
from ssp.selfplay.crews.cast import Cast, LearnerLost
from ssp.selfplay.health import Collapse, HealthWatch
from ssp.selfplay.lineup import Lineup
from ssp.selfplay.report import Report
from ssp.selfplay.settled import Round
from ssp.selfplay.targets import Batches, Targets

SAVE_BYTES = 50_000_000
"""Free bytes that a save asks for first; a bigger model's learner needs more and fails with its own
error."""


class Recovery:
    """Saves and restores the learners of one run together, and judges the health that their
    checkpoints hang on. `parts`: what has a state beside weights. `saved`: the step of the last
    checkpoint, -1 without one."""

    def __init__(
        self,
        cfg: Config,
        cast: Cast,
        folder: RunFolder,
        parts: tuple[Batches, Targets, Lineup, Credits],
        report: Report,
    ) -> None:
        self._cfg, self._cast, self._folder, self._report = cfg, cast, folder, report
        self._batches, self._targets, self._lineup, self._credits = parts
        # Of today's code, which the players have: a file that is written anew while they play
        # changes nothing of it.
        self._spoken = {**protocols.get(cfg.protocol).mark, **own.mark(cfg)}
        self._health = HealthWatch(cfg.health, cfg.roles, cfg.spec.answerer)
        self._watched = cfg.health.on_collapse != "warn"
        self._half: dict[int, SavedState] = {}
        self._kept: dict[int, dict[str, Any]] = {}
        self._written: dict[str, int] = {}
        self._states: list[SavedState] = []  # the good one, then those that wait to be confirmed
        self._confirmed: dict[str, int] = {}
        self._lost = 0
        self.incarnation, self.saved = 0, -1

    async def restore(self) -> SavedState:
        """Put learners, ledger, health, pool and cursor where state.json says; without one, at step
        0. LearnerLost."""
        for forgotten in (self._half, self._kept, self._confirmed):
            forgotten.clear()
        found = read(self._folder, self._cfg.roles)
        state, self.saved = (found, found.step) if found else (SavedState(), -1)
        self._states = [SavedState(**state.good)] if state.good and self._watched else []
        self._states += [found] if found else []
        for learner in learners(self._cfg) if state.folders else ():
            await self._cast.learner(learner).load(str(self._folder.path / state.folders[learner]))
        ledger = self._cast.ledger.first
        await ledger.rollback(dict.fromkeys(self._cfg.roles, state.step))
        self._folder.forget(state.step)
        self.incarnation = await ledger.next_version("run")
        self._health.restore(state.health)
        self._batches.restore(state.pool)
        self._targets.restore(state.cursor)
        self._credits.restore(state.credit)
        return state

    async def handle(self, cause: Exception) -> None:
        """Decide whether the run survives `cause`. After a collapse the last good checkpoint
        becomes the one that `restore` reads, else the newest one stays it. Raises what ends the
        run."""
        if isinstance(cause, Collapse):
            good, spent = self._good(), self._rollbacks
            if good is None:
                raise InvariantError("a run goes back only after its first checkpoint")
            self._folder.write_state(asdict(replace(good, rollbacks=spent + 1, good={})))
            if self._cfg.health.on_collapse == "stop" or spent >= self._cfg.health.rollbacks:
                await self._cast.ledger.first.rollback(dict.fromkeys(self._cfg.roles, good.step))
                known = f"went back {spent} times before" if spent else "health.on_collapse=stop"
                raise Collapse(
                    f"{cause} ({known}; the run folder is as it was at step {good.step})"
                ) from cause
            self._report.say(
                f"{cause} Back to the checkpoint of step {good.step}, with other draws"
            )
            return
        if not isinstance(cause, LearnerLost):
            raise cause
        self._lost += 1
        if self._lost > self._cfg.placement.restarts:
            raise SspError(f"learners died {self._lost} times: giving up") from cause
        self._report.say(f"{cause}; back to the last checkpoint")

    def settled(self, this: Round) -> None:
        """Keep what a checkpoint of this round's update will hold, in the order of rounds. The run
        cannot end at an earlier step: of those, only what is saved on the way is kept."""
        pool, cursor = self._batches.state(), self._targets.state(this.number)
        self._kept = {step: kept for step, kept in self._kept.items() if self.due(step)}
        self._kept[this.step] = {"pool": pool, "cursor": cursor, "league": self._lineup.state()}
        self._kept[this.step]["credit"] = self._credits.state()

    def examine(self, step: int, by_role: Mapping[str, dict[str, float]], stopping: bool) -> None:
        """Judge the figures of update `step`, and add the number of alarms that last. Collapse,
        unless it is only said, or the run is `stopping` anyway (by the junk alarm, which knows
        more)."""
        for role, figures in by_role.items():
            found = self._health.see(role, step, figures)
            ends = self._cfg.health.on_collapse != "warn" and not stopping
            if fatal := [alarm.text for alarm in found if alarm.collapse and ends]:
                raise Collapse(" ".join(fatal))
            for alarm in found:
                self._report.say(alarm.text)
            if not self._health.suspects(role):  # what was played with these weights was well
                played = step - 1 - bound(self._cfg, role)
                self._confirmed[role] = max(self._confirmed.get(role, played), played)
            figures["health/alarms"] = float(self._health.alarms(role))

    def due(self, step: int) -> bool:
        """True for steps that are saved while the run goes on (its last step is saved at its
        end)."""
        return self._cfg.save.every > 0 and step % self._cfg.save.every == 0

    async def save(self, learner: str, step: int, versions: Mapping[str, int]) -> None:
        """Save one learner at `step`, with the `versions` of the roles that it trains; the last one
        of them lets state.json name them all, and old folders go. LearnerLost."""
        version = versions[learner]
        path = self._folder.checkpoint(learner, version)
        # one that published nothing since is on disk already
        if self._written.get(learner) != version:
            check_space(self._folder.path, SAVE_BYTES)
            # of those that died in a save: no state names it
            for left in (path, *path.parent.glob("v*.tmp-*")):
                shutil.rmtree(left, ignore_errors=True)
            meta = {**self.meta(learner), "version": version, "run_step": step}
            await self._cast.learner(learner).save(str(path), meta)
            self._written[learner] = version
        state = self._half.setdefault(step, SavedState(step))
        state.folders |= dict.fromkeys(versions, self._folder.relative(path))
        state.versions |= versions
        state.health |= {role: known for role in versions if (known := self._health.state(role))}
        if len(state.folders) == len(self._cfg.roles):
            await self._name(
                replace(self._half.pop(step), rollbacks=self._rollbacks, **self._kept.get(step, {}))
            )
        self._lineup.tidy(self._lineups())

    def meta(self, learner: str) -> dict[str, object]:
        """What is written beside weights."""
        return {"role": learner, **self._spoken, "incarnation": self.incarnation}

    async def _name(self, state: SavedState) -> None:
        """Let state.json say that all learners are saved."""
        self._kept = {later: kept for later, kept in self._kept.items() if later > state.step}
        good = self._good()
        self._states = [*self._states, state] if self._watched else [state]
        if self._watched and good is not None:
            state.good = asdict(replace(good, good={}))
        await self._cast.ledger.first.keep()
        self._folder.write_state(asdict(state))
        # A learner that runs ahead has saved steps that the next pairs will name: these stay too.
        waiting = [folder for waits in self._states for folder in waits.folders.values()]
        if (found := best(self._folder, self._cfg.roles[-1])) is not None:
            waiting.append(self._folder.relative(found))
        self._folder.prune(self._cfg.save.keep + len(self._half), waiting)
        self.saved = state.step

    @property
    def _rollbacks(self) -> int:
        return self._states[-1].rollbacks if self._states else 0

    def _good(self) -> SavedState | None:
        """The newest saved state that all roles confirm; else the oldest that is known."""
        proven = min((self._confirmed.get(role, -1) for role in self._cfg.roles), default=-1)
        while len(self._states) > 1 and self._states[1].step <= proven:
            self._states.pop(0)
        return self._states[0] if self._states else None

    def _lineups(self) -> list[dict[str, Any]]:
        """The lineup in every state to which the run may go back, and in those that may still be
        saved."""
        known = [
            *(state.league for state in self._states),
            *(kept["league"] for kept in self._kept.values()),
        ]
        for step in self._folder.steps():
            with suppress(InputError):  # of a copy that is broken nothing goes on
                known.append((read(self._folder, step=step) or SavedState()).league)
        return known
