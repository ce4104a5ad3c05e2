"""Where a process computes, and in what numbers (`engine.device` and `dtype`); and what it gives back
of its memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ssp.base.errors import hold

if TYPE_CHECKING:
    import torch

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
"""Parameters of glibc's mallopt."""
CPU, BFLOAT16 = Path("/proc/cpuinfo"), {"avx512_bf16", "amx_bf16", "bf16"}
"""What the kernel says of the processor, and its words for products in bfloat16 (x86-64, Arm)."""
Dtype = Literal["float32", "bfloat16", "auto"]
"""What weights are made of, as it is asked for."""
OWN_CGROUPS, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def find(asked: str) -> torch.device:
    """The device that is asked for: cpu; cuda, the first GPU that this process sees (an actor sees
    those that it was given); or auto, a GPU where it sees one. InputError for cuda where it sees
    none."""
    import torch  # costs what ledgers and shards start without

    seen = torch.cuda.is_available()
    rule = "engine.device=cuda needs a GPU that torch sees"
    step = "set engine.device=auto, or install torch for CUDA"
    hold(seen or asked != "cuda", rule, f"none, by torch {torch.__version__}", step)
    if asked == "auto":
        return torch.device("cuda" if seen else "cpu")
    return torch.device(asked)


def dtype(asked: Dtype, device: str) -> Dtype:
    """float32 or bfloat16; for auto the faster one: bfloat16 on a GPU that is asked for by name and
    on a CPU that multiplies it, else float32, which is then fifty times as fast."""
    if asked != "auto":
        return asked
    words = CPU.read_text().split() if CPU.is_file() else ()
    fast = device == "cuda" or not BFLOAT16.isdisjoint(words)
    return "bfloat16" if fast else "float32"


def frugal() -> None:
    """Have oneDNN keep 128 compiled products instead of 1,024: each takes a megabyte, and their
    shapes hardly come twice. Call before the first is made."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def keep_pages() -> None:
    """Have glibc take large arrays from its heap, and keep them there until `give_back`. Otherwise
    each is mapped anew, and the kernel clears its pages: a tenth to a quarter of a learner's CPU
    time. For a process that computes in steps."""
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, -1)


def one_heap() -> None:
    """Have glibc take the memory of all threads from one heap. Otherwise each of Ray's threads has
    its own, in which what other threads free leaves holes: a driver grows by a tenth of a megabyte
    a step. Call before threads start."""
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)


def give_back(below: float = 0.25) -> None:
    """Return what this process has freed, where less than the share `below` of a memory that bounds
    it is left; taking it again costs seconds. glibc keeps it: 2.4 of 4.6 GB, after a step of
    SmolLM2-135M."""
    trim = _glibc("malloc_trim")
    if trim is not None and any(left < below * total for left, total in memories()):
        trim(0)


def _glibc(name: str) -> Any:
    """The C library's function of that name; None where it has none."""
    return getattr(ctypes.CDLL(None), name, None)


def available_mb() -> float:
    """MB of the host's memory that this process may still take."""
    return min(left for left, _ in memories()) / 2**20


def memories() -> Iterator[tuple[int, int]]:
    """Bytes that are left, page cache among them, and bytes in all: of the machine, and of each
    cgroup (version 2) that bounds this process."""
    import psutil  # a slow import

    machine = psutil.virtual_memory()
    yield machine.available, machine.total
    with suppress(OSError, StopIteration):
        lines = OWN_CGROUPS.read_text().splitlines()
        name = next(line[3:] for line in lines if line.startswith("0::"))
        own = CGROUPS / name.lstrip("/")
        above = [folder for folder in own.parents if folder.is_relative_to(CGROUPS)]
        for folder in (own, *above):
            with suppress(OSError, ValueError, KeyError):  # "max", or not told
                yield _cgroup(folder)


def _cgroup(folder: Path) -> tuple[int, int]:
    """Bytes that a cgroup has left, page cache among them, and bytes in all. ValueError where
    nothing bounds it."""
    lines = (folder / "memory.stat").read_text().splitlines()
    stat = dict(line.split() for line in lines)
    cache = int(stat.get("active_file", 0)) + int(stat.get("inactive_file", 0))
    most = int((folder / "memory.max").read_text())
    used = int((folder / "memory.current").read_text())
    return most - used + cache, most
