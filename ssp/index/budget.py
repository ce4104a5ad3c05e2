"""What an index needs, before it is loaded or built.

Owns the estimates of memory and of time, the comparison with what the process may use, and the choice of an index for
both. Promises a table with every refusal, and a reason for every index that was not chosen. Refuses to promise recall:
`ssp.index.calibration` measures it.

Times are of one core (AMD EPYC, Zen 4, AVX-512; tests/bench/index_speed.py, 200k x 768): good for an order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ssp.errors import InputError
from ssp.search.hits import Knobs

MB = 2**20
OWN_CGROUPS, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
PROCESS_MB = 300
"""A Python process with faiss, numpy and Ray in it."""
ROOM = 0.8
"""The share of the memory that `choose` gives to an index: documents, encoder and the rest of the machine need some."""
SCAN = 25e9
"""Bytes of rows a second that one core reads for one query, float32."""
SCAN_LISTS = 11e9
"""The same for rows in inverted lists."""
SCAN_CODES = 7e9
"""Dimensions a second that one core compares in 8 or 16 bits."""
SCAN_PQ = 1.6e9
"""Bytes of product-quantiser codes a second."""
HOP = 0.6e-9
"""Seconds a dimension for one vector that a graph visits: a cache miss and a product."""
HOPS = 18
"""Vectors visited for each candidate that is kept (efSearch), M = 32."""
CALL_MS = 0.15
"""Milliseconds of a call whatever it searches."""


@dataclass(frozen=True)
class Component:
    """Something that takes `mb` MB (2**20 bytes). `mapped`: of the page cache, given back when others need it."""

    name: str
    mb: float
    mapped: bool = False
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """The index for a budget: faiss's `factory`, its knobs, what it takes, and why this one (`reasons`, a line each)."""

    factory: str
    knobs: Knobs
    mb: float
    ms: float
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.reasons)


def index_bytes(factory: str, rows: int, dim: int) -> int:
    """Bytes in memory of the index that faiss's `index_factory` makes, with `rows` rows of width `dim`.

    InputError for a factory that faiss refuses.
    """
    from ssp.search.dense import faiss  # here, since folders without vectors are checked too

    try:
        index = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        found = f"{factory}: {str(error).splitlines()[0][-160:]}"
        raise InputError("an index is one that faiss's index_factory makes", found, "e.g. Flat or HNSW32") from error
    return int(_row_bytes(index, faiss) * rows + _fixed_bytes(index, faiss))


def _row_bytes(index: Any, faiss: Any) -> float:
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return _row_bytes(index.index, faiss)
    if isinstance(index, faiss.IndexIDMap):
        return 8 + _row_bytes(index.index, faiss)
    if isinstance(index, faiss.IndexRefine):
        return _row_bytes(index.base_index, faiss) + _row_bytes(index.refine_index, faiss)
    if isinstance(index, faiss.IndexHNSW):
        # the lowest level, its share of those above, level and offset
        above = index.hnsw.nb_neighbors(1)
        return _row_bytes(index.storage, faiss) + 4 * (index.hnsw.nb_neighbors(0) + above / (above - 1)) + 12
    if isinstance(index, faiss.IndexIVF):
        return float(index.code_size) + 8
    return float(index.sa_code_size())


def _fixed_bytes(index: Any, faiss: Any) -> float:
    """What does not grow with the rows: centroids, matrices."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        matrices = sum(index.chain.at(i).d_in * index.chain.at(i).d_out for i in range(index.chain.size()))
        return 4 * matrices + _fixed_bytes(index.index, faiss)
    if isinstance(index, faiss.IndexIDMap):
        return _fixed_bytes(index.index, faiss)
    if isinstance(index, faiss.IndexRefine):
        return _fixed_bytes(index.base_index, faiss)
    pq = getattr(index, "pq", None)
    codebook = 4.0 * pq.d * pq.ksub if pq is not None else 0.0
    return codebook + (index.nlist * _row_bytes(index.quantizer, faiss) if isinstance(index, faiss.IndexIVF) else 0.0)


def available_mb(memory_mb: int = 0) -> float:
    """MB that this process may still take: the least of what is free, its cgroup's rest, and `memory_mb` (0: no limit)."""
    limits = [psutil.virtual_memory().available / MB, *_cgroup_rest()]
    return min([*limits, float(memory_mb)] if memory_mb else limits)


def _cgroup_rest() -> Iterator[float]:
    """MB that the cgroups of this process (version 1 or 2) leave, page cache not counted."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        root = CGROUPS / kinds
        limit, usage, cache = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if kinds
            else ("memory.max", "memory.current", "inactive_file")
        )
        for folder in {root / path.lstrip("/"), root}:
            try:
                most = (folder / limit).read_text().strip()
                stat = dict(row.split() for row in (folder / "memory.stat").read_text().splitlines())
                if most != "max" and int(most) < 2**60:
                    used = int((folder / usage).read_text()) - int(stat[cache])
                    yield (int(most) - used) / MB
            except (OSError, ValueError, KeyError):
                continue  # not there, or not told: the machine's free memory is what is left to go by


def table(components: Sequence[Component]) -> str:
    """Lines of component, MB and note, and the sum of what is not mapped."""
    rows = [(c.name, c.mb, ", ".join(filter(None, ("page cache" if c.mapped else "", c.note)))) for c in components]
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
            "take more shards on more machines, a smaller index (ssp index --faiss auto), or raise retriever.memory_mb"
        )
        raise InputError("what a process loads fits its memory", found, step)
    if loaded + mapped > free:
        return (
            f"{mapped:,.0f} MB are memory-mapped beside {loaded:,.0f} MB, and {free:,.0f} MB are free: searches will read "
            f"from disk\n{table(components)}"
        )
    return ""


def choose(rows: int, dim: int, memory_mb: float = 0, latency_ms: float = 50.0, shards: int = 1) -> Choice:
    """The most exact index whose memory and time for a single query (one core a shard, `shards` at once) fit.

    `memory_mb`: of one machine that holds all shards (0: what is free), of which an index may take `ROOM`.
    InputError when none fits.
    """
    budget = float(memory_mb) or available_mb()
    lines, taken = [f"{rows:,} rows of {dim}, {budget:,.0f} MB, {latency_ms:g} ms a query, {shards} shards:"], None
    for factory, knobs, why in _candidates(rows, dim):
        mb = index_bytes(factory, rows, dim) / MB + PROCESS_MB * shards
        ms = expected_ms(factory, knobs, -(-rows // shards), dim)
        if mb > ROOM * budget:
            verdict = "no: memory"
        elif ms > latency_ms:
            verdict = "no: time"
        else:
            verdict = "no: a more exact one fits" if taken else "taken"
            taken = taken or (factory, knobs, mb, ms)
        lines.append(f"  {factory:22} {mb:10,.0f} MB {ms:10,.2f} ms  {verdict}  ({why})")
    if taken is None:
        step = "allow more memory or time, or take more shards on more machines"
        raise InputError("some index fits the memory and the time", "\n".join(lines), step)
    return Choice(*taken, tuple(lines))


def _candidates(rows: int, dim: int) -> Iterator[tuple[str, Knobs, str]]:
    """Factory, knobs and a word on each that suits this many rows, most exact first."""
    yield "Flat", Knobs(), "exact"
    yield "SQfp16", Knobs(), "16 bits a number, all rows"
    yield "HNSW32", Knobs(ef_search=128), "a graph, slow to build"
    if rows < 10_000:
        return
    lists = 2 ** round(math.log2(4 * math.sqrt(rows)))
    knobs = Knobs(nprobe=max(16, lists // 32))
    yield f"IVF{lists},Flat", knobs, "some of the rows"
    yield f"IVF{lists},SQ8", knobs, "some of the rows, 8 bits a number"
    if codes := next((n for n in (8, 6, 4, 12, 2, 1) if dim % n == 0), 0):
        yield f"IVF{lists},PQ{dim // codes}", knobs, f"some of the rows, 8 bits for {codes}: low recall, calibrate"


def expected_ms(factory: str, knobs: Knobs, rows: int, dim: int) -> float:
    """Milliseconds of a single query on one core, for the factories that `choose` knows."""
    if factory.startswith("HNSW"):
        return CALL_MS + 1e3 * HOP * dim * HOPS * knobs.ef_search * max(1.0, math.log10(max(rows, 10)) / 5.3)
    seconds, visited = 0.0, float(rows)
    if factory.startswith("IVF"):
        lists = int(factory[3:].split(",")[0])
        seconds, visited = lists * dim * 4 / SCAN, rows * min(1.0, knobs.nprobe / lists)
    code = factory.split(",")[-1]
    if code == "Flat":
        seconds += visited * dim * 4 / (SCAN if visited == rows else SCAN_LISTS)
    elif code.startswith("SQ"):
        seconds += visited * dim / SCAN_CODES
    else:
        seconds += visited * int(code[2:]) / SCAN_PQ
    return CALL_MS + 1e3 * seconds
