"""How good and how fast a dense index is, measured on its own corpus.

Owns the sample of questions, recall against exact search, and milliseconds a query for some knobs. Promises that recall is
measured or said to be unknown; that figures carry their machine and date. Refuses to change an index.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from ssp.errors import InputError
from ssp.files import whole
from ssp.index import store
from ssp.search.dense import FaissIndex, FlatIndex, Matrix, faiss, flat_vectors
from ssp.search.hits import NO_ROW, Hits, Knobs, Vectors, merge
from ssp.search.shard import DENSE, Documents, Encoder, Shard

FILE = "calibration.json"
EF_SEARCH = (16, 32, 64, 128, 256)
NPROBE = (1, 4, 16, 64, 256)
WANTED = 0.95
"""Recall that is wanted by default."""


class Searched(Protocol):
    """A vector index that says which knobs it has."""

    knobs: tuple[str, ...]

    def search(self, vectors: Vectors, k: int, knobs: Knobs) -> Hits:
        """Best `k` rows a vector."""


@dataclass(frozen=True)
class Setting:
    """One setting of the knobs: recall (None: unknown), milliseconds a query alone and among 32."""

    ef_search: int
    nprobe: int
    recall: float | None
    ms_1: float
    ms_32: float

    @property
    def knobs(self) -> Knobs:
        """As a request takes them."""
        return Knobs(self.ef_search, self.nprobe)

    def __str__(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in asdict(self.knobs).items() if v) or "as built"


@dataclass(frozen=True)
class Calibration:
    """What `calibrate` found: `settings` in the order of their cost; recall is that of `k` rows over `queries` questions.

    `load`: runnable processes a core before it began; above 1, the times are too high.
    """

    retriever: str
    k: int
    queries: int
    settings: tuple[Setting, ...]
    machine: str
    threads: int
    load: float
    date: str

    def smallest(self, recall: float = WANTED) -> Setting | None:
        """The cheapest setting that reaches `recall`; None when none does or recall is unknown."""
        return next((s for s in self.settings if s.recall is not None and s.recall >= recall), None)

    def table(self) -> str:
        """For people: a line each, and which setting reaches `WANTED`."""
        lines = [
            f"{self.retriever}: recall@{self.k} of {self.queries} questions, {self.machine}, {self.threads} threads"
        ]
        lines.append(f"  {'setting':32} {'recall':>8} {'ms alone':>9} {'ms of 32':>9}")
        for setting in self.settings:
            recall = "unknown" if setting.recall is None else f"{setting.recall:.3f}"
            lines.append(f"  {setting!s:32} {recall:>8} {setting.ms_1:9.3f} {setting.ms_32:9.3f}")
        if any(setting.recall is None for setting in self.settings):
            lines.append("  recall unknown: the exact vectors are not here (ssp index --save-embedding keeps them)")
        else:
            best = self.smallest()
            reached = f"recall {WANTED:g} is reached with: {best}" if best else f"no setting reaches recall {WANTED:g}"
            lines.append(f"  {reached}")
        return "\n".join(lines)

    def save(self, folder: Path) -> None:
        """Write `FILE` into `folder`, whole or not at all. OSError when it cannot."""
        with whole(folder / FILE) as aside:
            aside.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load_from(cls, folder: Path, retriever: str) -> Calibration | None:
        """What `save` wrote; None where there is none, or one of another retriever. InputError for a broken one."""
        try:
            body = json.loads((folder / FILE).read_bytes())
            if body["retriever"] != retriever:
                return None
            return cls(**{**body, "settings": tuple(Setting(**setting) for setting in body["settings"])})
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            rule = f"{FILE} is what a calibration wrote"
            raise InputError(rule, f"{folder}: {error}", "remove it: it is made again") from error


def calibrate(
    indexes: Sequence[Searched],
    queries: Vectors,
    k: int,
    exact: Hits | None,
    retriever: str = "",
    grid: Sequence[Knobs] = (),
    seconds: float = 0.5,
) -> Calibration:
    """Measure the `indexes` (all shards, one after the other) with `queries [n, d]` and each setting of `grid`.

    `exact`: the true best `k` (of a `FlatIndex`); None: recall is unknown. `grid` default: knobs as built, then a range of
    those that the index has. `seconds`: for each figure. InputError for no queries, or knobs that the index has not.
    """
    if not len(queries):
        raise InputError("a calibration needs questions", "none", "give a corpus with at least one document")
    if exact is not None and len(exact) != len(queries):
        raise ValueError(f"{len(exact)} exact answers to {len(queries)} queries")
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    settings = []
    for knobs in grid or default_grid(indexes[0].knobs):
        share = None if exact is None else recall(_search(indexes, queries, k, knobs), exact)
        alone, many = (_ms(indexes, queries, k, knobs, batch, seconds) for batch in (1, 32))
        settings.append(Setting(knobs.ef_search, knobs.nprobe, share, alone, many))
    date = datetime.now(UTC).isoformat(timespec="seconds")
    threads = int(faiss.omp_get_max_threads())
    ordered = tuple(sorted(settings, key=lambda s: (s.ms_32, s.ms_1)))
    return Calibration(retriever, k, len(queries), ordered, machine(), threads, load, date)


def calibrate_folder(
    folder: Path, shards: Sequence[Shard], encoder: Encoder, k: int = 10, count: int = 200, seconds: float = 0.5
) -> Calibration:
    """Measure the dense index of an index folder, opened as `shards` (all of it), with `count` questions of its own corpus.

    Exact vectors are those of the folder, if it keeps them. InputError for shards without a dense index, no questions.
    """
    indexes = [shard.dense for shard in shards if isinstance(shard.dense, FlatIndex | FaissIndex)]
    if not indexes or len(indexes) != len(shards):
        raise InputError("a calibration measures a dense index", f"{folder} has none here", "build one: ssp index")
    each = -(-count // len(shards))
    texts = [text for shard in shards for text in questions(shard.documents, each)]
    queries = encoder.encode_queries(texts)[0] if texts else np.empty((0, 0), np.float32)
    parts = stored_vectors(folder) if texts else None
    exact = None if parts is None else merge([FlatIndex(v, first).search(queries, k) for v, first in parts], k)
    return calibrate(indexes, queries, k, exact, measured(folder), seconds=seconds)


def measured(folder: Path) -> str:
    """The retriever that a calibration of this folder is of: the dense index, also where a search asks words too."""
    return store.name_of(store.read_manifest(folder), DENSE)


def stored_vectors(folder: Path) -> list[tuple[Matrix, int]] | None:
    """The vectors that the dense index of a folder was made from, memory-mapped, and the first row of each table.

    From its Flat index, its saved embedding, or the flat storage inside its HNSW parts; None where it has none of them.
    """
    manifest = store.read_manifest(folder)
    if manifest.dense is None:
        return None
    for name in (store.VECTORS, store.EMBEDDING):
        if name in manifest.files:
            return [(np.load(folder / name, mmap_mode="r"), 0)]
    try:
        parts = [flat_vectors(folder / name) for name in manifest.vectors]
    except InputError:  # an index that keeps codes, not vectors: the answer is that there are none
        return None
    return [(part, manifest.span(i)[0]) for i, part in enumerate(parts)]


def default_grid(knobs: Sequence[str]) -> list[Knobs]:
    """As built, and a range of the knobs that the index has: of nprobe where it has both."""
    if "nprobe" in knobs:
        return [Knobs(), *(Knobs(nprobe=n) for n in NPROBE)]
    return [Knobs(), *(Knobs(ef_search=n) for n in EF_SEARCH if "ef_search" in knobs)]


def recall(found: Hits, exact: Hits) -> float:
    """The share of the exact rows that were found, over all queries. Of equal scores at the cut only the lowest rows count,
    so that a corpus with copies shows less than 1 at best."""
    hit = total = 0
    for some, true in zip(found.rows.tolist(), exact.rows.tolist(), strict=True):
        wanted = set(true) - {NO_ROW}
        hit, total = hit + len(wanted & set(some)), total + len(wanted)
    return hit / total if total else math.nan


def _search(indexes: Sequence[Searched], queries: Vectors, k: int, knobs: Knobs) -> Hits:
    return merge([index.search(queries, k, knobs) for index in indexes], k)


def _ms(indexes: Sequence[Searched], queries: Vectors, k: int, knobs: Knobs, batch: int, seconds: float) -> float:
    """Median milliseconds a query in batches of `batch`, over `seconds`, at least three times."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < 3 or (time.perf_counter() < end and len(taken) < 1000):
        asked = queries[np.arange(len(taken) * batch, (len(taken) + 1) * batch) % len(queries)]
        start = time.perf_counter()
        _search(indexes, asked, k, knobs)
        taken.append((time.perf_counter() - start) * 1e3 / batch)
    return statistics.median(taken)


def questions(documents: Documents, count: int, seed: int = 0) -> list[str]:
    """Up to `count` texts as someone might search them: titles and first sentences of documents drawn at random, in turn.

    Documents without a word are left out.
    """
    rng = np.random.default_rng(seed)
    rows = rng.choice(documents.rows, min(count, documents.rows), replace=False) + documents.first
    texts = []
    for i, document in enumerate(documents.gather(np.sort(rows).astype(np.int64))):
        title, _, text = document.contents.partition("\n")
        sentence = re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]
        asked = title.strip().strip('"') if i % 2 or not sentence else sentence
        texts.append(" ".join(asked.split()[:24]))
    return [text for text in texts if text]


def machine() -> str:
    """The processor's name, cores and system, for a record."""
    name = platform.processor() or platform.machine()
    try:
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        name = match.group(1).strip() if match else name
    except OSError:
        pass  # not Linux: the platform's word for it stays
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


def describe_start(found: Calibration | None) -> str:
    """What a start prints of an index."""
    return found.table() if found else "not calibrated: recall and speed of the dense index are unknown"
