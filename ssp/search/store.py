"""An index as a folder.

Owns the layout: `manifest.json` (format version, tokeniser, rows, k1, b, the corpus's sha256, and size and sha256 of
each file), `data.npy`, `rows.npy`, `indptr.npy`, `offsets.npy`, `tokens.txt`, `documents.jsonl`.
Promises that a folder is complete or not there, and that one whose manifest or checksums disagree is refused.
Refuses to update in place: another corpus is another folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ssp.episode import Document
from ssp.errors import InputError
from ssp.search.bm25 import Bm25Index, shard_rows, slice_rows
from ssp.search.tokens import TOKENISER

FORMAT = "ssp-bm25"
VERSION = 1
MANIFEST = "manifest.json"
ARRAYS = ("data", "rows", "indptr", "offsets")
FILES = (*(f"{name}.npy" for name in ARRAYS), "tokens.txt", "documents.jsonl")


class MappedDocuments(Sequence[Document]):
    """Documents of consecutive rows, read from a memory-mapped file when asked for: only touched pages are loaded.

    `offsets [rows + 1] int64` are byte positions in `text`; a slice shares both.
    """

    def __init__(self, text: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        self._text, self._offsets = text, offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, item: int) -> Document: ...
    @overload
    def __getitem__(self, item: slice) -> MappedDocuments: ...
    def __getitem__(self, item: int | slice) -> Document | MappedDocuments:
        if isinstance(item, slice):
            first, last, step = item.indices(len(self))
            if step != 1:
                raise ValueError("documents are sliced in consecutive rows")
            base, end = int(self._offsets[first]), int(self._offsets[max(first, last)])
            return MappedDocuments(self._text[base:end], self._offsets[first : max(first, last) + 1] - base)
        if not -len(self) <= item < len(self):
            raise IndexError(item)
        row = item % len(self)
        raw = self._text[int(self._offsets[row]) : int(self._offsets[row + 1])].tobytes()
        number, contents = json.loads(raw)
        return Document(number, contents)


def save(index: Bm25Index, folder: str | Path) -> None:
    """Write a whole index as `folder`, which must not exist (an empty folder is fine): written aside, then renamed."""
    folder = Path(folder)
    if index.rows != index.total:
        raise ValueError("a whole index is saved, not a shard")
    check_free(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise InputError("the index folder can be written", f"{folder}: {error}", "choose another folder") from error
    try:
        _write(index, aside)
        aside.chmod(0o755)
        os.rename(aside, folder)
    except OSError as error:
        raise InputError("the index folder can be written", f"{folder}: {error}", "choose another folder") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_free(folder: str | Path) -> None:
    """InputError when something other than an empty folder is at `folder`."""
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError("a new index needs a folder that does not exist yet", folder, "remove it or choose another")


def load(folder: str | Path, shard: int = 0, shards: int = 1) -> Bm25Index:
    """The index in `folder`, or shard `shard` of `shards` of it (its arrays in memory, its documents mapped).

    With one shard the arrays stay memory-mapped. Every file is read once to check its sha256. InputError when the
    folder is missing, incomplete, of another format, version or tokeniser, or does not match its manifest.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    for name, expected in manifest["files"].items():
        _check_file(folder / name, expected)
    data, rows, indptr, offsets = (np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in ARRAYS)
    tokens = (folder / "tokens.txt").read_text(encoding="utf-8").split("\n")[:-1]
    total = int(manifest["rows"])
    if not (len(indptr) == len(tokens) + 1 and len(data) == len(rows) == indptr[-1] and len(offsets) == total + 1):
        raise _broken(folder, "sizes of the arrays disagree with the manifest")
    first, last = shard_rows(total, shard, shards)
    documents = MappedDocuments(np.memmap(folder / "documents.jsonl", dtype=np.uint8, mode="r"), offsets)[first:last]
    if shards > 1:
        data, rows, indptr = slice_rows(data, rows, indptr, first, last)
    vocabulary = {token: column for column, token in enumerate(tokens)}
    k1, b, corpus = float(manifest["k1"]), float(manifest["b"]), manifest["corpus_sha256"]
    return Bm25Index(data, rows, indptr, vocabulary, documents, first, total, k1, b, corpus)


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of an index folder; InputError unless its checksum, format, version and tokeniser are right."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise InputError("an index folder holds a manifest.json", folder, "build one: ssp index") from error
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(folder, f"{MANIFEST}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("sha256") != _manifest_digest(manifest):
        raise _broken(folder, f"{MANIFEST} does not match its own checksum")
    for key, value in (("format", FORMAT), ("version", VERSION), ("tokeniser", TOKENISER)):
        if manifest.get(key) != value:
            found = f"{folder}: {manifest.get(key)}"
            raise InputError(f"an index has {key} {value}", found, "build it again: ssp index")
    if set(manifest["files"]) != set(FILES):
        raise _broken(folder, f"{MANIFEST} lists other files than an index has")
    return manifest


def _write(index: Bm25Index, folder: Path) -> None:
    encoded = [json.dumps([d.id, d.contents], ensure_ascii=False).encode() + b"\n" for d in index.documents]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(raw) for raw in encoded], out=offsets[1:])
    arrays: tuple[npt.NDArray[Any], ...] = (index.data, index.local, index.indptr, offsets)
    for name, array in zip(ARRAYS, arrays, strict=True):
        np.save(folder / f"{name}.npy", array)
    with (folder / "documents.jsonl").open("wb") as stream:
        stream.writelines(encoded)
    columns = sorted(index.vocabulary, key=index.vocabulary.__getitem__)
    (folder / "tokens.txt").write_bytes("".join(f"{token}\n" for token in columns).encode())
    manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION, "tokeniser": TOKENISER, "rows": index.total}
    manifest |= {"k1": index.k1, "b": index.b, "corpus_sha256": index.corpus_sha256}
    manifest["files"] = {name: _describe(folder / name) for name in FILES}
    manifest["sha256"] = _manifest_digest(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def _manifest_digest(manifest: dict[str, Any]) -> str:
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def _check_file(path: Path, expected: dict[str, Any]) -> None:
    try:
        found = _describe(path)
    except OSError as error:
        raise _broken(path.parent, f"{path.name}: {error.strerror}") from error
    if found != expected:
        raise _broken(path.parent, f"{path.name} differs from its checksum in the manifest")


def _broken(folder: Path, what: str) -> InputError:
    return InputError("an index folder matches its manifest", f"{folder}: {what}", "build it again: ssp index")
