"""BM25's scored matrix made on disk, for corpora whose tokens do not fit in memory.

Owns the runs of postings (made once, in row order, each whole or not there) and their merge by token. Promises the bits
of `ssp.search.bm25.build`, bounded memory, and that a killed build goes on after its last run. Refuses to search.
"""

from __future__ import annotations

import math
import os
import shutil
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ssp.base.errors import InputError
from ssp.search.index.documents import MappedDocuments
from ssp.search.tokens import tokenise

RUN_TOKENS = 8_000_000
"""Tokens in one run: about 300 MB while it is sorted."""
MERGED_POSTINGS = 16_000_000
"""Postings that are merged at a time: about 700 MB."""

Report = Callable[[int, int], None]


class _Vocabulary(dict[str, int]):
    """Token → number, by first appearance."""

    def __missing__(self, token: str) -> int:
        value = self[token] = len(self)
        return value


def scan(documents: MappedDocuments, folder: Path, report: Report) -> None:
    """Write the runs of all `documents` below `folder`, after those that are there. `report`: rows done, rows in all.

    A run holds, for its rows: `tokens` (those that occur), `starts` (where each one's postings begin), `rows`, `counts`,
    `lengths` (tokens a row) and `words.txt` (tokens that no earlier run has).
    """
    vocabulary, row = _Vocabulary(), 0
    for run in _runs(folder):
        for word in (run / "words.txt").read_text(encoding="utf-8").split():
            vocabulary[word]  # noqa: B018  numbered as when it was first met
        row += len(np.load(run / "lengths.npy", mmap_mode="r"))
    known, first = len(vocabulary), row
    ids, lengths = array("i"), array("i")
    for document in documents.stream(row):
        before = len(ids)
        ids.extend(map(vocabulary.__getitem__, tokenise(document.contents)))
        lengths.append(len(ids) - before)
        row += 1
        if row % 5000 == 0 or row == documents.rows:
            report(row, documents.rows)
        if len(ids) >= RUN_TOKENS or row == documents.rows:
            words = list(vocabulary)[known:] if len(vocabulary) > known else []
            _write_run(folder, np.frombuffer(ids, np.int32), np.frombuffer(lengths, np.int32), first, words)
            known, first, ids, lengths = len(vocabulary), row, array("i"), array("i")


def _write_run(
    folder: Path, ids: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], first: int, words: list[str]
) -> None:
    rows = np.repeat(np.arange(first, first + len(lengths), dtype=np.int64), lengths)
    keys, counts = np.unique((ids.astype(np.int64) << 32) | rows, return_counts=True)
    tokens, starts = np.unique((keys >> 32).astype(np.int32), return_index=True)
    arrays = {"tokens": tokens, "starts": np.append(starts, len(keys)).astype(np.int64), "lengths": lengths}
    arrays |= {"rows": (keys & 0xFFFFFFFF).astype(np.int32), "counts": counts.astype(np.int32)}
    aside = folder / "unfinished"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for name, values in arrays.items():
        with (aside / f"{name}.npy").open("wb") as stream:
            np.save(stream, values)
            stream.flush()
            os.fsync(stream.fileno())
    with (aside / "words.txt").open("w", encoding="utf-8") as text:
        text.write("\n".join(words))
        text.flush()
        os.fsync(text.fileno())
    aside.rename(folder / f"run-{len(_runs(folder)):06d}")


def _runs(folder: Path) -> list[Path]:
    return sorted(folder.glob("run-*"))


def merge_runs(folder: Path, out: Path, k1: float, b: float, report: Report) -> None:
    """Scores of all postings, sorted by token and row, as `data.npy`, `rows.npy`, `indptr.npy`, `tokens.txt` in `out`.

    `report`: postings done, postings in all. InputError for a corpus without one token.
    """
    runs = _runs(folder)
    words = [word for run in runs for word in (run / "words.txt").read_text(encoding="utf-8").split()]
    lengths = np.concatenate([np.load(run / "lengths.npy") for run in runs])
    if not words:
        found = f"{len(lengths)} documents without a word"
        raise InputError("an index needs at least one document with a word in it", found, "check the corpus file")
    frequency = np.zeros(len(words), dtype=np.int64)
    for run in runs:
        frequency[np.load(run / "tokens.npy")] += np.diff(np.load(run / "starts.npy"))
    indptr = np.concatenate([[0], np.cumsum(frequency)])
    total = int(indptr[-1])
    weights, norms = _weights(frequency, len(lengths)), k1 * ((1 - b) + b * lengths / lengths.mean())
    out.mkdir(exist_ok=True)
    data = np.lib.format.open_memmap(out / "data.npy", "w+", np.float32, (total,))
    rows = np.lib.format.open_memmap(out / "rows.npy", "w+", np.int32, (total,))
    for first, last in _groups(indptr):
        start, end = indptr[first], indptr[last]
        local, counts = _gathered(runs, first, last, indptr[first : last + 1] - start)
        # As bm25s's "lucene" scores: in double precision but for idf, whatever the order of the rows.
        saturation = counts / (norms[local] + counts)
        data[start:end] = np.repeat(weights[first:last], frequency[first:last]) * saturation
        rows[start:end] = local
        report(int(end), total)
    data.flush()
    rows.flush()
    np.save(out / "indptr.npy", indptr)
    (out / "tokens.txt").write_bytes("".join(f"{word}\n" for word in words).encode())


def _weights(frequency: npt.NDArray[np.int64], total: int) -> npt.NDArray[np.float32]:
    """Lucene's idf of each token."""
    values, where = np.unique(frequency, return_inverse=True)
    idf = [math.log(1 + (total - n + 0.5) / (n + 0.5)) for n in values.tolist()]
    return np.array(idf, dtype=np.float32)[where]


def _groups(indptr: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Consecutive tokens with at most MERGED_POSTINGS postings together (or one token alone)."""
    first, tokens = 0, len(indptr) - 1
    while first < tokens:
        last = int(np.searchsorted(indptr, indptr[first] + MERGED_POSTINGS, side="right")) - 1
        last = min(tokens, max(last, first + 1))
        yield first, last
        first = last


def _gathered(
    runs: list[Path], first: int, last: int, heads: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Rows and counts of the postings of tokens [first, last), by token and row. `heads`: where each begins here."""
    rows, counts = np.empty(heads[-1], np.int32), np.empty(heads[-1], np.float32)
    heads = heads[:-1].copy()
    for run in runs:  # in row order, so that each goes behind the one before
        arrays = {name: np.load(run / f"{name}.npy", mmap_mode="r") for name in ("tokens", "starts", "rows", "counts")}
        low, high = np.searchsorted(arrays["tokens"], [first, last])
        if low == high:
            continue
        tokens, starts = arrays["tokens"][low:high] - first, np.asarray(arrays["starts"][low : high + 1])
        sizes = np.diff(starts)
        places = np.repeat(heads[tokens] - starts[:-1], sizes) + np.arange(starts[0], starts[-1])
        rows[places] = arrays["rows"][starts[0] : starts[-1]]
        counts[places] = arrays["counts"][starts[0] : starts[-1]]
        heads[tokens] += sizes
    return rows, counts
