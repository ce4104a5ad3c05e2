"""BM25's scored matrix, made of runs of postings: in memory, or on disk for corpora whose tokens do not fit there.

Owns the count of the tokens, the score and its order. Promises the same bits on both ways (those of bm25s's "lucene"),
and on disk bounded memory, and that a killed build goes on after its last run. Refuses to search.
"""

from __future__ import annotations

import math
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ssp.base.errors import InputError
from ssp.base.files import sync
from ssp.search.tokens import tokenise

if TYPE_CHECKING:
    from ssp.search.documents import MappedDocuments

RUN_TOKENS, MERGED_POSTINGS = 8_000_000, 16_000_000
"""On disk: tokens in one run (300 MB while it is sorted), and postings that are merged at a time (700 MB)."""
IN_MEMORY = 1 << 20
"""Both, in memory."""

Report = Callable[[int, int], None]
Matrix = tuple[npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.int64]]
"""Scores, rows and `indptr`: the columns (tokens) of the matrix."""


class Numbers(dict[str, int]):
    """Token → number, by first appearance."""

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        return number


@dataclass(frozen=True)
class Run:
    """Postings of consecutive rows, by token and row: their `rows` and `counts`, the `tokens` that occur and where each
    one's postings start (`starts`, one more than tokens); `lengths`: tokens a row."""

    tokens: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]


def check(k1: float, b: float) -> None:
    """InputError unless BM25 has a score with these."""
    if not 0 <= k1 < math.inf or not 0 <= b <= 1:
        raise InputError("BM25 needs k1 >= 0 and 0 <= b <= 1", f"k1={k1}, b={b}", "set retriever.k1 and retriever.b")


def counted(texts: Iterable[str], numbers: Numbers, size: int, first: int = 0) -> Iterator[Run]:
    """Runs of about `size` tokens of `texts`, whose rows begin at `first`."""
    ids, lengths = array("i"), array("i")
    for text in texts:
        before = len(ids)
        ids.extend(map(numbers.__getitem__, tokenise(text)))
        lengths.append(len(ids) - before)
        if len(ids) >= size:
            yield _run(ids, lengths, first)
            first, ids, lengths = first + len(lengths), array("i"), array("i")
    if lengths:
        yield _run(ids, lengths, first)


def _run(ids: array[int], sizes: array[int], first: int) -> Run:
    lengths = np.frombuffer(sizes, dtype=np.int32)
    keys = np.frombuffer(ids, dtype=np.int32).astype(np.int64) << 32
    keys |= np.repeat(np.arange(first, first + len(lengths)), lengths)
    keys.sort()
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts, keys = np.diff(starts, append=len(keys)).astype(np.int32), keys[starts]
    numbers = (keys >> 32).astype(np.int32)
    heads = np.flatnonzero(np.diff(numbers, prepend=-1))
    return Run(numbers[heads], np.append(heads, len(keys)), (keys & 0xFFFFFFFF).astype(np.int32), counts, lengths)


def scored(
    runs: Callable[[], Iterable[Run]],
    tokens: int,
    k1: float,
    b: float,
    size: int,
    space: Callable[[str, Any, int], Any] = lambda name, kind, length: np.empty(length, kind),
    report: Report = lambda done, total: None,
) -> Matrix:
    """The matrix of the postings in `runs` (in row order) of so many `tokens`, about `size` of them at a time.

    `space` makes the arrays `data` and `rows`. InputError for a corpus without one token.
    """
    frequency, sizes = np.zeros(tokens, dtype=np.int64), [np.zeros(0, dtype=np.int32)]
    for run in runs():
        frequency[run.tokens] += np.diff(run.starts)
        sizes.append(run.lengths)
    lengths = np.concatenate(sizes)
    if not tokens:
        found = f"{len(lengths)} documents without a word" if len(lengths) else "no documents"
        raise InputError("an index needs at least one document with a word in it", found, "check the corpus file")
    indptr = np.concatenate([[0], np.cumsum(frequency)])
    total, first = int(indptr[-1]), 0
    weights, norms = _weights(frequency, len(lengths)), k1 * ((1 - b) + b * lengths / lengths.mean())
    data, rows = space("data", np.float32, total), space("rows", np.int32, total)
    while first < tokens:
        start = indptr[first]
        last = min(tokens, max(int(np.searchsorted(indptr, start + size, side="right")) - 1, first + 1))
        local, counts = _gathered(runs(), first, last, indptr[first : last + 1] - start)
        # As bm25s's "lucene" scores: in double precision but for idf, whatever the order of the rows.
        saturation = counts / (norms[local] + counts)
        data[start : indptr[last]] = np.repeat(weights[first:last], frequency[first:last]) * saturation
        rows[start : indptr[last]] = local
        report(int(indptr[last]), total)
        first = last
    return data, rows, indptr


def _weights(frequency: npt.NDArray[np.int64], total: int) -> npt.NDArray[np.float32]:
    """Lucene's idf of each token."""
    values, where = np.unique(frequency, return_inverse=True)
    idf = [math.log(1 + (total - n + 0.5) / (n + 0.5)) for n in values.tolist()]
    return np.array(idf, dtype=np.float32)[where]


def _gathered(
    runs: Iterable[Run], first: int, last: int, heads: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Rows and counts of the postings of tokens [first, last), by token and row. `heads`: where each begins here."""
    rows, counts = np.empty(heads[-1], np.int32), np.empty(heads[-1], np.float32)
    heads = heads[:-1].copy()
    for run in runs:  # in row order, so that each goes behind the one before
        low, high = np.searchsorted(run.tokens, [first, last])
        if low == high:
            continue
        tokens, starts = run.tokens[low:high] - first, np.asarray(run.starts[low : high + 1])
        sizes = np.diff(starts)
        places = np.repeat(heads[tokens] - starts[:-1], sizes) + np.arange(starts[0], starts[-1])
        rows[places] = run.rows[starts[0] : starts[-1]]
        counts[places] = run.counts[starts[0] : starts[-1]]
        heads[tokens] += sizes
    return rows, counts


def scan(documents: MappedDocuments, folder: Path, report: Report) -> None:
    """Write the runs of all `documents` below `folder`, after those that are there: a folder a run, with a file for each of
    its arrays and `words.txt` (tokens that no earlier run has). `report`: rows done, rows in all."""
    numbers, row = Numbers(), 0
    for word in _words(folder):
        numbers[word]  # noqa: B018  numbered as when it was first met
    known, row = len(numbers), sum(len(np.load(run / "lengths.npy", mmap_mode="r")) for run in _folders(folder))

    def contents() -> Iterator[str]:
        for done, document in enumerate(documents.stream(row), row + 1):
            if done % 5000 == 0 or done == documents.rows:
                report(done, documents.rows)
            yield document.contents

    aside = folder / "unfinished"
    for run in counted(contents(), numbers, RUN_TOKENS, row):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for name, values in vars(run).items():
            np.save(aside / f"{name}.npy", values)
        (aside / "words.txt").write_text("\n".join(islice(numbers, known, None)), encoding="utf-8")
        known = len(numbers)
        for path in aside.iterdir():
            sync(path)
        aside.rename(folder / f"run-{len(_folders(folder)):06d}")


def merge_runs(folder: Path, out: Path, k1: float, b: float, report: Report) -> None:
    """The matrix of the runs in `folder`, as `data.npy`, `rows.npy`, `indptr.npy`, `tokens.txt` in `out`.

    `report`: postings done, postings in all. InputError for a corpus without one token.
    """

    def runs() -> Iterator[Run]:
        for run in _folders(folder):
            yield Run(*(np.load(run / f"{field.name}.npy", mmap_mode="r") for field in fields(Run)))

    words = list(_words(folder))
    out.mkdir(exist_ok=True)
    space = lambda name, kind, length: np.lib.format.open_memmap(out / f"{name}.npy", "w+", kind, (length,))  # noqa: E731
    data, rows, indptr = scored(runs, len(words), k1, b, MERGED_POSTINGS, space, report)
    for made in (data, rows):
        made.flush()  # type: ignore[union-attr]
    np.save(out / "indptr.npy", indptr)
    (out / "tokens.txt").write_bytes("".join(f"{word}\n" for word in words).encode())


def _folders(folder: Path) -> list[Path]:
    return sorted(folder.glob("run-*"))


def _words(folder: Path) -> Iterator[str]:
    for run in _folders(folder):
        yield from (run / "words.txt").read_text(encoding="utf-8").split()
