"""Checkpoints of a run: a consistent set of learners (the pair, or the solver alone), and what it takes to go on.

Owns when a set is complete and what state.json says. Promises that state.json always names complete folders of the same
step, one a role that plays (each is written aside and renamed, state.json last), and that going back to it is one
operation, used for a resumed run and for a dead learner alike. Refuses to know what is inside a learner's folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ssp import build
from ssp.config.schema import Config
from ssp.errors import InputError
from ssp.ledger import Ledger
from ssp.runfolder import RunFolder
from ssp.selfplay.cast import Cast
from ssp.selfplay.learning import call_learner
from ssp.selfplay.targets import Targets

SAVE_BYTES = 50_000_000
"""Free bytes that a save asks for first; a bigger model's learner needs more and fails with its own error."""


KINDS = {"step": int, "folders": dict, "versions": dict, "pool": list, "cursor": dict}
"""What state.json holds, with its types."""


@dataclass
class State:
    """What state.json holds: the step all learners are at, their folders and versions, replay pool and data cursor."""

    step: int = 0
    folders: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    pool: list[dict[str, Any]] = field(default_factory=list)
    cursor: dict[str, Any] = field(default_factory=lambda: {"next": 0, "open": []})


def read(folder: RunFolder, roles: Sequence[str]) -> State | None:
    """What state.json holds, None without one. InputError when it is broken, or names other folders than the roles'."""
    found = folder.read_state()
    if found is None:
        return None
    wrong = _odd(found, KINDS) or _odd({"mark": "", **found["cursor"]}, {"next": int, "open": list, "mark": str})
    if not wrong and not set(roles) == set(found["folders"]) == set(found["versions"]):
        wrong = ["folders"]
    if wrong:
        rule = "state.json must be as it was written"
        raise InputError(rule, f"{folder.state}: {', '.join(wrong)}", "restore the file, or start a new run")
    return State(**found)


def _odd(found: dict[str, Any], kinds: dict[str, type]) -> list[str]:
    """Names that are missing, of another type, or unknown."""
    return [name for name in sorted({*found, *kinds}) if not isinstance(found.get(name), kinds.get(name, type(None)))]


def check_resumable(folder: RunFolder, cfg: Config, targets: Targets) -> None:
    """Everything that a resumed run needs of its folder, before anything starts. InputError names what is wrong."""
    state = read(folder, cfg.roles)
    if state is not None:
        for path in state.folders.values():
            build.check_protocol(folder.absolute(path), cfg.protocol)
        targets.restore(state.cursor)
    Ledger(folder.ledger, readonly=True).close()


class Checkpoints:
    """Saves and restores the learners together."""

    def __init__(self, cfg: Config, cast: Cast, folder: RunFolder) -> None:
        self._cfg, self._cast, self._folder = cfg, cast, folder
        self._half: dict[int, dict[str, tuple[str, int]]] = {}
        self._kept: dict[int, dict[str, Any]] = {}
        self._written: dict[str, int] = {}
        self.saved = -1

    def due(self, step: int) -> bool:
        """True for steps that are saved while the run goes on (its last step is saved at its end)."""
        return self._cfg.save.every > 0 and step % self._cfg.save.every == 0

    def remember(self, step: int, pool: list[dict[str, Any]], cursor: dict[str, Any]) -> None:
        """Replay pool and data cursor as they were after the round that trains as `step`, in order of steps.

        What was handed over will be trained, so the run cannot end at an earlier step: of those, only steps that are
        saved on the way are kept.
        """
        on_the_way = {earlier: kept for earlier, kept in self._kept.items() if self.due(earlier)}
        self._kept = on_the_way | {step: {"pool": pool, "cursor": cursor}}

    async def save(self, role: str, step: int, version: int, meta: dict[str, Any]) -> None:
        """Save one role at `step`; the last one of them lets state.json name them all, and old folders go. LearnerLost."""
        path = self._folder.checkpoint(role, version)
        if self._written.get(role) != version:  # a role that published nothing since is on disk already
            self._folder.check_space(SAVE_BYTES)
            full = {**meta, "version": version, "run_step": step}
            await call_learner(self._cast, role, "save", str(path), full)
            self._written[role] = version
        half = self._half.setdefault(step, {})
        half[role] = (self._folder.relative(path), version)
        if len(half) < len(self._cfg.roles):
            return
        del self._half[step]
        state = State(
            step=step,
            folders={name: folder for name, (folder, _) in half.items()},
            versions={name: number for name, (_, number) in half.items()},
            **self._kept.get(step, {}),
        )
        self._kept = {later: kept for later, kept in self._kept.items() if later > step}
        self._folder.write_state(asdict(state))
        # A learner that runs ahead has saved steps that the next pairs will name: these stay too.
        self._folder.prune(self._cfg.save.keep + len(self._half))
        self.saved = step

    async def restore(self) -> State:
        """Load what state.json names into the learners and roll the ledger back to it.

        Without a state.json the learners keep their start weights and the state is step 0. Raises LearnerLost.
        """
        self._half.clear()
        self._kept.clear()
        found = read(self._folder, self._cfg.roles)
        state = found or State()
        self.saved = state.step if found else -1
        for role, folder in state.folders.items():
            await call_learner(self._cast, role, "load", str(self._folder.absolute(folder)))
        await self._cast.ledger.call(0, "rollback", dict.fromkeys(self._cfg.roles, state.step))
        return state
