"""Python, packages, cores, GPUs and shared memory of this machine.

Owns the list of packages that must be there. Promises to start nothing but `nvidia-smi`. Refuses to judge whether a run
fits: that is the plan's (`ssp.capacity.placement`).
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from launch.checks.check import FAIL, OK, WARN, Check, room
from ssp.capacity.memory import size, threads
from ssp.capacity.placement import beside, machine
from ssp.config.schema import Config

NEEDED = (
    "torch transformers tokenizers huggingface_hub safetensors numpy ray omegaconf pyarrow tensorboardX rich "
    "uvicorn httpx regex openai math-verify"
).split()
EXTRAS = ("vllm", "deepspeed", "faiss-gpu")
SHM = Path("/dev/shm")


def python() -> Check:
    """The interpreter's version."""
    good = (3, 11) <= sys.version_info[:2] < (3, 13)
    found = platform.python_version()
    return Check("python", OK if good else FAIL, found, "" if good else "install Python 3.11 or 3.12")


def packages() -> Iterator[Check]:
    """Each package that is needed, and the extras that are there: its version, and the one that setup.cfg asks for."""
    wanted = _wanted()
    for name in (*NEEDED, *EXTRAS):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in NEEDED:
                yield Check(name, FAIL, "not installed", "run pip install . in this environment")
            continue
        asked = wanted.get(name.lower().replace("_", "-"))
        if asked is None or asked.specifier.contains(found, prereleases=True):
            yield Check(name, OK, found)
        else:
            yield Check(
                name, FAIL, f"{found}, {asked.specifier} wanted", f"run pip install '{asked.name}{asked.specifier}'"
            )


def _wanted() -> dict[str, Requirement]:
    """What the installed package asks for; nothing where it is only on the path."""
    try:
        listed = metadata.requires("ssp") or []
    except metadata.PackageNotFoundError:
        return {}
    return {found.name.lower().replace("_", "-"): found for found in map(Requirement, listed)}


def cores() -> Check:
    """Processors that this process may use."""
    count = threads.cores()
    return Check("cores", OK if count >= 2 else WARN, str(count), "" if count >= 2 else "a run is slow below 2")


def _asks(cfg: Config) -> bool:
    place = cfg.placement
    return bool(place.engine_gpus or place.learner_gpus or place.judge_gpus or cfg.retriever.gpus)


def planning(cfg: Config) -> bool:
    """Whether `placement.nodes` describes another machine than this: it has GPUs, and here are none. What is lacking
    here may be there."""
    return bool(cfg.placement.nodes) and _asks(cfg) and not machine.gpu_bytes()


def gpus(cfg: Config) -> Check:
    """What nvidia-smi shows, against what the config asks for on this machine."""
    found, asks = machine.gpu_bytes(), _asks(cfg)
    if planning(cfg):
        return Check("GPUs", WARN, "none here; the rest is planned for placement.nodes", "run it again on that machine")
    if not found and asks:
        next_step = "check the driver, or set placement.nodes to plan for another machine"
        return Check("GPUs", FAIL, "none, and the config asks for some", next_step)
    if not found:
        return Check("GPUs", OK, "none here; the run computes on CPUs")
    listed = f"{len(found)} with {size(min(found))}" + (" and more" if max(found) > min(found) else "")
    if asks:
        return Check("GPUs", OK, listed)
    return Check("GPUs", WARN, f"{listed}, unused", "set placement.engine_gpus and learner_gpus, see docs/placement.md")


def shared_memory(cfg: Config) -> Check:
    """/dev/shm against Ray's object store and the weights that this config publishes through it."""
    parts = {name: count for name, count in beside(cfg).items() if "store" in name or "weights" in name}
    if not SHM.is_dir():
        return Check("/dev/shm", WARN, "there is none", "Ray keeps its store on the disk, which is slower")
    needs = " + ".join(f"{size(count)} {name.removesuffix(', at most')}" for name, count in parts.items())
    next_step = f"it holds {needs}: mount it larger (docker run --shm-size), or lower ray.object_store_mb"
    return room("/dev/shm", shutil.disk_usage(SHM).free, sum(parts.values()), WARN, next_step)
