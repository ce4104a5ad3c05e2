"""An index as a folder. Refused where manifest, sizes (at every start) or contents (once a machine)
disagree."""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ssp.base import cache
from ssp.base.devices import available_mb
from ssp.base.errors import InputError, hold
from ssp.base.files import sync
from ssp.record.manifest import own_digest
from ssp.search.bm25 import Bm25Index, shard_rows, slice_rows
from ssp.search.documents import MappedDocuments
from ssp.search.encoders.families import EncoderSpec
from ssp.search.index.manifest import (
    DOCUMENTS,
    EMBEDDING,
    OFFSETS,
    VECTORS,
    WORDS,
    DensePart,
    Manifest,
    part_name,
)
from ssp.search.postings import TOKENISER
from ssp.search.shard import HYBRID, Shard, retriever

if TYPE_CHECKING:
    from ssp.search.dense import FaissIndex, FlatIndex

FORMAT, VERSION = "ssp-index", 2
MANIFEST = "manifest.json"
FLAT = "Flat"
"""The factory of exact search."""
_Progress = Callable[[int, int], None]
"""Bytes read, bytes in all."""
MB, PROCESS_MB = 2**20, 300
"""A Python process with faiss, numpy and Ray in it."""


def check_free(folder: str | Path) -> None:
    """InputError when something other than an empty folder is at `folder`."""
    folder = Path(folder)
    if folder.is_symlink() or (
        folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))
    ):
        raise InputError(
            "a new index needs a folder that does not exist yet",
            folder,
            "remove it or choose another",
        )


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of an index folder. InputError unless its checksum, format, version and form are
    right, and for words of BM25 that another tokeniser made."""
    folder = Path(folder)
    try:
        body = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        step = "name a corpus file, or make an index of one: ssp index --corpus FILE --out NEW"
        raise InputError("an index folder holds a manifest.json", folder, step) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(folder, f"{MANIFEST}: {error}") from error
    if not isinstance(body, dict) or body.get("sha256") != own_digest(body):
        raise _broken(folder, f"{MANIFEST} does not match its own checksum")
    for key, value in (("format", FORMAT), ("version", VERSION)):
        found, step = (
            f"{folder}: {key} {body.get(key)}",
            "build it again: ssp index --corpus FILE --out NEW",
        )
        hold(body.get(key) == value, f"an index has {key} {value}", found, step)
    try:
        if body["bm25"] and body.get("tokeniser") != TOKENISER:
            rule = "BM25 cuts passages and queries into words by one rule"
            found = (
                f"{folder} was built by {body.get('tokeniser')}, this version cuts by {TOKENISER}"
            )
            raise InputError(
                rule, found, f"build it again, under a new name: {_again(folder, body)}"
            )
        dense = body["dense"] and DensePart(
            **{**body["dense"], "encoder": EncoderSpec(**body["dense"]["encoder"])}
        )
        words = body["bm25"] and (float(body["bm25"][0]), float(body["bm25"][1]))
        made = Manifest(
            int(body["rows"]), body["corpus_sha256"], words, dense, body["files"], body["sha256"]
        )
        if missing := [name for name in made.needed if name not in made.files]:
            raise ValueError(f"it lists no {missing[0]}")
        return made
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _broken(folder, f"{MANIFEST}: {type(error).__name__} {error}") from error


def _again(folder: Path, body: Mapping[str, Any]) -> str:
    """The command that builds an index folder again from what it holds; vectors that are there are
    taken over."""
    k1, b = body["bm25"]
    command = ["ssp", "index", "--corpus", folder / DOCUMENTS, "--out", "NEW", "--k1", k1, "--b", b]
    if body["dense"]:
        factory, parts, files = body["dense"]["factory"], body["dense"]["parts"], body["files"]
        tables = [folder / name for name in (VECTORS, EMBEDDING) if name in files]
        command += [
            "--kind",
            HYBRID,
            "--encoder",
            body["dense"]["encoder"]["model"],
            "--faiss",
            factory,
        ]
        if parts > 1:
            command += ["--parts", parts]
        if tables:
            command += ["--embedding", tables[0]]
        elif parts == 1:
            command += ["--faiss-file", folder / part_name(0)]
    return shlex.join(map(str, command))


def seal(folder: Path, manifest: Manifest, progress: _Progress) -> Manifest:
    """Write the manifest of the files in `folder`, everything on disk."""
    (folder / MANIFEST).unlink(missing_ok=True)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    total, done = sum(path.stat().st_size for path in paths), 0
    files: dict[str, dict[str, Any]] = {}
    for path in paths:
        name = path.relative_to(folder).as_posix()
        files[name] = {
            "bytes": path.stat().st_size,
            "sha256": _sha256(path, _behind(done, total, progress)),
        }
        done += files[name]["bytes"]
    body: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "tokeniser": TOKENISER,
        "rows": manifest.rows,
    }
    body |= {"corpus_sha256": manifest.corpus_sha256, "bm25": manifest.bm25 and list(manifest.bm25)}
    body |= {"dense": None if manifest.dense is None else asdict(manifest.dense), "files": files}
    body["sha256"] = own_digest(body)
    (folder / MANIFEST).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    for path in (*folder.rglob("*"), folder):
        sync(path)
    return read_manifest(folder)


def verify(
    folder: Path,
    manifest: Manifest,
    names: Sequence[str] | None = None,
    again: bool = False,
    progress: _Progress = lambda done, total: None,
) -> None:
    """InputError unless the files `names` (default: all) have the manifest's sizes and contents.
    Contents are read once a machine: a stamp in the cache folder says for which path, inode, size
    and time of change they were right. `again`: whatever the stamps say. Processes that start at
    once read them once."""
    with (folder / MANIFEST).open("rb") as lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        stamps = {
            name: _stamp(folder, name, manifest)
            for name in (manifest.files if names is None else names)
        }
        new = [name for name, stamp in stamps.items() if again or not stamp.exists()]
        total, done = sum(manifest.files[name]["bytes"] for name in new), 0
        for name in new:
            digest = _sha256(folder / name, _behind(done, total, progress))
            if digest != manifest.files[name]["sha256"]:
                raise _broken(folder, f"{name} differs from its checksum in the manifest")
            done += manifest.files[name]["bytes"]
            _keep(stamps[name])


def stamp(folder: Path, manifest: Manifest) -> None:
    """Note that the contents of a folder are right: its manifest was made from them just now."""
    for name in manifest.files:
        _keep(_stamp(folder, name, manifest))


def _stamp(folder: Path, name: str, manifest: Manifest) -> Path:
    """Of this machine: several may share a cache folder, and have other files under the same path.
    InputError for a file that is gone, or of another size."""
    path, entry = folder / name, manifest.files[name]
    try:
        stat = path.stat()
    except OSError as error:
        gone = f" (a link to {path.readlink()})" if path.is_symlink() else ""
        raise _broken(folder, f"{name}{gone}: {error.strerror}") from error
    if stat.st_size != entry["bytes"]:
        raise _broken(
            folder, f"{name} has {stat.st_size:,} bytes, its manifest says {entry['bytes']:,}"
        )
    mark = [
        platform.node(),
        str(path.resolve()),
        stat.st_ino,
        stat.st_size,
        stat.st_mtime_ns,
        entry["sha256"],
    ]
    return cache.root() / "checked" / hashlib.sha256(json.dumps(mark).encode()).hexdigest()


def _keep(stamp: Path) -> None:
    with suppress(OSError):  # a cache that cannot be written: every start reads the contents
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()


def open_shard(folder: str | Path, i: int = 0, n: int = 1, gpu: bool = False) -> Shard:
    """Shard `i` of `n` of an index folder: BM25 and Flat are cut by rows, other indexes by parts.
    InputError for a broken folder, parts that `n` shards cannot share, too little memory, a vector
    that is not finite."""
    folder, manifest = Path(folder), read_manifest(folder)
    first, last = shard_rows(manifest.rows, i, n)
    check_parts(folder, manifest, n)
    check_memory(needs(manifest, n, gpu))
    verify(folder, manifest, manifest.needed)
    offsets = array(folder, OFFSETS, np.int64, (manifest.rows + 1,))
    if offsets[-1] > (folder / DOCUMENTS).stat().st_size:
        raise _broken(folder, f"{OFFSETS} points behind the end of {DOCUMENTS}")
    documents = MappedDocuments(folder / DOCUMENTS, offsets, first, last - first)
    words = _words(folder, manifest.rows, first, last) if manifest.bm25 else None
    dense = _dense(folder, manifest, manifest.dense, first, last, gpu) if manifest.dense else None
    getattr(dense, "warm", lambda: None)()
    return Shard(name_of(manifest), manifest.rows, documents, words, dense)


def name_of(manifest: Manifest) -> str:
    """The name of a retriever: all that decides its answers. A BM25 folder's is that of its corpus
    in memory."""
    if manifest.dense is None and manifest.bm25 is not None:
        return retriever(manifest.corpus_sha256, *manifest.bm25)
    return (
        f"{manifest.kind} {manifest.dense.factory if manifest.dense else ''} {manifest.sha256[:16]}"
    )


def needs(manifest: Manifest, n: int, gpu: bool = False) -> dict[str, float]:
    """MB that one of `n` shards loads, by name; what is memory-mapped is page cache."""

    def mb(*names: str) -> float:
        return sum(manifest.files[name]["bytes"] for name in names) / MB

    found = {"process": float(PROCESS_MB)}
    if manifest.bm25:
        # a token is a string (49 bytes and its letters), its number (32) and its place in a table
        # (about 70)
        found["words"] = mb(WORDS[3]) + mb(WORDS[2]) / 8 * 150
        found |= {"bm25": mb(*WORDS[:2]) / n + mb(WORDS[2])} if n > 1 else {}
    return found | ({"vectors": mb(*manifest.vectors) / n} if gpu else {})


def check_memory(loaded: Mapping[str, float]) -> None:
    """InputError when what a process loads (name → MB) is more than `available_mb`."""
    free, needed = available_mb(), sum(loaded.values())
    parts = ", ".join(f"{name} {mb:,.0f}" for name, mb in loaded.items())
    found = f"{needed:,.0f} MB ({parts}), and {free:,.0f} MB may be used"
    step = "take more retriever.shards, or a smaller index (--faiss IVF4096,SQ8)"
    hold(needed <= free, "what a process loads fits its memory", found, step)


def check_parts(folder: Path, manifest: Manifest, n: int) -> None:
    """InputError when the dense index cannot be cut into `n` shards."""
    dense = manifest.dense
    if dense is not None and dense.factory != FLAT and dense.parts % n:
        found = (
            f"{folder}: {dense.factory} in {dense.parts} part{'s' * (dense.parts > 1)}, {n} shards"
        )
        step = (
            f"set retriever.shards to a number that divides {dense.parts}, or build it with"
            f" --parts {n}"
        )
        raise InputError("shards of an approximate index are whole parts of it", found, step)


def check_vectors(folder: Path) -> None:
    """InputError for a part of a folder's dense index that faiss cannot read, or whose ids are not
    its rows."""
    parts = [folder / name for name in read_manifest(folder).vectors if name.endswith(".faiss")]
    if parts:
        from ssp.search.dense import open_index

        for part in parts:
            open_index(part)


def _words(folder: Path, total: int, first: int, last: int) -> Bm25Index:
    data, rows = array(folder, WORDS[0], np.float32), array(folder, WORDS[1], np.int32)
    indptr = array(folder, WORDS[2], np.int64)
    try:
        tokens = (folder / WORDS[3]).read_text(encoding="utf-8").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise _broken(folder, f"{WORDS[3]}: {error}") from error
    if not (len(indptr) == len(tokens) + 1 and len(data) == len(rows) == indptr[-1]):
        raise _broken(folder, "the arrays of bm25 disagree")
    if last - first < total:
        data, rows, indptr = slice_rows(data, rows, indptr, first, last)
    vocabulary = {token: column for column, token in enumerate(tokens)}
    return Bm25Index(data, rows, indptr, vocabulary, first, last - first, total)


def _dense(
    folder: Path, manifest: Manifest, part: DensePart, first: int, last: int, gpu: bool
) -> FlatIndex | FaissIndex:
    from ssp.search.dense import flat_vectors, open_flat, open_parts

    if part.factory == FLAT:
        name, shape = manifest.vectors[0], (manifest.rows, part.dim)
        table = (
            flat_vectors(folder / name)
            if name.endswith(".faiss")
            else array(folder, name, np.float32, shape)
        )
        if table.shape != shape:
            raise _broken(folder, f"{name} has {table.shape}")
        return open_flat(table, first, last, gpu)
    spans = [shard_rows(manifest.rows, at, part.parts) for at in range(part.parts)]
    held = [
        (folder / part_name(at), span) for at, span in enumerate(spans) if first <= span[0] < last
    ]
    return open_parts(held, part.dim, gpu)


def array(
    folder: Path, name: str, dtype: type, shape: tuple[int | None, ...] = (None,)
) -> npt.NDArray[Any]:
    """A .npy file of a folder, memory-mapped. InputError unless it has this type and shape (None:
    any length)."""
    try:
        found: npt.NDArray[Any] = np.load(folder / name, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise _broken(folder, f"{name}: {error}") from error
    fits = len(found.shape) == len(shape) and all(
        b in (None, a) for a, b in zip(found.shape, shape, strict=True)
    )
    if found.dtype != dtype or not fits:
        raise _broken(folder, f"{name} has {found.dtype} {found.shape}")
    return np.asarray(found)


def _behind(done: int, total: int, progress: _Progress) -> Callable[[int], None]:
    """Reports bytes of a file that is read after `done` bytes of others."""
    return lambda read: progress(done + read, total)


def _sha256(path: Path, progress: Callable[[int], None]) -> str:
    digest, done = hashlib.sha256(), 0
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(2**24):
            digest.update(block)
            progress(done := done + len(block))
    return digest.hexdigest()


def _broken(folder: Path, what: str) -> InputError:
    return InputError(
        "an index folder matches its manifest", f"{folder}: {what}", "build it again: ssp index"
    )
