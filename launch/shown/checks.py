"""What `ssp doctor` looks at on this machine, a row each, with what to do. Starts, ends and changes
nothing."""

import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from ssp.base import models
from ssp.base.errors import InputError, hold
from ssp.capacity.memory import size
from ssp.capacity.memory.learner import width
from ssp.capacity.memory.processes import object_store
from ssp.capacity.memory.shapes import OWN, find
from ssp.capacity.placement import machine, make, short
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.game.world.files import is_world
from ssp.record.ledger.home import file_system, shared
from ssp.record.runfolder import START_BYTES
from ssp.selfplay.workers import build

OK, WARN, FAIL = "ok", "warn", "fail"
SHM = Path("/dev/shm")
SECONDS = 5.0
"""How long a judge may think."""
GET = "see Getting the data in docs/recipes.md"


@dataclass(frozen=True)
class Checked:
    """What was looked at, `ok`, `warn` or `fail`, what was found, and what to do about it."""

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
    """Python, and the packages that setup.cfg asks for which are not there in that version."""
    good = (3, 11) <= sys.version_info[:2] < (3, 14)
    next_step = "" if good else "install Python 3.11, 3.12 or 3.13"
    yield Checked("python", OK if good else FAIL, platform.python_version(), next_step)
    try:
        listed = [Requirement(line) for line in metadata.requires("ssp") or []]
    except metadata.PackageNotFoundError:
        yield Checked("ssp", FAIL, "not installed", "run pip install . in this environment")
        return
    asked = [one for one in listed if one.marker is None or one.marker.evaluate({"extra": ""})]
    for one in asked:
        try:
            found = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            found = ""
        if not (found and one.specifier.contains(found, prereleases=True)):
            yield Checked(
                one.name,
                FAIL,
                found or "not installed",
                f"run pip install '{one.name}{one.specifier}'",
            )
    yield Checked("packages", OK, f"looked for {len(asked)}")


def gpus(cfg: Config) -> Checked:
    """What nvidia-smi shows, against what the config asks for."""
    found, place = machine.gpu_bytes(), cfg.placement
    asks = bool(place.engine_gpus or place.learner_gpus or cfg.retriever.gpus)
    listed = f"{len(found)} with {size(min(found))}" if found else "none here"
    if asks and not found:
        return Checked(
            "GPUs", FAIL, listed, "check the driver, or run this on the machine with GPUs"
        )
    if found and not asks:
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
    if few := short(cfg, plan):
        return Checked("memory", WARN, few[0], tables)
    fullest = f"; the fullest GPU takes {size(max(plan.used().values()))}" if plan.placed else ""
    return Checked(
        "memory", OK, f"the first node takes {size(plan.host(0, cfg))}{fullest}; {tables}"
    )


def shared_memory(cfg: Config) -> Checked:
    """/dev/shm against Ray's object store."""
    needed = _sized(lambda: object_store(cfg))
    if not SHM.is_dir():
        return Checked(
            "/dev/shm", WARN, "there is none", "Ray keeps its store on the disk, which is slower"
        )
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
        found = (
            f"{kind}: the ledger is written in the temporary folder, and copied here at each"
            " checkpoint"
        )
        next_step = "one node: set run.dir to a local disk; several: see Folders in docs/cluster.md"
        yield Checked("run folder and ledger", WARN, found, next_step)


def _sized(bytes_of: Callable[[], int]) -> int:
    """Bytes that follow from a model's size; 0 where a model is refused, as its own row says."""
    try:
        return bytes_of()
    except InputError:
        return 0


def _room(what: str, place: Path, needed: int, status: str, next_step: str) -> Checked:
    """Bytes that are free against bytes that are wanted; `status` where they do not suffice."""
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB wanted"
    return Checked(what, OK, found) if free >= needed else Checked(what, status, found, next_step)


def needs(cfg: Config) -> Iterator[Checked]:
    """A row for software that is not installed, the data, the models, and each server that the
    configuration names."""
    for lack in build.missing(cfg):
        yield Checked("software", FAIL, f"{lack.rule}: {lack.found}", lack.next_step)
    asked = cfg.data.targets if cfg.asks else cfg.data.questions
    files = [
        *corpora.named(cfg).values(),
        Path(asked),
        *(Path(item.file) for item in cfg.data.eval),
    ]
    paths = [path for path in dict.fromkeys(map(str, files)) if path and not is_world(path)]
    looks: dict[str, list[Callable[[], object]]] = {
        "data": [
            *(partial(_there, path) for path in paths),
            partial(corpora.suit, cfg, corpora.paths(cfg)),
        ],
        "models": [
            partial(_model, cfg, role) for role in cfg.roles if cfg.block(role).model not in OWN
        ],
    }
    if cfg.retriever.url or cfg.retriever.online.engine:
        looks["search server"] = [partial(corpora.check_remote, cfg)]
    if cfg.judge.kind == "llm" or (cfg.asks and cfg.referee.verifier == "judge"):
        looks["judge"] = [partial(build.check_judge, cfg, SECONDS)]
    for what, each in looks.items():
        wrong = []
        for look in each:
            try:
                look()
            except InputError as error:
                wrong.append(error)
        found = "; ".join(str(error.found) for error in wrong) or (
            "all there" if each else "none needed"
        )
        yield Checked(what, FAIL, found, wrong[0].next_step) if wrong else Checked(what, OK, found)


def _model(cfg: Config, role: str) -> None:
    folder = models.folder(cfg.block(role).model, f"{role}.model")
    build.check_model(cfg, role, folder, in_run=True)


def _there(path: str) -> None:
    hold(models.resolve(path, "data").exists(), "a file or folder of `data` exists", path, GET)
