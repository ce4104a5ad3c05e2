"""Checkpoints of a run: a consistent set of learners (the pair, or the solver alone), and what it takes to go on.

Owns when a set is complete and what state.json says. Promises that state.json always names complete folders of the same
step, one a role that plays, the same one for roles that share a policy (each is written aside and renamed, state.json
last), that going back to it is one operation, used for a resumed run, a dead learner and a collapse alike, and, while a
collapse is watched for, that a set whose weights later figures confirmed stays on the disk.
Refuses to know what is inside a learner's folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ssp.base.errors import InputError, InvariantError
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.record import episodes as transcripts
from ssp.record.ledger import Ledger
from ssp.record.manifest import check_files, read_record, state_digest
from ssp.record.runfolder import STEP, RunFolder, step_of
from ssp.selfplay.best import best
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.league import matchmaker
from ssp.selfplay.targets import Targets
from ssp.selfplay.workers import build

SAVE_BYTES = 50_000_000
"""Free bytes that a save asks for first; a bigger model's learner needs more and fails with its own error."""


@dataclass
class State:
    """What state.json holds: the step all learners are at, their folders and versions, replay pool and data cursor, what
    is known of each role's health, and how often the run went back after a collapse. `good`: the newest state whose
    weights have shown no sign of one; empty when it is this one, or nobody watches. `league`: see `Matchmaker.state`."""

    step: int = 0
    folders: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    pool: list[dict[str, Any]] = field(default_factory=list)
    cursor: dict[str, Any] = field(default_factory=lambda: {"next": 0, "open": []})
    health: dict[str, dict[str, Any]] = field(default_factory=dict)
    rollbacks: int = 0
    good: dict[str, Any] = field(default_factory=dict)
    league: dict[str, Any] = field(default_factory=dict)


def read(folder: RunFolder, roles: Sequence[str] = (), step: int | None = None) -> State | None:
    """What state.json holds, or held at `step`; None without one. InputError when it is not as it was written, or names
    other folders than the roles' (without `roles`: whoever has one)."""
    found = folder.read_state(step)
    if found is None:
        return None
    written = found.pop("sha256", None)
    roles = roles or list(found["folders"])
    wrong = sorted({*found} ^ {entry.name for entry in fields(State)})
    if not wrong and not set(roles) == set(found["folders"]) == set(found["versions"]):
        wrong = ["folders"]
    if not wrong and written != state_digest(found):
        wrong = ["its sha256"]
    if wrong:
        rule = "state.json must be as it was written"
        raise InputError(rule, f"{folder.state}: {', '.join(wrong)}", "restore the file, or start a new run")
    return State(**found)


def differences(folder: RunFolder, state: State, ledger: Ledger) -> list[str]:
    """What the checkpoints of a state say otherwise of themselves (`ssp.json`), and the ledger of their updates."""
    found = []
    for path in dict.fromkeys(state.folders.values()):
        roles = [role for role, its in state.folders.items() if its == path]
        record = read_record(folder.absolute(path))
        at, updates, live = record.get("run_step"), record.get("step"), ledger.updates(roles, state.step)
        if record.get("version") not in [state.versions[role] for role in roles]:
            found.append(
                f"state.json names {path} for version {state.versions[roles[-1]]}, it is {record.get('version')}"
            )
        if not isinstance(at, int) or at > state.step:
            found.append(f"state.json says step {state.step}, {path} is of step {at}")
        if isinstance(updates, int) and updates != live:
            found.append(f"{path} contains {updates} updates, the ledger's commits up to step {state.step} are {live}")
    return found


def check_resumable(folder: RunFolder, cfg: Config, targets: Targets) -> list[str]:
    """Everything that a resumed run needs of its folder, before anything starts; what it lacks and can do without.
    InputError names what is wrong, and which checkpoints to go on from instead."""
    step = step_of(cfg.resume)
    try:
        ledger = Ledger(folder.ledger, readonly=True)
    except InputError as error:
        raise InputError(error.rule, error.found, "restore it, or start a new run") from error
    try:
        lost = transcripts.damaged(folder.episodes, ledger.placed(), whole=False)
        state = _sound(folder, cfg, ledger, step)
    except InputError as error:
        whole = [other for other in folder.steps() if other != step and _is_sound(folder, cfg, ledger, other)]
        if not whole:
            raise
        kept = ", ".join(map(str, whole))
        next_step = f"go on from a step that is kept and whole ({kept}): resume={STEP}{whole[-1]} run.dir={folder.path}"
        raise InputError(error.rule, error.found, next_step) from error
    finally:
        ledger.close()
    if state is not None:
        for path in state.folders.values():
            build.check_protocol(folder.absolute(path), cfg.protocol)
        targets.restore(state.cursor)
    file, what = next(iter(lost.items()), ("", ""))
    known = f"{len(lost)} files of transcripts are gone or damaged, such as {folder.episodes / file} ({what})"
    return [f"{known}; ssp doctor --ledger {folder.ledger} lists them"] if lost else []


def _sound(folder: RunFolder, cfg: Config, ledger: Ledger, step: int | None) -> State | None:
    """The state of a run's newest checkpoint, or of the one at `step`; InputError unless all of it is as it was written."""
    state = read(folder, cfg.roles, step)
    if state is None:
        return None
    for role, version in state.versions.items():
        newest = ledger.newest(role)
        if newest < version:  # numbers would be given again, and rows of what was learned are missing
            found = f"{folder.ledger} knows {role} weights up to version {newest}, the checkpoint is version {version}"
            raise InputError("a ledger is not older than the checkpoint", found, "restore it, or start a new run")
    if differ := differences(folder, state, ledger):
        rule = "state.json, its checkpoints and the ledger say the same"
        raise InputError(rule, "; ".join(differ), "restore the file that was changed, or start a new run")
    with ThreadPoolExecutor() as pool:  # of large models it is seconds a folder
        paths = [folder.absolute(path) for path in dict.fromkeys(state.folders.values())]
        list(pool.map(lambda path: check_files(path, whole=True), paths))
    if cfg.league.match != "self":
        matchmaker.check(folder, [state.league, state.good.get("league", {})])
    return state


def _is_sound(folder: RunFolder, cfg: Config, ledger: Ledger, step: int) -> bool:
    with suppress(InputError):
        return _sound(folder, cfg, ledger, step) is not None
    return False


def go_back(folder: RunFolder, step: int) -> None:
    """Let state.json name the kept checkpoint of `step`; the run that resumes rolls its ledger back to that."""
    state = read(folder, step=step)
    if state is not None:
        folder.write_state(asdict(replace(state, good={})))


class Checkpoints:
    """Saves and restores the learners together."""

    def __init__(self, cfg: Config, cast: Cast, folder: RunFolder) -> None:
        self._cfg, self._cast, self._folder = cfg, cast, folder
        self._half: dict[int, dict[str, tuple[str, int, dict[str, Any]]]] = {}
        self._kept: dict[int, dict[str, Any]] = {}
        self._written: dict[str, int] = {}
        self._watched = cfg.health.collapse > 0 and cfg.health.on_collapse != "warn"
        self._states: list[State] = []  # the good one, then those that wait to be confirmed
        self._confirmed: dict[str, int] = {}
        self.saved = -1

    def due(self, step: int) -> bool:
        """True for steps that are saved while the run goes on (its last step is saved at its end)."""
        return self._cfg.save.every > 0 and step % self._cfg.save.every == 0

    def remember(
        self, step: int, pool: list[dict[str, Any]], cursor: dict[str, Any], league: dict[str, Any] | None = None
    ) -> None:
        """Replay pool, data cursor and league as they were after the round that trains as `step`, in order of steps.

        What was handed over will be trained, so the run cannot end at an earlier step: of those, only steps that are
        saved on the way are kept.
        """
        on_the_way = {earlier: kept for earlier, kept in self._kept.items() if self.due(earlier)}
        self._kept = on_the_way | {step: {"pool": pool, "cursor": cursor, "league": league or {}}}

    @property
    def leagues(self) -> list[dict[str, Any]]:
        """The league in every state to which the run may go back, and in those that may still be saved."""
        known = [state.league for state in self._states]
        for step in self._folder.steps():
            with suppress(InputError):  # of a copy that is broken nothing goes on
                known.append((read(self._folder, step=step) or State()).league)
        return [*known, *(kept["league"] for kept in self._kept.values())]

    async def save(
        self,
        learner: str,
        step: int,
        versions: Mapping[str, int],
        meta: dict[str, Any],
        health: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        """Save one learner at `step`, with the `versions` of the roles that it trains, and what is known of their `health`;
        the last one of them lets state.json name them all, and old folders go. LearnerLost."""
        version = versions[learner]
        path = self._folder.checkpoint(learner, version)
        if self._written.get(learner) != version:  # one that published nothing since is on disk already
            self._folder.check_space(SAVE_BYTES)
            for left in (path, *path.parent.glob("v*.tmp-*")):  # of those that died in a save: no state names it
                shutil.rmtree(left, ignore_errors=True)
            full = {**meta, "version": version, "run_step": step}
            await self._cast.learner(learner).save(str(path), full)
            self._written[learner] = version
        half = self._half.setdefault(step, {})
        for role, number in versions.items():
            half[role] = (self._folder.relative(path), number, (health or {}).get(role, {}))
        if len(half) < len(self._cfg.roles):
            return
        del self._half[step]
        state = State(
            step=step,
            folders={name: folder for name, (folder, _, _) in half.items()},
            versions={name: number for name, (_, number, _) in half.items()},
            health={name: known for name, (_, _, known) in half.items() if known},
            rollbacks=self.rollbacks,
            **self._kept.get(step, {}),
        )
        self._kept = {later: kept for later, kept in self._kept.items() if later > step}
        good = self._good()
        self._states = [*self._states, state] if self._watched else [state]
        if self._watched and good is not None:
            state.good = asdict(replace(good, good={}))
        await self._cast.ledger.first.keep()
        self._folder.write_state(asdict(state))
        # A learner that runs ahead has saved steps that the next pairs will name: these stay too.
        waiting = [folder for waits in self._states for folder in waits.folders.values()]
        if self._cfg.save.best and (found := best(self._folder, self._cfg.roles[-1])) is not None:
            waiting.append(self._folder.relative(found))
        self._folder.prune(self._cfg.save.keep + len(self._half), waiting)
        self.saved = step

    def folder(self, state: State, learner: str) -> str:
        """Where the learner's checkpoint of that state lies, "" without one."""
        return str(self._folder.absolute(state.folders[learner])) if state.folders else ""

    def confirm(self, role: str, step: int) -> None:
        """Figures of `role` show no sign of a collapse in its weights up to `step`."""
        self._confirmed[role] = max(self._confirmed.get(role, step), step)

    def back(self) -> int:
        """Let state.json name the good state; its step. It stays as good for `restore`."""
        good = self._good()
        if good is None:
            raise InvariantError("a run goes back only after its first checkpoint")
        self._folder.write_state(asdict(replace(good, rollbacks=self.rollbacks + 1, good={})))
        return good.step

    @property
    def rollbacks(self) -> int:
        """How often the run went back after a collapse."""
        return self._states[-1].rollbacks if self._states else 0

    def _good(self) -> State | None:
        """The newest saved state that all roles confirm; else the oldest that is known."""
        proven = min((self._confirmed.get(role, -1) for role in self._cfg.roles), default=-1)
        while len(self._states) > 1 and self._states[1].step <= proven:
            self._states.pop(0)
        return self._states[0] if self._states else None

    async def restore(self) -> State:
        """Load what state.json names into the learners and roll the ledger back to it.

        Without a state.json the learners keep their start weights and the state is step 0. Raises LearnerLost.
        """
        self._half.clear()
        self._kept.clear()
        found = read(self._folder, self._cfg.roles)
        state = found or State()
        self._confirmed.clear()
        self._states = [] if found is None else [found]
        if found is not None and found.good and self._watched:
            self._states.insert(0, State(**found.good))
        self.saved = state.step if found else -1
        for learner in learners(self._cfg):
            if folder := self.folder(state, learner):
                await self._cast.learner(learner).load(folder)
        await self._cast.ledger.first.rollback(dict.fromkeys(self._cfg.roles, state.step))
        self._folder.forget(state.step)
        return state
