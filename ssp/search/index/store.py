"""An index as a folder. It is refused where its manifest and its files disagree: about sizes at
every start, about contents once a machine."""

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
    NAMES,
    OFFSETS,
    VECTORS,
    WORDS,
    DensePart,
    Manifest,
    part_name,
)
from ssp.search.postings import TOKENISER, cutter, mark
from ssp.search.shard import HYBRID, Shard, retriever

if TYPE_CHECKING:
    from ssp.search import dense

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
    empty = folder.is_dir() and not any(folder.iterdir())
    if folder.is_symlink() or (folder.exists() and not empty):
        rule = "a new index needs a folder that does not exist yet"
        raise InputError(rule, folder, "remove it or choose another")


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
        step = "build it again: ssp index --corpus FILE --out NEW"
        has = f"{folder}: {key} {body.get(key)}"
        hold(body.get(key) == value, f"an index has {key} {value}", has, step)
    try:
        if body["bm25"] and _tokeniser(body)[0] != TOKENISER:
            rule = "BM25 cuts passages and queries into words by one rule"
            built = f"{folder} was built by {body.get('tokeniser')}"
            step = f"build it again, under a new name: {_again(folder, body)}"
            raise InputError(rule, f"{built}, this version cuts by {TOKENISER}", step)
        return _manifest_of(body)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _broken(folder, f"{MANIFEST}: {type(error).__name__} {error}") from error


def _manifest_of(body: Mapping[str, Any]) -> Manifest:
    """The manifest that the file's body says. It raises what Python raises for another form."""
    words = dense = None
    if body["bm25"]:
        words = float(body["bm25"][0]), float(body["bm25"][1])
    if body["dense"]:
        encoder = EncoderSpec(**body["dense"]["encoder"])
        dense = DensePart(**{**body["dense"], "encoder": encoder})
    rows = int(body["rows"])
    marks = body["corpus_sha256"], words, dense, body["files"], body["sha256"]
    manifest = Manifest(
        rows, *marks, stemmer=_tokeniser(body)[1] if words else "", skipped=body.get("skipped", 0)
    )
    for name in manifest.needed:
        if name not in manifest.files:
            raise ValueError(f"it lists no {name}")
    return manifest


def _tokeniser(body: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the tokeniser that cut the words, and of the stemmer."""
    name, _, stemmer = str(body.get("tokeniser")).partition("+")
    return name, stemmer


def _again(folder: Path, body: Mapping[str, Any]) -> str:
    """The command that builds an index folder again from what it holds; vectors that are there are
    taken over."""
    k1, b = body["bm25"]
    command = ["ssp", "index", "--corpus", folder / DOCUMENTS, "--out", "NEW", "--k1", k1, "--b", b]
    stemmer = _tokeniser(body)[1]
    command += ["--stemmer", stemmer] if stemmer else []
    dense = body["dense"]
    if dense:
        command += ["--kind", HYBRID, "--encoder", dense["encoder"]["model"]]
        command += ["--faiss", dense["factory"]]
        if dense["parts"] > 1:
            command += ["--parts", dense["parts"]]
        tables = [folder / name for name in (VECTORS, EMBEDDING) if name in body["files"]]
        if tables:
            command += ["--embedding", tables[0]]
        elif dense["parts"] == 1:
            command += ["--faiss-file", folder / part_name(0)]
    return shlex.join(map(str, command))


def seal(folder: Path, manifest: Manifest, progress: _Progress) -> Manifest:
    """Write the manifest of the files in `folder`, and bring everything to the disk."""
    (folder / MANIFEST).unlink(missing_ok=True)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    total = sum(path.stat().st_size for path in paths)
    done = 0
    files: dict[str, dict[str, Any]] = {}
    for path in paths:
        size = path.stat().st_size
        digest = _sha256(path, done, total, progress)
        files[path.relative_to(folder).as_posix()] = {"bytes": size, "sha256": digest}
        done += size
    body = {
        "format": FORMAT,
        "version": VERSION,
        "tokeniser": mark(manifest.stemmer),
        "rows": manifest.rows,
        "corpus_sha256": manifest.corpus_sha256,
        "bm25": manifest.bm25 and list(manifest.bm25),
        "dense": manifest.dense and asdict(manifest.dense),
        "files": files,
    }
    if manifest.skipped:
        body["skipped"] = manifest.skipped
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
    and time of change they were right. `again` reads them whatever the stamps say. Processes that
    start at once read them once."""
    if names is None:
        names = list(manifest.files)
    with (folder / MANIFEST).open("rb") as lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        stamps = {name: _stamp(folder, name, manifest) for name in names}
        new = [name for name, stamp in stamps.items() if again or not stamp.exists()]
        total = sum(manifest.files[name]["bytes"] for name in new)
        done = 0
        for name in new:
            entry = manifest.files[name]
            if _sha256(folder / name, done, total, progress) != entry["sha256"]:
                raise _broken(folder, f"{name} differs from its checksum in the manifest")
            done += entry["bytes"]
            _keep(stamps[name])


def stamp(folder: Path, manifest: Manifest) -> None:
    """Note that the contents of a folder are right: its manifest was made from them just now."""
    for name in manifest.files:
        _keep(_stamp(folder, name, manifest))


def _stamp(folder: Path, name: str, manifest: Manifest) -> Path:
    """The file that says that `name` was right on this machine: several machines may share a cache
    folder, and have other files under the same path. InputError for a file that is gone, or of
    another size."""
    path = folder / name
    entry = manifest.files[name]
    try:
        stat = path.stat()
    except OSError as error:
        gone = f" (a link to {path.readlink()})" if path.is_symlink() else ""
        raise _broken(folder, f"{name}{gone}: {error.strerror}") from error
    if stat.st_size != entry["bytes"]:
        sizes = f"{stat.st_size:,} bytes, its manifest says {entry['bytes']:,}"
        raise _broken(folder, f"{name} has {sizes}")
    where = [platform.node(), str(path.resolve()), stat.st_ino]
    mark = [*where, stat.st_size, stat.st_mtime_ns, entry["sha256"]]
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
    documents = open_documents(folder, i, n)
    words = _words(folder, manifest, first, last) if manifest.bm25 else None
    vectors = _dense(folder, manifest, manifest.dense, first, last, gpu) if manifest.dense else None
    return Shard(name_of(manifest), manifest.rows, documents, words, vectors)


def open_documents(folder: Path, i: int = 0, n: int = 1) -> MappedDocuments:
    """The documents of shard `i` of `n` of an index folder. InputError for a broken one."""
    manifest = read_manifest(folder)
    first, last = shard_rows(manifest.rows, i, n)
    offsets = array(folder, OFFSETS, np.int64, (manifest.rows + 1,))
    if offsets[-1] > (folder / DOCUMENTS).stat().st_size:
        raise _broken(folder, f"{OFFSETS} points behind the end of {DOCUMENTS}")
    return MappedDocuments(folder / DOCUMENTS, offsets, first, last - first)


def open_named(folder: Path) -> MappedDocuments | None:
    """All documents of an index folder, by their names; None for one that was made without."""
    manifest = read_manifest(folder)
    if NAMES not in manifest.files:
        return None
    verify(folder, manifest, [DOCUMENTS, OFFSETS, NAMES])
    documents = open_documents(folder)
    documents.names = array(folder, NAMES, np.uint64, (2, None))
    return documents


def name_of(manifest: Manifest) -> str:
    """The name of a retriever: all that decides its answers. A BM25 folder's is that of its corpus
    in memory."""
    if manifest.dense is None and manifest.bm25 is not None:
        return retriever(manifest.corpus_sha256, *manifest.bm25, manifest.stemmer)
    factory = manifest.dense.factory if manifest.dense else ""
    return f"{manifest.kind} {factory} {manifest.sha256[:16]}"


def needs(manifest: Manifest, n: int, gpu: bool = False) -> dict[str, float]:
    """MB that one of `n` shards loads, by name; what is memory-mapped is page cache."""

    def mb(*names: str) -> float:
        return sum(manifest.files[name]["bytes"] for name in names) / MB

    loaded = {"process": float(PROCESS_MB)}
    if manifest.bm25:
        data, rows, indptr, tokens = WORDS
        # a token is a string (49 bytes and its letters), its number (32) and its place in a table
        # (about 70)
        loaded["words"] = mb(tokens) + mb(indptr) / 8 * 150
        if n > 1:
            loaded["bm25"] = mb(data, rows) / n + mb(indptr)
    if gpu:
        loaded["vectors"] = mb(*manifest.vectors) / n
    return loaded


def check_memory(loaded: Mapping[str, float]) -> None:
    """InputError when what a process loads (name → MB) is more than `available_mb`."""
    free = available_mb()
    needed = sum(loaded.values())
    if needed > free:
        parts = ", ".join(f"{name} {mb:,.0f}" for name, mb in loaded.items())
        sizes = f"{needed:,.0f} MB ({parts}), and {free:,.0f} MB may be used"
        step = "take more retriever.shards, or a smaller index (--faiss IVF4096,SQ8)"
        raise InputError("what a process loads fits its memory", sizes, step)


def check_parts(folder: Path, manifest: Manifest, n: int) -> None:
    """InputError when the dense index cannot be cut into `n` shards."""
    dense = manifest.dense
    if dense is not None and dense.factory != FLAT and dense.parts % n:
        rule = "shards of an approximate index are whole parts of it"
        parts = f"{dense.parts} part{'s' * (dense.parts > 1)}"
        divides = f"set retriever.shards to a number that divides {dense.parts}"
        step = f"{divides}, or build it with --parts {n}"
        raise InputError(rule, f"{folder}: {dense.factory} in {parts}, {n} shards", step)


def check_vectors(folder: Path) -> None:
    """InputError for a part of a folder's dense index that faiss cannot read, or whose ids are not
    its rows."""
    for name in read_manifest(folder).vectors:
        if name.endswith(".faiss"):
            from ssp.search.dense import open_index

            open_index(folder / name)


def _words(folder: Path, manifest: Manifest, first: int, last: int) -> Bm25Index:
    data = array(folder, WORDS[0], np.float32)
    rows = array(folder, WORDS[1], np.int32)
    indptr = array(folder, WORDS[2], np.int64)
    try:
        tokens = (folder / WORDS[3]).read_text(encoding="utf-8").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise _broken(folder, f"{WORDS[3]}: {error}") from error
    if not (len(indptr) == len(tokens) + 1 and len(data) == len(rows) == indptr[-1]):
        raise _broken(folder, "the arrays of bm25 disagree")
    if last - first < manifest.rows:
        data, rows, indptr = slice_rows(data, rows, indptr, first, last)
    vocabulary = {token: column for column, token in enumerate(tokens)}
    cut = cutter(manifest.stemmer)
    return Bm25Index(data, rows, indptr, vocabulary, first, last - first, manifest.rows, cut)


def _dense(
    folder: Path, manifest: Manifest, part: DensePart, first: int, last: int, gpu: bool
) -> dense.FlatIndex | dense.FaissIndex:
    from ssp.search.dense import FlatIndex, flat_vectors, open_flat, open_parts

    if part.factory != FLAT:
        held = []
        for i in range(part.parts):
            span = shard_rows(manifest.rows, i, part.parts)
            if first <= span[0] < last:
                held.append((folder / part_name(i), span))
        return open_parts(held, part.dim, gpu)

    name = manifest.vectors[0]
    shape = manifest.rows, part.dim
    if name.endswith(".faiss"):
        table = flat_vectors(folder / name)
    else:
        table = array(folder, name, np.float32, shape)
    if table.shape != shape:
        raise _broken(folder, f"{name} has {table.shape}")
    index = open_flat(table, first, last, gpu)
    if isinstance(index, FlatIndex):
        index.warm()
    return index


def array(
    folder: Path, name: str, dtype: type, shape: tuple[int | None, ...] = (None,)
) -> npt.NDArray[Any]:
    """A .npy file of a folder, memory-mapped. InputError unless it has this type and shape (None:
    any length)."""
    try:
        mapped: npt.NDArray[Any] = np.load(folder / name, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise _broken(folder, f"{name}: {error}") from error
    fits = len(mapped.shape) == len(shape) and all(
        wanted in (None, size) for size, wanted in zip(mapped.shape, shape, strict=True)
    )
    if mapped.dtype != dtype or not fits:
        raise _broken(folder, f"{name} has {mapped.dtype} {mapped.shape}")
    return np.asarray(mapped)


def _sha256(path: Path, done: int, total: int, progress: _Progress) -> str:
    """The digest of a file that is read after `done` bytes of others."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(2**24):
            digest.update(block)
            done += len(block)
            progress(done, total)
    return digest.hexdigest()


def _broken(folder: Path, what: str) -> InputError:
    rule = "an index folder matches its manifest"
    return InputError(rule, f"{folder}: {what}", "build it again: ssp index")
