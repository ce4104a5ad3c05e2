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
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from ssp.base.errors import InputError, InvariantError, hold, holding
from ssp.base.files import whole
from ssp.base.models import resolve
from ssp.config.schema import Config
from ssp.record.manifest import own_digest, read_state

START_BYTES = 200_000_000
"""Free bytes that a run asks for before it starts: about three times what a default quickstart
writes."""

LOCK = ".lock"
"""The file that the process which plays in a run folder keeps locked."""

MAY_CHANGE = ("steps", "resume", "run", "save", "health", "placement", "ray", "telemetry")
"""Keys, and blocks of keys, that a resumed run may set anew: they do not change what is learned."""

STEP = "step:"
"""How `resume` names a kept checkpoint: `step:N`."""

_VERSION = re.compile(r"v(\d+)")
_STATE = re.compile(r"state-(\d+)\.json")


def check_space(folder: Path, needed_bytes: int) -> None:
    """InputError when the file system of `folder` (which need not exist yet) has less than
    `needed_bytes` free."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    rule, step = (
        f"the run folder's file system needs {needed_bytes / 1e6:,.0f} MB of free space",
        "free some space",
    )
    hold(
        free >= needed_bytes,
        rule,
        f"{free / 1e6:,.0f} MB at {place}",
        f"{step}, or set run.dir to another disk",
    )


def step_of(resume: str) -> int | None:
    """The step that `resume` names, None where it names none. InputError when it is no number."""
    if not resume.startswith(STEP):
        return None
    if (
        not (number := resume.removeprefix(STEP)).isdecimal()
        or not number.isascii()
        or len(number) > 9
    ):
        raise InputError(
            "resume=step:N names the step of a kept checkpoint", resume, "type resume=step:<number>"
        )
    return int(number)


def locate(cfg: Config, config_name: str) -> RunFolder:
    """Decide the folder for `cfg` and touch nothing. `config_name` (a name or a file's path) gives
    the default name.

    `resume=never`: run.dir or run.name must be new. `auto`: run.dir, run.name, or the newest run of
    the config, if it has a checkpoint or a warm start, else a fresh start. `step:N`: the same
    folder, which must keep that step. A path: that folder, which must have a checkpoint. InputError
    otherwise, and when a setting other than `MAY_CHANGE` has changed."""
    step = step_of(cfg.resume)
    if cfg.resume not in ("never", "auto") and step is None:
        path = resolve(cfg.resume, "resume")
        if cfg.run.dir and resolve(cfg.run.dir) != path:
            raise InputError(
                "resume=PATH continues in that folder",
                f"run.dir={cfg.run.dir}",
                "leave run.dir out",
            )
        if not RunFolder(path).has_state:
            raise InputError(
                "resume=PATH needs a run folder with a checkpoint",
                path,
                "give a folder below runs/",
            )
        return _resumed(path, cfg)
    runs = resolve("runs") if not cfg.run.dir else Path()
    fixed = resolve(cfg.run.dir) if cfg.run.dir else runs / cfg.run.name if cfg.run.name else None
    named = Path(config_name)
    stem = named.stem if named.suffix in (".yaml", ".yml") else named.name
    matches = [re.fullmatch(re.escape(stem) + r"-(\d+)", path.name) for path in runs.glob("*")]
    numbered = {int(match[1]): runs / match[0] for match in matches if match}
    last = max(numbered, default=0)
    newest = fixed or numbered.get(last)
    there = None if newest is None else RunFolder(newest)
    if step is not None:
        kept = [] if there is None else there.steps()
        if there is None or step not in kept:
            found = f"{newest or runs / stem} keeps {', '.join(map(str, kept)) or 'none'}"
            rule = f"resume={cfg.resume} names a checkpoint that the run keeps"
            raise InputError(rule, found, "name one of these steps, or another run with run.dir")
        return _resumed(there.path, cfg)
    if cfg.resume == "auto" and there is not None and (there.has_state or there.start.exists()):
        return _resumed(there.path, cfg)
    if fixed is None:
        return RunFolder(runs / f"{stem}-{last + 1:03}")
    # A folder of ours without a checkpoint was killed before its first one; its ledger goes on
    # counting.
    ours = cfg.resume == "auto" and RunFolder(fixed).config.is_file()
    next_step = (
        "choose another run.dir or run.name, or set resume=auto to continue from its checkpoint"
    )
    hold(not fixed.exists() or ours, "a run folder must not exist yet", fixed, next_step)
    return RunFolder(fixed)


def check(cfg: Config, config_name: str, needed_bytes: int = START_BYTES) -> RunFolder:
    """`locate`, and room for the run: everything that `open_run` would refuse, touching nothing."""
    with holding(OSError, "a run folder has a usable path", str, "set another run.dir or run.name"):
        place = locate(cfg, config_name)
        # 255, less an ending that is written first
        if any(len(os.fsencode(part)) > 230 for part in place.path.parts):
            raise OSError(f"a name in {place.path} is too long")
        above = next(path for path in (place.path, *place.path.parents) if path.exists())
    check_space(place.path, needed_bytes)
    rule, found = (
        "a run folder must be writable",
        f"{place.path}, where {above} is no folder that can be written",
    )
    hold(
        above.is_dir() and os.access(above, os.W_OK | os.X_OK), rule, found, "set run.dir elsewhere"
    )
    place.check_idle()
    return place


def open_run(cfg: Config, config_name: str, needed_bytes: int = START_BYTES) -> RunFolder:
    """The folder for `cfg`, made with its config.yaml, or an existing one to continue (`resumed`).
    InputError as `check`."""
    # reading configurations costs a tenth of a second, which --help does without
    from ssp.config.load import to_yaml

    folder, config = check(cfg, config_name, needed_bytes), to_yaml(cfg)
    if not folder.path.exists():
        aside = folder.path.with_name(f".{folder.name}.{os.getpid()}.tmp")
        try:
            (aside / "episodes").mkdir(parents=True)
            (aside / "checkpoints").mkdir()
            (aside / "config.yaml").write_text(config, encoding="utf-8")
            os.rename(aside, folder.path)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            if folder.path.exists():
                # Another run took the name in the meantime: the next number, or the refusal of a
                # name that was given.
                return open_run(cfg, config_name, needed_bytes)
            found = f"{folder.path} ({error})"
            raise InputError(
                "a run folder must be writable", found, "set run.dir elsewhere"
            ) from error
    folder.hold()
    _replace(folder.config, config)
    return folder


class RunFolder:
    """Paths and bookkeeping of one run folder; `resumed`: it goes on from its checkpoint. Making it
    touches nothing."""

    def __init__(self, path: str | Path, resumed: bool = False) -> None:
        self.path, self.resumed = Path(path).absolute(), resumed
        self.name = self.path.name
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.ledger = self.path / "ledger.db"
        self.episodes = self.path / "episodes"
        self.timeline = self.path / "timeline.json"
        self.yardstick = self.path / "yardstick.json"
        self.checkpoints = self.path / "checkpoints"
        self.start, self.proposer_start = self.path / "start", self.path / "start-proposer"
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
            rule, step = "the run folder's file system has locks", "set run.dir to another disk"
            hold(
                error.errno in (errno.EACCES, errno.EAGAIN),
                rule,
                f"{self.path}: {error.strerror}",
                step,
            )
            raise self._played_in() from error
        self._lock = file
        for folder in (self.path, self.checkpoints, self.episodes):  # nobody else writes here now
            for left in folder.glob(".*.part"):
                left.unlink(missing_ok=True)

    @property
    def held(self) -> bool:
        """Whether another process plays in this folder; it is asked who holds the lock, which takes
        none."""
        if not (self.path / LOCK).is_file():
            return False
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        # a file system without locks
        with (self.path / LOCK).open("rb") as file, suppress(OSError):
            kind: int = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, wanted))[0]
            return kind != fcntl.F_UNLCK
        return False

    def check_idle(self) -> None:
        """InputError when another process plays in this folder."""
        if self.held:
            raise self._played_in()

    def _played_in(self) -> InputError:
        rule, next_step = (
            "one process plays in a run folder",
            "let that run end first, or start a new one",
        )
        return InputError(rule, f"{self.path} is held by another one", next_step)

    @property
    def has_state(self) -> bool:
        """True when there is a checkpoint to continue from."""
        return self.state.is_file() or bool(self.steps())

    def steps(self) -> list[int]:
        """The kept steps, which `resume=step:N` may name."""
        found = (_STATE.fullmatch(path.name) for path in self.checkpoints.glob("state-*.json"))
        return sorted(int(name[1]) for name in found if name)

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
        matches = [_VERSION.fullmatch(path.name) for path in (self.checkpoints / role).glob("v*")]
        return [
            self.checkpoint(role, version)
            for version in sorted(int(match[1]) for match in matches if match)
        ]

    def prune(self, keep: int, needed: Collection[str] = ()) -> list[Path]:
        """Delete all but each role's newest `keep` checkpoints, those that state.json names now and
        named at the newest `keep` steps, and the relative folders `needed`. Returns the gone."""
        state = self.read_state()
        if state is None:
            raise InvariantError("checkpoints are pruned only after state.json names a pair")
        newest = [folder for step in self.steps()[-keep:] for folder in self._named(step)]
        named = {self.path / folder for folder in [*state["folders"].values(), *newest, *needed]}
        gone: list[Path] = []
        for role in sorted(path for path in self.checkpoints.iterdir() if path.is_dir()):
            gone += [path for path in self.versions(role.name)[:-keep] if path not in named]
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
            return [*(self.read_state(step) or {"folders": {}})["folders"].values()]
        except InputError:
            return []


def _resumed(path: Path, cfg: Config) -> RunFolder:
    """The folder to go on in. InputError when a setting other than `MAY_CHANGE` is not that of its
    config.yaml: also `steps`, where a rate falls until these. A key that an earlier version did not
    have was at its default; one that is gone since counts for nothing."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from ssp.config import gone
    from ssp.config.load import dotted, leaves
    from ssp.config.schema import Config

    config = RunFolder(path).config
    odd = (
        yaml.YAMLError,
        OmegaConfBaseException,
        ValueError,
        AttributeError,
        RecursionError,
        OSError,
    )
    rule, step = "a run's config.yaml can be read", "restore it, or start a new run"
    with holding(odd, rule, lambda error: f"{config}: {' '.join(str(error).split())}", step):
        then = dict(leaves(cast(dict[str, Any], OmegaConf.to_container(OmegaConf.load(config)))))
    now = dotted(cfg)
    plain, of_game = dotted(Config()), dotted(Config(game=cfg.game))
    then = of_game | {key: plain[key] for key in plain if key.startswith("game.")} | then
    then = {key: value for key, value in then.items() if key in now or not gone.row(key)}
    learning = [cfg.block(role) for role in cfg.roles if cfg.block(role).policy != "frozen"]
    falls = any(block.learner.schedule != "constant" for block in learning)
    free = {*MAY_CHANGE} - ({"steps"} if falls else set())
    keys = [key for key in sorted(set(then) | set(now)) if key.split(".")[0] not in free]
    changed = [key for key in keys if then.get(key) != now.get(key)]
    found = ", ".join(f"{key} was {then.get(key)!r} and is now {now.get(key)!r}" for key in changed)
    rule = f"a run continues with the settings it was started with, in {path}"
    rule += " (steps too, where learner.schedule=cosine falls until these)" * ("steps" in changed)
    step = "give the old values, or start a new run with resume=never"
    step += f", which goes on from the policy with ROLE.model={path}/checkpoints/ROLE/vN" * (
        "steps" in changed
    )
    hold(not changed, rule, found, step)
    return RunFolder(path, resumed=RunFolder(path).has_state)


def _replace(path: Path, text: str) -> None:
    with whole(path, durable=True) as aside:
        aside.write_text(text, encoding="utf-8")
