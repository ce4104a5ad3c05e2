"""The documents of a corpus on disk: one file of rows and where each begins, memory-mapped."""

import hashlib
import mmap
import os
import shutil
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from ssp.base.episode import Document
from ssp.base.errors import hold
from ssp.data import opened
from ssp.data.containers import is_lines
from ssp.data.readers import decode, stream_corpus
from ssp.data.rows import Row
from ssp.search.hits import Rows, printed

LINK_FROM = 2**30
"""Bytes from which on a file is linked into an index folder, not copied."""

ALIKE = 16
"""Rows of one URL that are looked at."""

Progress = Callable[[str, int, int], None]
"""Stage, rows done, rows in all (0: not known yet)."""


class MappedDocuments:
    """Rows [first, first + rows) of the corpus in `blob_path`; row r is the JSON in bytes
    [offsets[r], offsets[r+1]). `offsets [total + 1] int64` may be memory-mapped. Only the pages of
    rows that are asked for are read. `names [2, n] uint64`: marks of ids and URLs, in order, and
    their rows. Safe in threads."""

    def __init__(self, blob_path: Path, offsets: Rows, first: int, rows: int) -> None:
        self.names = np.zeros((2, 0), np.uint64)
        self.first = first
        self.rows = rows
        self._path = blob_path
        self._offsets = offsets
        with blob_path.open("rb") as stream:
            self._blob = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        # else each touched page brings 32 neighbours from disk
        self._blob.madvise(mmap.MADV_RANDOM)

    def gather(self, rows: Rows) -> list[Document]:
        """Documents of `rows`, in that order. IndexError for a row that is not held; InputError for
        a row that is not one (the file was changed)."""
        rows = np.asarray(rows, dtype=np.int64)
        last = self.first + self.rows - 1
        if rows.size and not self.first <= int(rows.min()) <= int(rows.max()) <= last:
            raise IndexError(f"rows outside {self.first}..{last} are asked for")
        blob, path = self._blob, self._path
        starts = self._offsets[rows].tolist()
        ends = self._offsets[rows + 1].tolist()
        return [decode(blob[start:end], path) for start, end in zip(starts, ends, strict=True)]

    def named(self, names: Sequence[str]) -> list[Document | None]:
        """The document with each id or URL, of several the first; None for no such one."""
        marks, rows = self.names
        wanted = np.array([_mark(name) for name in names], np.uint64)
        firsts = np.searchsorted(marks, wanted)
        ends = np.searchsorted(marks, wanted, "right")
        named = []
        for name, first, end in zip(names, firsts, ends, strict=True):
            alike = self.gather(rows[first:end][:ALIKE].astype(np.int64))
            by_id = [document for document in alike if document.id == name]
            by_url = [document for document in alike if document.url == name]
            named.append(next(iter(by_id + by_url), None))
        return named

    def stream(self, first: int = 0) -> Iterator[Document]:
        """Documents from row `first` on, in order, read ahead as a file."""
        end = self.first + self.rows
        with self._path.open("rb", buffering=0) as file:
            for row in range(first, end, 1024):
                places = self._offsets[row : min(row + 1024, end) + 1].tolist()
                base = places[0]
                raw = os.pread(file.fileno(), places[-1] - base, base)
                for start, stop in pairwise(places):
                    yield decode(raw[start - base : stop - base], self._path)


def store(
    corpus: Path, blob: Path, offsets: Path, names: Path, progress: Progress, skip: bool = False
) -> tuple[int, str, int]:
    """Check every row of `corpus`, and make `blob` (its rows; a link to a plain file of `LINK_FROM`
    bytes or more), `offsets` and `names` (.npy; see `MappedDocuments`). Returns the number of rows,
    `bm25.fingerprint`, and how many passages were left out: with `skip`, those without text.
    InputError for a bad row, an id twice, an empty file."""
    in_place = not skip and is_lines(corpus) and corpus.suffix not in opened.PACKED
    size = corpus.stat().st_size if in_place else 0
    linked = size >= LINK_FROM
    starts, hashes = array("q"), array("Q")
    url_hashes, url_rows = array("Q"), array("Q")
    digest = hashlib.sha256()
    end = skipped = 0
    with Path(os.devnull if linked else blob).open("wb") as sink:
        for document, _, start, raw in stream_corpus(corpus):
            if skip and _empty(document):
                skipped += 1
                continue
            if not linked:
                if not raw.endswith(b"\n"):
                    raw += b"\n"
                start = end
                sink.write(raw)
            starts.append(start)
            end = start + len(raw)
            if document.url:
                url_hashes.append(_mark(document.url))
                url_rows.append(len(hashes))
            hashes.append(_mark(document.id))
            digest.update(printed(document))
            done = len(starts)
            if done % 10_000 == 0:
                progress("documents", done, size * done // end)
    hold(starts, "a data file has at least one row", f"{corpus} has none", "check the file")
    _check_ids(corpus, np.frombuffer(hashes, dtype=np.uint64), skip)
    starts.append(end)
    np.save(offsets, np.frombuffer(starts, dtype=np.int64))
    # Ids come first where marks are equal, then rows in order.
    marks = np.array(hashes + url_hashes, np.uint64)
    rows = np.concatenate([np.arange(len(hashes), dtype=np.uint64), np.array(url_rows, np.uint64)])
    order = np.argsort(marks, kind="stable")
    np.save(names, np.stack([marks[order], rows[order]]))
    if linked:
        place(corpus, blob)
    progress("documents", len(hashes), len(hashes))
    return len(hashes), digest.hexdigest(), skipped


def _mark(name: str) -> int:
    """A number of 64 bits that stands for an id or a URL."""
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _empty(document: Document) -> bool:
    """Whether a passage has nothing but a title."""
    first, line_break, text = document.contents.partition("\n")
    return not (text if line_break else first).strip()


def place(source: Path, target: Path) -> None:
    """Give `source` the name `target`: by a copy, or by a link (hard where it can be) when it has
    `LINK_FROM` bytes or more."""
    target.unlink(missing_ok=True)
    if source.stat().st_size < LINK_FROM:
        shutil.copyfile(source, target)
        return
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or somebody else's file
        target.symlink_to(source.resolve())


def _check_ids(corpus: Path, hashes: np.ndarray, skip: bool) -> None:
    """InputError when two ids are the same. A second pass reads the ids of equal `hashes`."""
    ordered = np.sort(hashes)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return
    suspects = set(np.flatnonzero(np.isin(hashes, twice)).tolist())
    seen: dict[str, str] = {}
    kind = "line" if is_lines(corpus) else "row"
    passages = stream_corpus(corpus)
    kept = (passage for passage in passages if not (skip and _empty(passage.document)))
    for row, passage in enumerate(kept):
        if row in suspects:
            Row(corpus, f"{kind} {passage.number}", row, {}).claim(passage.document.id, seen)
