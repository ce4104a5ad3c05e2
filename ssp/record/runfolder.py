"""The run folder: where a run's files lie, and which folder a run gets. An existing folder is never
overwritten; one appears with its config.yaml or not at all; state.json is replaced whole."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import struct
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ssp.base import gamefacts
from ssp.base.errors import InputError, InvariantError, hold, holding
from ssp.base.files import whole
from ssp.base.models import resolve
from ssp.base.places import is_own
from ssp.config.schema import Config
from ssp.record.manifest import own_digest, read_state
from ssp.record.resumed import check_settings

START_BYTES = 200_000_000
"""Free bytes that a run asks for before it starts: about three times what a default quickstart
writes."""

LOCK = ".lock"
"""The file that the process which plays in a run folder keeps locked."""

STEP = "step:"
"""How `resume` names a kept checkpoint: `step:N`."""

_VERSION = re.compile(r"v(\d+)")
_STATE = re.compile(r"state-(\d+)\.json")


def check_space(folder: Path, needed_bytes: int) -> None:
    """InputError when the file system of `folder` (which need not exist yet) has less than
    `needed_bytes` free."""
    place = _existing(folder.absolute())
    free = shutil.disk_usage(place).free
    rule = f"the run folder's file system needs {needed_bytes / 1e6:,.0f} MB of free space"
    step = "free some space, or set run.dir to another disk"
    hold(free >= needed_bytes, rule, f"{free / 1e6:,.0f} MB at {place}", step)


def _existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def step_of(resume: str) -> int | None:
    """The step that `resume` names, None where it names none. InputError when it is no number."""
    if not resume.startswith(STEP):
        return None
    number = resume.removeprefix(STEP)
    rule = "resume=step:N names the step of a kept checkpoint"
    is_step = number.isascii() and number.isdecimal() and len(number) <= 9
    hold(is_step, rule, resume, "type resume=step:<number>")
    return int(number)


def locate(cfg: Config, config_name: str) -> RunFolder:
    """Decide the folder for `cfg` and touch nothing. `config_name` (a name or a file's path) gives
    the default name.

    `resume=never`: run.dir or run.name must be new. `auto`: run.dir, run.name, or the newest run of
    the config, if it has a checkpoint or a warm start, else a fresh start. `step:N`: the same
    folder, which must keep that step. A path: that folder, which must have a checkpoint. InputError
    otherwise, and as `check_settings`."""
    step = step_of(cfg.resume)
    if cfg.resume not in ("never", "auto") and step is None:
        return _resumed(_named_by_resume(cfg), cfg)

    runs = Path() if cfg.run.dir else resolve("runs")  # which a job may refuse
    named = Path(config_name)
    stem = named.stem if named.suffix in (".yaml", ".yml") else named.name
    fixed: Path | None = None
    if cfg.run.dir:
        fixed = resolve(cfg.run.dir)
    elif cfg.run.name:
        fixed = runs / cfg.run.name
    newest, last = fixed, 0
    if fixed is None:
        matches = [re.fullmatch(re.escape(stem) + r"-(\d+)", path.name) for path in runs.glob("*")]
        numbered = {int(match[1]): runs / match[0] for match in matches if match}
        last = max(numbered, default=0)
        newest = numbered.get(last)

    there = None if newest is None else RunFolder(newest)
    if step is not None:
        kept = [] if there is None else there.steps()
        if there is None or step not in kept:
            listed = ", ".join(map(str, kept)) or "none"
            rule = f"resume={cfg.resume} names a checkpoint that the run keeps"
            hint = "name one of these steps, or another run with run.dir"
            raise InputError(rule, f"{newest or runs / stem} keeps {listed}", hint)
        return _resumed(there.path, cfg)
    if cfg.resume == "auto" and there is not None and (there.has_state or there.start.exists()):
        return _resumed(there.path, cfg)
    if fixed is None:
        return RunFolder(runs / f"{stem}-{last + 1:03}")

    # A folder of ours without a checkpoint was killed before its first one; its ledger goes on
    # counting.
    ours = cfg.resume == "auto" and RunFolder(fixed).config.is_file()
    hint = "choose another run.dir or run.name, or set resume=auto to continue from its checkpoint"
    hold(not fixed.exists() or ours, "a run folder must not exist yet", fixed, hint)
    return RunFolder(fixed)


def _named_by_resume(cfg: Config) -> Path:
    """The folder of `resume=PATH`. InputError without a checkpoint, or with another run.dir."""
    path = resolve(cfg.resume, "resume")
    same = not cfg.run.dir or resolve(cfg.run.dir) == path
    rule = "resume=PATH continues in that folder"
    hold(same, rule, f"run.dir={cfg.run.dir}", "leave run.dir out")
    rule = "resume=PATH needs a run folder with a checkpoint"
    hold(RunFolder(path).has_state, rule, path, "give a folder below runs/")
    return path


def check(cfg: Config, config_name: str, needed_bytes: int = START_BYTES) -> RunFolder:
    """`locate`, and room for the run: everything that `open_run` would refuse, touching nothing."""
    with holding(OSError, "a run folder has a usable path", str, "set another run.dir or run.name"):
        place = locate(cfg, config_name)
        # 255, less an ending that is written first
        if any(len(os.fsencode(part)) > 230 for part in place.path.parts):
            raise OSError(f"a name in {place.path} is too long")
        above = _existing(place.path)
    check_space(place.path, needed_bytes)
    rule = "a run folder must be writable"
    where = f"{place.path}, where {above} is no folder that can be written"
    writable = above.is_dir() and os.access(above, os.W_OK | os.X_OK)
    hold(writable, rule, where, "set run.dir elsewhere")
    place.check_idle()
    return place


def open_run(cfg: Config, config_name: str, needed_bytes: int = START_BYTES) -> RunFolder:
    """The folder for `cfg`, made with its config.yaml, or an existing one to continue (`resumed`).
    InputError as `check`."""
    # reading configurations costs a tenth of a second, which --help does without
    from ssp.config.load import to_yaml

    folder = check(cfg, config_name, needed_bytes)
    files = {"config.yaml": to_yaml(cfg)}
    if is_own(cfg.game.kind):
        files[gamefacts.FILE] = gamefacts.text(cfg.spec)
    if not folder.path.exists():
        aside = folder.path.with_name(f".{folder.name}.{os.getpid()}.tmp")
        try:
            (aside / "episodes").mkdir(parents=True)
            (aside / "checkpoints").mkdir()
            for name, text in files.items():
                (aside / name).write_text(text, encoding="utf-8")
            os.rename(aside, folder.path)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            if folder.path.exists():
                # Another run took the name in the meantime: the next number, or the refusal of a
                # name that was given.
                return open_run(cfg, config_name, needed_bytes)
            rule = "a run folder must be writable"
            reason = f"{folder.path} ({error})"
            raise InputError(rule, reason, "set run.dir elsewhere") from error
    folder.hold()
    for name, text in files.items():
        _replace(folder.path / name, text)
    return folder


class RunFolder:
    """Paths and bookkeeping of one run folder; `resumed`: it goes on from its checkpoint. Making it
    touches nothing."""

    def __init__(self, path: str | Path, resumed: bool = False) -> None:
        self.path = Path(path).absolute()
        self.resumed = resumed
        self.name = self.path.name
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.ledger = self.path / "ledger.db"
        self.episodes = self.path / "episodes"
        self.timeline = self.path / "timeline.json"
        self.yardstick = self.path / "yardstick.json"
        self.checkpoints = self.path / "checkpoints"
        self.start = self.path / "start"
        self.proposer_start = self.path / "start-proposer"
        self.state = self.checkpoints / "state.json"
        self._lock: int | None = None

    def hold(self) -> None:
        """Keep other processes from playing here until this process's end. InputError when one
        does."""
        file = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            is_held = error.errno in (errno.EACCES, errno.EAGAIN)
            rule = "the run folder's file system has locks"
            reason = f"{self.path}: {error.strerror}"
            hold(is_held, rule, reason, "set run.dir to another disk")
            raise self._played_in() from error
        self._lock = file
        for folder in (self.path, self.checkpoints, self.episodes):  # nobody else writes here now
            for left in folder.glob(".*.part"):
                left.unlink(missing_ok=True)

    @property
    def held(self) -> bool:
        """Whether another process plays in this folder. Asking who holds the lock does not take
        it."""
        lock = self.path / LOCK
        if not lock.is_file():
            return False
        layout = "hhqqi4x"
        wanted = struct.pack(layout, fcntl.F_WRLCK, 0, 0, 0, 0)
        with lock.open("rb") as file, suppress(OSError):  # a file system without locks
            answer = fcntl.fcntl(file, fcntl.F_GETLK, wanted)
            kind: int = struct.unpack(layout, answer)[0]
            return kind != fcntl.F_UNLCK
        return False

    def check_idle(self) -> None:
        """InputError when another process plays in this folder."""
        if self.held:
            raise self._played_in()

    def _played_in(self) -> InputError:
        rule = "one process plays in a run folder"
        step = "let that run end first, or start a new one"
        return InputError(rule, f"{self.path} is held by another one", step)

    @property
    def has_state(self) -> bool:
        """True when there is a checkpoint to continue from."""
        return self.state.is_file() or bool(self.steps())

    def steps(self) -> list[int]:
        """The kept steps, which `resume=step:N` may name."""
        names = [path.name for path in self.checkpoints.glob("state-*.json")]
        return _numbers(_STATE, names)

    def _state_of(self, step: int) -> Path:
        """The copy of state.json as it was at `step`."""
        return self.checkpoints / f"state-{step}.json"

    def checkpoint(self, role: str, version: int) -> Path:
        """Where the checkpoint of a role's version lies, made or not."""
        return self.checkpoints / role / f"v{version}"

    def member(self, role: str, version: int) -> Path:
        """Where a past version's weights lie that a league plays with, made or not."""
        return self.path / "members" / role / f"v{version}"

    def relative(self, path: str | Path) -> str:
        """A path inside the folder as state.json holds it, so that the folder can be moved."""
        return Path(path).relative_to(self.path).as_posix()

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Replace state.json, and what is kept of its step, by plain JSON data; `folders`: role →
        relative folder."""
        text = json.dumps({**state, "sha256": own_digest(state)}, indent=1, allow_nan=False)
        if "step" in state:
            _replace(self._state_of(state["step"]), text)
        _replace(self.state, text)

    def read_state(self, step: int | None = None) -> dict[str, Any] | None:
        """What state.json holds (`step`: what it held then), None without one. InputError as
        `manifest.read_state`."""
        if not self.has_state:
            return None
        return read_state(self.state if step is None else self._state_of(step), self.path)

    def forget(self, step: int) -> None:
        """The run went back to `step`: what is kept of later ones is no checkpoint of it any
        more."""
        for later in self.steps():
            if later > step:
                self._state_of(later).unlink()

    def versions(self, role: str) -> list[Path]:
        """The role's whole checkpoints, by version."""
        names = [path.name for path in (self.checkpoints / role).glob("v*")]
        return [self.checkpoint(role, version) for version in _numbers(_VERSION, names)]

    def prune(self, keep: int, needed: Collection[str] = ()) -> list[Path]:
        """Delete all but each role's newest `keep` checkpoints, those that state.json names now and
        named at the newest `keep` steps, and the relative folders `needed`. Returns the gone."""
        state = self.read_state()
        if state is None:
            raise InvariantError("checkpoints are pruned only after state.json names a pair")
        folders = [*state["folders"].values(), *needed]
        for step in self.steps()[-keep:]:
            folders += self._named(step)
        kept = {self.path / folder for folder in folders}

        gone = []
        for role in sorted(path for path in self.checkpoints.iterdir() if path.is_dir()):
            gone += [path for path in self.versions(role.name)[:-keep] if path not in kept]
            for trash in role.glob(".*.gone"):
                # what is open stays on NFS; the next save tries again
                shutil.rmtree(trash, ignore_errors=True)
        for path in gone:
            # Renamed first: a kill in between leaves no folder that looks like a whole checkpoint.
            trash = path.with_name(f".{path.name}.gone")
            os.rename(path, trash)
            shutil.rmtree(trash, ignore_errors=True)
        for step in self.steps():
            if not self._named(step):
                self._state_of(step).unlink()
        return gone

    def _named(self, step: int) -> list[str]:
        """The folders that were named at `step`; none where one of them is gone, or the copy is
        broken."""
        try:
            state = self.read_state(step) or {"folders": {}}
        except InputError:
            return []
        return [*state["folders"].values()]


def _numbers(pattern: re.Pattern[str], names: Sequence[str]) -> list[int]:
    """The numbers in the names that match, in order."""
    matches = [pattern.fullmatch(name) for name in names]
    return sorted(int(match[1]) for match in matches if match)


def _resumed(path: Path, cfg: Config) -> RunFolder:
    """The folder to go on in. InputError where the run has other settings."""
    folder = RunFolder(path)
    check_settings(folder.config, cfg)
    folder.resumed = folder.has_state
    return folder


def _replace(path: Path, text: str) -> None:
    with whole(path, durable=True) as aside:
        aside.write_text(text, encoding="utf-8")
