"""The disk below the run folder: room, and whether it is another machine's. Refuses to make the folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from launch.checks import machine
from launch.checks.check import FAIL, OK, WARN, Check, room
from ssp.base.models import resolve
from ssp.capacity.memory.learner import width
from ssp.capacity.memory.shapes import find
from ssp.config.crews import learners
from ssp.config.schema import Config
from ssp.record.ledger.home import file_system, shared
from ssp.record.runfolder import START_BYTES


def run_folder(cfg: Config) -> Iterator[Check]:
    """Room for the run, and the kind of file system."""
    place = resolve(cfg.run.dir or "runs")
    while not place.exists():
        place = place.parent
    needed = START_BYTES + _checkpoints(cfg)
    next_step = "free some space, lower save.keep, set save.best=false, or set run.dir"
    lacking = WARN if machine.planning(cfg) else FAIL
    yield room(f"disk at {place}", shutil.disk_usage(place).free, needed, lacking, next_step)
    kind = file_system(place)
    if shared(kind):
        found = f"{kind}: the ledger is written in the temporary folder, and copied here at each checkpoint"
        next_step = "one node: set run.dir to a local disk; several: see Folders in docs/cluster.md"
        yield Check("run folder and ledger", WARN, found, next_step)
    else:
        yield Check("run folder and ledger", OK, f"on a local file system ({kind or 'unknown'})")


def _checkpoints(cfg: Config) -> int:
    """Bytes of the checkpoints that a run keeps, and of the one that is being written: weights, and two moments."""
    saved = 0
    for name in learners(cfg):
        block = cfg.block(name)
        if block.policy != "frozen":
            saved += 3 * find(block.model).parameters * width("float32")
    return saved * (cfg.save.keep + cfg.save.best + 1)
