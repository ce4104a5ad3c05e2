"""What `ssp doctor` looks at on this machine, a row each, with what to do. Starts, ends and changes
nothing."""

import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from ssp.base import models
from ssp.base.errors import InputError
from ssp.capacity import needs as required
from ssp.capacity.memory import size
from ssp.capacity.memory.learner import width
from ssp.capacity.memory.processes import object_store
from ssp.capacity.memory.shapes import find
from ssp.capacity.placement import machine, make, short
from ssp.config.crews import learners
from ssp.config.rules import refused
from ssp.config.schema import Config
from ssp.record.ledger.home import file_system, shared
from ssp.record.runfolder import START_BYTES

OK, WARN, FAIL = "ok", "warn", "fail"
SHM = Path("/dev/shm")
SECONDS = 5.0
"""How long a judge may think."""


@dataclass(frozen=True)
class Checked:
    """What was looked at, its `status` (ok, warn or fail), what was `found`, what to do then."""

    what: str
    status: str
    found: str
    next_step: str = ""


def examine(cfg: Config) -> Iterator[Checked]:
    """Every check of this machine for a run of `cfg`."""
    yield from packages()
    yield gpus(cfg)
    yield memory(cfg)
    yield shared_memory(cfg)
    yield from run_folder(cfg)
    yield from needs(cfg)


def packages() -> Iterator[Checked]:
    """Python, and each package of setup.cfg that is not installed in the version asked for."""
    good = (3, 11) <= sys.version_info[:2] < (3, 14)
    next_step = "" if good else "install Python 3.11, 3.12 or 3.13"
    yield Checked("python", OK if good else FAIL, platform.python_version(), next_step)
    try:
        listed = [Requirement(line) for line in metadata.requires("ssp") or []]
    except metadata.PackageNotFoundError:
        yield Checked("ssp", FAIL, "not installed", "run pip install . in this environment")
        return
    core = {"extra": ""}
    needed = [one for one in listed if one.marker is None or one.marker.evaluate(core)]
    for package in needed:
        name = package.name
        wanted = package.specifier
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = ""
        if not (version and wanted.contains(version, prereleases=True)):
            next_step = f"run pip install '{name}{wanted}'"
            yield Checked(name, FAIL, version or "not installed", next_step)
    yield Checked("packages", OK, f"looked for {len(needed)}")


def gpus(cfg: Config) -> Checked:
    """What nvidia-smi shows, against what the config asks for."""
    sizes = machine.gpu_bytes()
    place = cfg.placement
    asks = bool(place.engine_gpus or place.learner_gpus or cfg.retriever.gpus)
    listed = f"{len(sizes)} with {size(min(sizes))}" if sizes else "none here"
    if asks and not sizes:
        next_step = "check the driver, or run this on the machine with GPUs"
        return Checked("GPUs", FAIL, listed, next_step)
    if sizes and not asks:
        next_step = "set placement.engine_gpus and learner_gpus, see docs/placement.md"
        return Checked("GPUs", WARN, f"{listed}, unused", next_step)
    return Checked("GPUs", OK, listed)


def memory(cfg: Config) -> Checked:
    """Whether the run fits this machine, or the nodes that `placement.nodes` describes."""
    try:
        plan = make(cfg, machine.nodes(cfg))
    except InputError as error:
        return Checked("memory", FAIL, f"{error.rule}: {error.found}", error.next_step)
    tables = "ssp train --dry-run has the tables"
    warnings = short(cfg, plan)
    if warnings:
        return Checked("memory", WARN, warnings[0], tables)
    takes = f"the first node takes {size(plan.host(0, cfg))}"
    if plan.placed:
        takes += f"; the fullest GPU takes {size(max(plan.used().values()))}"
    return Checked("memory", OK, f"{takes}; {tables}")


def shared_memory(cfg: Config) -> Checked:
    """/dev/shm against Ray's object store."""
    needed = _sized(lambda: object_store(cfg))
    if not SHM.is_dir():
        next_step = "Ray keeps its store on the disk, which is slower"
        return Checked("/dev/shm", WARN, "there is none", next_step)
    return _room("/dev/shm", SHM, needed, WARN, "mount it larger (docker run --shm-size)")


def run_folder(cfg: Config) -> Iterator[Checked]:
    """Room for the run's files and checkpoints (weights and two moments each), and the kind of file
    system."""
    wanted = models.resolve(cfg.run.dir or "runs")
    place = next(path for path in (wanted, *wanted.parents) if path.exists())
    blocks = [cfg.block(name) for name in learners(cfg)]
    owned = [block for block in blocks if block.policy != "frozen"]
    each = 3 * width("float32")
    saved = _sized(lambda: sum(each * find(block.model).parameters for block in owned))
    needed = START_BYTES + saved * (cfg.save.keep + 2)
    next_step = "free some space, lower save.keep, or set run.dir"
    yield _room(f"disk at {place}", place, needed, FAIL, next_step)
    kind = file_system(place)
    if shared(kind):
        copied = "written in the temporary folder, and copied here at each checkpoint"
        next_step = "one node: set run.dir to a local disk; several: see Folders in docs/cluster.md"
        yield Checked("run folder and ledger", WARN, f"{kind}: the ledger is {copied}", next_step)


def _sized(bytes_of: Callable[[], int]) -> int:
    """Bytes that follow from a model's size; 0 where a model is refused, as its own row says."""
    try:
        return bytes_of()
    except InputError:
        return 0


def _room(what: str, place: Path, needed: int, status: str, next_step: str) -> Checked:
    """Bytes that are free against bytes that are needed; `status` where they do not suffice."""
    free = shutil.disk_usage(place).free
    room = f"{free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB wanted"
    return Checked(what, OK, room) if free >= needed else Checked(what, status, room, next_step)


def needs(cfg: Config) -> Iterator[Checked]:
    """A row for software that is not installed, the data, the models, and each server that the
    configuration names."""
    for what, looks in required.looks(cfg, SECONDS).items():
        wrong = refused(cfg, looks)
        if what == "software":
            for lack in wrong:
                yield Checked(what, FAIL, f"{lack.rule}: {lack.found}", lack.next_step)
        elif wrong:
            missed = "; ".join(str(lack.found) for lack in wrong)
            steps = dict.fromkeys(lack.next_step for lack in wrong)
            yield Checked(what, FAIL, missed, "; ".join(steps))
        else:
            yield Checked(what, OK, "all there")
