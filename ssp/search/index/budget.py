"""What an index needs, before it is loaded.

Owns the comparison of what a process would load with what it may use. Promises a table with every refusal. Refuses to
know what an index is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ssp.base.errors import InputError

MB = 2**20
OWN_CGROUPS, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
PROCESS_MB = 300
"""A Python process with faiss, numpy and Ray in it."""


@dataclass(frozen=True)
class Component:
    """Something that takes `mb` MB (2**20 bytes). `mapped`: of the page cache, given back when others need it."""

    name: str
    mb: float
    mapped: bool = False


def available_mb(memory_mb: int = 0) -> float:
    """MB that this process may still take: the least of what is free, its cgroup's rest, and `memory_mb` (0: no limit)."""
    import psutil  # a slow import

    limits = [psutil.virtual_memory().available / MB, *_cgroup_rest()]
    return min([*limits, float(memory_mb)] if memory_mb else limits)


def _cgroup_rest() -> Iterator[float]:
    """MB that the cgroups of this process and those around them (version 1 or 2) leave, page cache not counted."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        root = CGROUPS / kinds
        limit, usage, total = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            if kinds
            else ("memory.max", "memory.current", "")
        )
        own = root / path.lstrip("/")
        for folder in (own, *(above for above in own.parents if above.is_relative_to(root))):
            try:
                most = (folder / limit).read_text().strip()
                stat = dict(row.split() for row in (folder / "memory.stat").read_text().splitlines())
                if most != "max" and int(most) < 2**60:
                    cache = sum(int(stat.get(f"{total}{kind}_file", 0)) for kind in ("active", "inactive"))
                    used = int((folder / usage).read_text()) - cache
                    yield (int(most) - used) / MB
            except (OSError, ValueError, KeyError):
                continue  # not there, or not told: the machine's free memory is what is left to go by


def table(components: Sequence[Component]) -> str:
    """Lines of component and MB, and the sum of what is not mapped."""
    rows = [(c.name, c.mb, "page cache" if c.mapped else "") for c in components]
    rows.append(("in all, without page cache", sum(c.mb for c in components if not c.mapped), ""))
    width = max(len(name) for name, _, _ in rows)
    return "\n".join(f"  {name:{width}}  {mb:12,.0f} MB  {note}".rstrip() for name, mb, note in rows)


def check(components: Sequence[Component], memory_mb: int = 0) -> str:
    """A warning where what is memory-mapped does not fit beside the rest ("" where all fits).

    InputError with the table when the rest alone is more than `available_mb`.
    """
    free = available_mb(memory_mb)
    loaded, mapped = (sum(c.mb for c in components if c.mapped is kind) for kind in (False, True))
    if loaded > free:
        found = f"{loaded:,.0f} MB, and {free:,.0f} MB may be used:\n{table(components)}\n"
        step = (
            "take more retriever.shards, a smaller index (ssp index --faiss IVF4096,SQ8), or raise retriever.memory_mb"
        )
        raise InputError("what a process loads fits its memory", found, step)
    if loaded + mapped > free:
        return (
            f"{mapped:,.0f} MB are memory-mapped beside {loaded:,.0f} MB, and {free:,.0f} MB are free: searches will read "
            f"from disk\n{table(components)}"
        )
    return ""
