"""Where a process computes: `engine.device`; and what it gives back of its memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ssp.base.errors import hold

if TYPE_CHECKING:
    import torch


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt."""


def find(asked: str) -> torch.device:
    """cpu; cuda, the first GPU that this process sees (an actor sees those that it was given); or auto: a GPU where it sees
    one. InputError for cuda where it sees none."""
    import torch  # costs what ledgers and shards start without

    seen = torch.cuda.is_available()
    rule, step = "engine.device=cuda needs a GPU that torch sees", "set engine.device=auto, or install torch for CUDA"
    hold(seen or asked != "cuda", rule, f"none, by torch {torch.__version__}", step)
    return torch.device(("cuda" if seen else "cpu") if asked == "auto" else asked)


def frugal() -> None:
    """Have oneDNN keep fewer than its 1,024 compiled products, of a megabyte each, of shapes that hardly come twice. Call
    before the first is made."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def keep_pages() -> None:
    """Have glibc take large arrays from its heap, and keep them there until `give_back`: else each is mapped anew, and the
    kernel clears its pages, a tenth to a quarter of a learner's CPU time. For a process that computes in steps."""
    if (set_ := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        set_(_MMAP_MAX, 0)
        set_(_TRIM_THRESHOLD, -1)


def give_back(below: float = 0.25) -> None:
    """Return what this process has freed, where this machine has less than the share `below` of its memory left: taking it
    again costs seconds. glibc keeps it: 2.4 of 4.6 GB, after a step of SmolLM2-135M."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None and _left() < below:
        trim(0)


def _left() -> float:
    """Share of the machine's memory that is free, or could be at once."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return float(int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0]))
