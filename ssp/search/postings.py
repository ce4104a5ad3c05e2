"""BM25's scored matrix, made of runs of postings: in memory, or on disk for corpora whose tokens do
not fit there. Both give the bits of bm25s's "lucene"."""

import math
import re
import threading
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import regex

from ssp.base.errors import InputError, hold
from ssp.base.words import CHARACTER, LETTER, UNSEEN
from ssp.search.documents import MappedDocuments, Progress

TOKENISER = "words-and-pairs-2"
"""The name of what `tokenise` does; stored with an index, so that an index of another tokeniser is
refused."""
_MARK = "\ufdd0"
"""What stands before a character that is a word by itself. No text has it: it is no character, so
it is cut out."""


class _Separators(dict[int, str]):
    """Translation table, filled on demand: what no word has (punctuation, symbols, separators)
    becomes a blank."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        # a control character, which is below 160, separates words
        if code >= 160 and UNSEEN.match(char):
            value = ""
        elif CHARACTER.match(char):
            value = _MARK + char
        else:
            value = char if LETTER.match(char) else " "
        self[code] = value
        return value


_SEPARATORS = _Separators()
_ASCII = bytes(ord(_SEPARATORS[code]) if code < 128 else code for code in range(256))
_OTHERS = re.compile(r"[^\x00-\x7f]+")
_STRETCH = regex.compile(rf"(?:{CHARACTER.pattern})+", regex.V1)


def tokenise(text: str) -> list[str]:
    """Index tokens of `text`, in order: the words of `ssp.base.words` (NFKC, case folded), numbers
    in their parts. Where each character is a word, the pairs of neighbours are tokens too, so that
    a word of two characters counts for more than its characters apart."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # str.translate over the whole of it would take ten times as long for one accent
    if not folded.isascii():
        folded = _OTHERS.sub(lambda other: other[0].translate(_SEPARATORS), folded)
        if _MARK in folded:
            folded = _STRETCH.sub(_with_pairs, folded.replace(_MARK, ""))
    return folded.encode().translate(_ASCII).decode().split()


def _with_pairs(stretch: "regex.Match[str]") -> str:
    characters = CHARACTER.findall(stretch[0])
    pairs = [first + second for first, second in pairwise(characters)]
    return f" {' '.join(characters + pairs)} "


Cut = Callable[[str], list[str]]
"""Cuts a text into index tokens."""
STEMS = 1 << 20
"""Words whose stems are kept at once."""


class _Stems(dict[str, str]):
    """Word → stem, filled on demand. Safe in threads; the stemmer itself is not."""

    def __init__(self, stem: Callable[[str], str]) -> None:
        super().__init__()
        self._stem, self._lock = stem, threading.Lock()

    def __missing__(self, word: str) -> str:
        with self._lock:
            stem = self._stem(word)
        if len(self) >= STEMS:
            self.clear()
        self[word] = stem
        return stem


def cutter(stemmer: str = "") -> Cut:
    """`tokenise`, with a stemmer of snowballstemmer each word brought to its stem ("porter" is what
    Lucene and Pyserini use for English). InputError for a name that it does not know."""
    if not stemmer:
        return tokenise
    import snowballstemmer

    known = sorted(snowballstemmer.algorithms())
    rule = f"a stemmer is one of {', '.join(known)}"
    hold(stemmer in known, rule, stemmer, "for example --stemmer porter")
    stems = _Stems(snowballstemmer.stemmer(stemmer).stemWord)
    return lambda text: [stems[word] for word in tokenise(text)]


def mark(stemmer: str) -> str:
    """The name of what `cutter(stemmer)` does, for an index."""
    return f"{TOKENISER}+{stemmer}" if stemmer else TOKENISER


RUN_TOKENS = 8_000_000
"""On disk: tokens in one run (300 MB while it is sorted)."""
MERGED_POSTINGS = 16_000_000
"""On disk: postings that are merged at a time (700 MB)."""
IN_MEMORY = 1 << 20
"""In memory: tokens in one run, and postings that are merged at a time."""

Matrix = tuple[npt.NDArray[np.float32], npt.NDArray[np.int32], npt.NDArray[np.int64]]
"""Scores, rows and `indptr`: the columns (tokens) of the matrix."""


class Numbers(dict[str, int]):
    """Token → number, by first appearance."""

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        return number


@dataclass(frozen=True)
class PostingRun:
    """Postings of consecutive rows, by token and row: their `rows` and `counts`, the `tokens` that
    occur, where each one's postings start (`starts`, one more than tokens), and how many tokens
    each row has (`lengths`)."""

    tokens: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]


Runs = Callable[[], Iterable[PostingRun]]
"""Gives all runs in row order, as often as it is called."""
Space = Callable[[str, Any, int], Any]
"""An array of this name, type and length."""
Report = Callable[[int, int], None]
"""Hears how many postings are done, and how many there are."""


def check(k1: float, b: float) -> None:
    """InputError unless BM25 has a score with these."""
    fits = 0 <= k1 < math.inf and 0 <= b <= 1
    hold(fits, "BM25 needs k1 >= 0 and 0 <= b <= 1", f"k1={k1}, b={b}", "set --k1 and --b")


def counted(
    texts: Iterable[str], numbers: Numbers, size: int, cut: Cut = tokenise
) -> Iterator[PostingRun]:
    """Runs of about `size` tokens of `texts`."""
    first = 0
    ids, lengths = array("i"), array("i")
    for text in texts:
        before = len(ids)
        ids.extend(map(numbers.__getitem__, cut(text)))
        lengths.append(len(ids) - before)
        if len(ids) >= size:
            yield _run(ids, lengths, first)
            first += len(lengths)
            ids, lengths = array("i"), array("i")
    if lengths:
        yield _run(ids, lengths, first)


def _run(ids: "array[int]", sizes: "array[int]", first: int) -> PostingRun:
    """The postings of rows `first` and on: the tokens `ids` of all of them, `sizes` tokens a row."""
    lengths = np.frombuffer(sizes, dtype=np.int32)
    rows = np.arange(first, first + len(lengths))
    # token and row in one number, so that one sort orders both
    keys = np.frombuffer(ids, dtype=np.int32).astype(np.int64) << 32
    keys |= np.repeat(rows, lengths)
    keys.sort()
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(starts, append=len(keys)).astype(np.int32)
    keys = keys[starts]
    tokens = (keys >> 32).astype(np.int32)
    heads = np.flatnonzero(np.diff(tokens, prepend=-1))
    ends = np.append(heads, len(keys))
    held = (keys & 0xFFFFFFFF).astype(np.int32)
    return PostingRun(tokens[heads], ends, held, counts, lengths)


def scored(
    runs: Runs,
    tokens: int,
    k1: float,
    b: float,
    size: int,
    space: Space = lambda name, kind, length: np.empty(length, kind),
    report: Report = lambda done, total: None,
) -> Matrix:
    """The matrix of the postings in `runs` of so many `tokens`, made of about `size` postings at a
    time. `space` makes the arrays `data` and `rows`. InputError for a corpus without one token."""
    frequency = np.zeros(tokens, dtype=np.int64)
    sizes = [np.zeros(0, dtype=np.int32)]
    for run in runs():
        frequency[run.tokens] += np.diff(run.starts)
        sizes.append(run.lengths)
    lengths = np.concatenate(sizes)
    documents = len(lengths)
    if not tokens:
        rule = "an index needs at least one document with a word in it"
        empty = f"{documents} documents without a word" if documents else "no documents"
        raise InputError(rule, empty, "check the corpus file")

    # Lucene's idf, once for each number of documents that a token may be in
    frequencies, which = np.unique(frequency, return_inverse=True)
    idf = [math.log(1 + (documents - n + 0.5) / (n + 0.5)) for n in frequencies.tolist()]
    weights = np.array(idf, dtype=np.float32)[which]
    norms = k1 * ((1 - b) + b * lengths / lengths.mean())

    indptr = np.concatenate([[0], np.cumsum(frequency)])
    total = int(indptr[-1])
    data, rows = space("data", np.float32, total), space("rows", np.int32, total)
    first = 0
    while first < tokens:
        start = indptr[first]
        fitting = int(np.searchsorted(indptr, start + size, side="right")) - 1
        last = min(tokens, max(fitting, first + 1))
        end = indptr[last]
        local, counts = _gathered(runs(), first, last, indptr[first : last + 1] - start)
        # As bm25s's "lucene" scores: in double precision but for idf, whatever the order of the
        # rows.
        saturation = counts / (norms[local] + counts)
        data[start:end] = np.repeat(weights[first:last], frequency[first:last]) * saturation
        rows[start:end] = local
        report(int(end), total)
        first = last
    return data, rows, indptr


def _gathered(
    runs: Iterable[PostingRun], first: int, last: int, heads: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Rows and counts of the postings of tokens [first, last), by token and row. `heads` says where
    each token's begin in the result, and at its end how many there are."""
    rows = np.empty(heads[-1], np.int32)
    counts = np.empty(heads[-1], np.float32)
    heads = heads[:-1].copy()
    for run in runs:  # in row order, so that each goes behind the one before
        low, high = np.searchsorted(run.tokens, [first, last])
        if low < high:
            tokens = run.tokens[low:high] - first
            starts = np.asarray(run.starts[low : high + 1])
            sizes = np.diff(starts)
            moved = np.repeat(heads[tokens] - starts[:-1], sizes)
            places = moved + np.arange(starts[0], starts[-1])
            rows[places] = run.rows[starts[0] : starts[-1]]
            counts[places] = run.counts[starts[0] : starts[-1]]
            heads[tokens] += sizes
    return rows, counts


def on_disk(
    documents: MappedDocuments,
    scratch: Path,
    out: Path,
    k1: float,
    b: float,
    progress: Progress,
    cut: Cut = tokenise,
) -> None:
    """Write the matrix of `documents` as `data.npy`, `rows.npy`, `indptr.npy` and `tokens.txt` in
    `out`; its runs are kept in `scratch`. `progress` hears the stages "words" (rows) and "bm25"
    (postings). InputError for a corpus without one token."""
    numbers = Numbers()

    def contents() -> Iterator[str]:
        for done, document in enumerate(documents.stream(), 1):
            if done % 5000 == 0 or done == documents.rows:
                progress("words", done, documents.rows)
            yield document.contents

    folders: list[Path] = []
    for run in counted(contents(), numbers, RUN_TOKENS, cut):
        folder = scratch / f"run-{len(folders):06d}"
        folder.mkdir()
        for name, values in vars(run).items():
            np.save(folder / f"{name}.npy", values)
        folders.append(folder)

    def runs() -> Iterator[PostingRun]:
        names = [field.name for field in fields(PostingRun)]
        for folder in folders:
            yield PostingRun(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in names))

    def space(name: str, kind: Any, length: int) -> Any:
        return np.lib.format.open_memmap(out / f"{name}.npy", "w+", kind, (length,))

    report = partial(progress, "bm25")
    data, rows, indptr = scored(runs, len(numbers), k1, b, MERGED_POSTINGS, space, report)
    for mapped in (data, rows):
        mapped.flush()  # type: ignore[union-attr]
    np.save(out / "indptr.npy", indptr)
    (out / "tokens.txt").write_bytes("".join(f"{word}\n" for word in numbers).encode())
