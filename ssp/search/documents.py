"""The documents of a corpus on disk: one file of rows and where each begins, memory-mapped."""

import hashlib
import mmap
import os
import shutil
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from ssp.base.episode import Document
from ssp.base.errors import hold
from ssp.data import rows
from ssp.data.readers import decode, stream_corpus
from ssp.data.rows import Row
from ssp.search.hits import Rows, printed

PACKED = (*rows.PACKED, ".parquet")
"""Corpus files that are unpacked; the bytes of others are their rows, so they can serve in
place."""

LINK_FROM = 2**30
"""Bytes from which on a file that could be copied into an index folder is linked."""

Progress = Callable[[str, int, int], None]
"""Stage, rows done, rows in all (0: not known yet)."""


class MappedDocuments:
    """Rows [first, first + rows) of the corpus in `blob_path`; row r is the JSON in bytes
    [offsets[r], offsets[r+1]). `offsets [total + 1] int64` may be memory-mapped. Only pages of rows
    that are asked for are read. Safe in threads."""

    def __init__(self, blob_path: Path, offsets: Rows, first: int, rows: int) -> None:
        self.first, self.rows = first, rows
        self._path, self._offsets = blob_path, offsets
        with blob_path.open("rb") as stream:
            self._blob = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        # else each touched page brings 32 neighbours from disk
        self._blob.madvise(mmap.MADV_RANDOM)

    def gather(self, rows: Rows) -> list[Document]:
        """Documents of `rows`, in that order. IndexError for a row that is not held; InputError for
        a row that is not one (the file was changed)."""
        rows = np.asarray(rows, dtype=np.int64)
        if (
            rows.size
            and not self.first <= int(rows.min()) <= int(rows.max()) < self.first + self.rows
        ):
            raise IndexError(
                f"rows outside {self.first}..{self.first + self.rows - 1} are asked for"
            )
        blob, path = self._blob, self._path
        starts, ends = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist()
        return [decode(blob[start:end], path) for start, end in zip(starts, ends, strict=True)]

    def stream(self, first: int = 0) -> Iterator[Document]:
        """Documents from row `first` on, in order, read ahead as a file."""
        end = self.first + self.rows
        with self._path.open("rb", buffering=0) as file:
            for row in range(first, end, 1024):
                places = self._offsets[row : min(row + 1024, end) + 1].tolist()
                raw = os.pread(file.fileno(), places[-1] - places[0], places[0])
                for start, stop in pairwise(places):
                    yield decode(raw[start - places[0] : stop - places[0]], self._path)


def store(corpus: Path, blob: Path, offsets: Path, progress: Progress) -> tuple[int, str]:
    """Check every row of `corpus`, and make `blob` (its rows; a link to a plain file of `LINK_FROM`
    bytes or more) and `offsets` (.npy). The number of rows, and `bm25.fingerprint`. InputError for
    a bad row, an id twice, an empty file."""
    size = 0 if corpus.suffix in PACKED else corpus.stat().st_size
    linked = size >= LINK_FROM
    starts, hashes = array("q"), array("Q")
    digest, end = hashlib.sha256(), 0
    with Path(os.devnull if linked else blob).open("wb") as sink:
        for document, _, start, raw in stream_corpus(corpus):
            if not linked:
                raw = raw if raw.endswith(b"\n") else raw + b"\n"
                start = end
                sink.write(raw)
            starts.append(start)
            end = start + len(raw)
            name = hashlib.blake2b(document.id.encode(), digest_size=8)
            hashes.append(int.from_bytes(name.digest(), "little"))
            digest.update(printed(document))
            if len(starts) % 10_000 == 0:
                progress("documents", len(starts), size * len(starts) // end)
        sink.flush()
    hold(starts, "a data file has at least one row", f"{corpus} has none", "check the file")
    _unique(corpus, np.frombuffer(hashes, dtype=np.uint64))
    starts.append(end)
    np.save(offsets, np.frombuffer(starts, dtype=np.int64))
    if linked:
        place(corpus, blob)
    progress("documents", len(hashes), len(hashes))
    return len(hashes), digest.hexdigest()


def place(source: Path, target: Path) -> None:
    """`source` under the name `target`: a copy, or a link (hard where it can be) when it has
    `LINK_FROM` bytes or more."""
    target.unlink(missing_ok=True)
    if source.stat().st_size < LINK_FROM:
        shutil.copyfile(source, target)
        return
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or somebody else's file
        target.symlink_to(source.resolve())


def _unique(corpus: Path, hashes: np.ndarray) -> None:
    """InputError when two ids are the same. A second pass looks at those of equal hash."""
    ordered = np.sort(hashes)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    suspects, seen = set(np.flatnonzero(np.isin(hashes, twice)).tolist()), dict[str, str]()
    kind = "row" if corpus.suffix == ".parquet" else "line"
    for row, (document, number, _, _) in enumerate(stream_corpus(corpus) if suspects else ()):
        if row in suspects:
            Row(corpus, f"{kind} {number}", row, {}).claim(document.id, seen)
