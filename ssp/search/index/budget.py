"""What an index needs, compared with the memory that there is before it is loaded."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ssp.base.errors import hold

MB = 2**20
OWN_CGROUPS, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def available_mb() -> float:
    """MB that this process may still take: what is free, or what its cgroups (version 2) leave, page cache not counted."""
    import psutil  # a slow import

    limits = [psutil.virtual_memory().available / MB]
    with suppress(OSError, StopIteration):
        lines = OWN_CGROUPS.read_text().splitlines()
        own = CGROUPS / next(line[3:] for line in lines if line.startswith("0::")).lstrip("/")
        for folder in (own, *(above for above in own.parents if above.is_relative_to(CGROUPS))):
            with suppress(OSError, ValueError, KeyError):  # "max", or not told
                stat = dict(row.split() for row in (folder / "memory.stat").read_text().splitlines())
                cache = sum(int(stat.get(f"{kind}_file", 0)) for kind in ("active", "inactive"))
                used = int((folder / "memory.current").read_text()) - cache
                limits.append((int((folder / "memory.max").read_text()) - used) / MB)
    return min(limits)


def check(loaded: Mapping[str, float]) -> None:
    """InputError when what a process loads (name → MB) is more than `available_mb`."""
    free, needed = available_mb(), sum(loaded.values())
    parts = ", ".join(f"{name} {mb:,.0f}" for name, mb in loaded.items())
    found = f"{needed:,.0f} MB ({parts}), and {free:,.0f} MB may be used"
    step = "take more retriever.shards, or a smaller index (--faiss IVF4096,SQ8)"
    hold(needed <= free, "what a process loads fits its memory", found, step)
