"""A corpus file becomes an index folder.

Owns the plan of a build and its stages: documents, bm25, vectors, dense, seal. Promises that the folder is complete or not
there, and that the same command goes on where a killed one was (`.NAME.building` beside the folder says what is done);
another plan is refused there. Refuses to know commands, and what a good index is.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ssp.base.errors import InputError
from ssp.base.files import sync, whole
from ssp.search import documents, postings
from ssp.search.documents import MappedDocuments, Progress
from ssp.search.encoders.encoder import EncoderSpec, TextEncoder
from ssp.search.index import store
from ssp.search.index.store import DensePart, Manifest
from ssp.search.shard import BM25, DENSE, KINDS

if TYPE_CHECKING:
    from ssp.search.index.vectors import Encode

LINK_FROM = 2**30
"""Bytes from which on a file that could be copied into the folder is linked."""
NOTES = "notes.json"


@dataclass(frozen=True)
class IndexPlan:
    """What is built. `kind`: bm25, dense, hybrid (both); `k1`, `b`: of BM25.

    Dense: `encoder` and the `folder` of its weights, `dtype`, `device`, `batch` texts at a time; `factory`: faiss's string,
    in `parts` files of consecutive rows (Flat needs none); `save_embedding`: the vectors stay in the folder beside the
    index. `embedding`: a file of the corpus's vectors, `faiss_file`: an index of them, both instead of encoding.
    `link_from`: bytes from which on the corpus and these files are linked into the folder, not copied.
    """

    kind: str = BM25
    k1: float = 1.2
    b: float = 0.25
    encoder: EncoderSpec | None = None
    folder: Path | None = None
    dtype: str = "float32"
    device: str = "cpu"
    batch: int = 512
    factory: str = store.FLAT
    parts: int = 1
    save_embedding: bool = False
    embedding: Path | None = None
    faiss_file: Path | None = None
    link_from: int = LINK_FROM

    def check(self) -> None:
        """InputError for settings that do not go together."""
        postings.check(self.k1, self.b)
        if self.kind not in KINDS:
            raise InputError(f"an index is one of {', '.join(KINDS)}", self.kind, "set --kind")
        if (self.kind == BM25) != (self.encoder is None):
            found = f"--kind {self.kind} and {'no' if self.encoder is None else 'an'} encoder"
            raise InputError(
                "a dense or hybrid index has an encoder, a BM25 index none", found, "set --kind and --encoder"
            )
        if self.faiss_file and (self.embedding or self.save_embedding or self.parts > 1):
            found = "--faiss-file with --embedding, --save-embedding or --parts"
            raise InputError("an index file is taken over as it is", found, "leave these out")
        if self.factory == store.FLAT and self.parts > 1:
            rule = "only indexes other than Flat have parts"
            raise InputError(rule, f"--parts {self.parts}", "leave it out: any number of shards share a Flat index")

    def noted(self, corpus: Path) -> dict[str, Any]:
        """All that decides the folder, with size and time of each file, as JSON."""
        body = asdict(replace(self, device="")) | {"corpus": corpus, "version": store.VERSION}
        files = ("corpus", "embedding", "faiss_file")
        return {
            key: _identity(value) if key in files and value else str(value) if isinstance(value, Path) else value
            for key, value in body.items()
        }


def _identity(path: Path) -> list[Any]:
    try:
        stat = path.stat()
    except OSError as error:
        raise InputError("a data file must exist", f"{path}: {error.strerror}", "check the path") from error
    if not path.is_file():
        raise InputError("a data file must be a file", path, "check the path")
    return [str(path.absolute()), stat.st_size, stat.st_mtime_ns]


def build_index(
    corpus: Path,
    out: Path,
    plan: IndexPlan,
    progress: Progress = lambda stage, done, total: None,
    encode: Encode | None = None,
) -> Manifest:
    """Make the folder `out`, or go on with it.

    `progress`: stage, done, in all (0: not known); rows, and bytes in "seal". `encode`: passages → vectors, instead of the
    plan's encoder. InputError for bad input, a taken or an unwritable folder, an unfinished build of another plan, and one
    that is under way.
    """
    plan.check()
    noted = plan.noted(corpus)
    encode, dim = _opened(plan, encode)
    out = out.absolute()
    work = out.parent / f".{out.name}.building"
    if not work.exists():
        store.check_free(out)
    try:
        work.mkdir(parents=True, exist_ok=True)
        with _alone(work):
            return _Build(corpus, out, work, plan, noted, progress, encode, dim).run()
    except OSError as error:
        found = f"{out}: {error.strerror or error}"
        raise InputError(
            "the index folder can be written", found, "make room or choose another; then run it again"
        ) from error


def _opened(plan: IndexPlan, encode: Encode | None) -> tuple[Encode | None, int]:
    """What encodes passages, and the width of its vectors (0: not known). Opened, and the factory tried, before the first
    stage: hours may lie between. InputError for what cannot be used."""
    if plan.kind == BM25:
        return None, 0
    from ssp.search.index import vectors

    dim = getattr(encode, "dim", 0)
    if encode is None:
        assert plan.folder is not None and plan.encoder is not None
        encoder = TextEncoder(plan.folder, plan.encoder, plan.dtype, plan.device)
        encode, dim = encoder.encode_passages, encoder.dim
    if dim and not plan.faiss_file and plan.factory != store.FLAT:
        vectors.check_factory(plan.factory, dim)
    return encode, dim


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError("one process at a time builds an index", work, "wait for the other one") from error
        yield


@dataclass
class _Build:
    """One run over the stages. What a stage made counts from the note on that it is done."""

    corpus: Path
    out: Path
    work: Path
    plan: IndexPlan
    noted: dict[str, Any]
    progress: Progress
    encode: Encode | None
    dim: int

    def __post_init__(self) -> None:
        self.made, self.scratch = self.work / "made", self.work / "scratch"
        self.notes = self._read()

    def _report(self, stage: str) -> Callable[[int, int], None]:
        return partial(self.progress, stage)

    def _read(self) -> dict[str, Any]:
        file = self.work / NOTES
        try:
            notes = json.loads(file.read_bytes()) if file.exists() else {"plan": self.noted}
            before = notes["plan"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            found = f"{file}: {error}"
            raise InputError("the notes of an unfinished build can be read", found, f"remove {self.work}") from error
        now = json.loads(json.dumps(self.noted))
        if changed := [key for key in now if before.get(key) != now[key]]:
            found = "; ".join(f"{key} was {before.get(key)}, now {now[key]}" for key in changed)
            step = f"type the first command again, or give that build up: rm -r {self.work}"
            if "vectors" in notes and not self.plan.faiss_file:
                step += f" (its vectors are worth keeping: move {self.work}/scratch/embedding.npy, then --embedding)"
            raise InputError(f"an unfinished build goes on with its own plan ({self.work})", found, step)
        return notes

    def _note(self, **facts: Any) -> None:
        self.notes |= facts
        with whole(self.work / NOTES, durable=True) as aside:
            aside.write_text(json.dumps(self.notes, indent=1))

    def run(self) -> Manifest:
        """Every stage that is not done."""
        if self.notes.get("sealed") and not self.made.exists():  # killed between the last rename and the tidying
            shutil.rmtree(self.work)
            return store.read_manifest(self.out)
        store.check_free(self.out)
        self._note()
        self.made.mkdir(exist_ok=True)
        self.scratch.mkdir(exist_ok=True)
        for stage in ("documents", "bm25", "vectors", "dense"):
            if stage not in self.notes:
                try:
                    self._note(**{stage: getattr(self, f"_{stage}")()})
                except InputError:
                    if stage in ("documents", "bm25"):  # a bad corpus: there is nothing to go on with
                        shutil.rmtree(self.work)
                    raise
        return self._sealed()

    def _documents(self) -> list[Any]:
        blob, offsets = self.made / store.DOCUMENTS, self.made / store.OFFSETS
        return list(documents.store(self.corpus, blob, offsets, self.plan.link_from, self.progress))

    @property
    def rows(self) -> int:
        """Rows of the corpus."""
        return int(self.notes["documents"][0])

    def _mapped(self) -> MappedDocuments:
        return MappedDocuments(
            self.made / store.DOCUMENTS, np.load(self.made / store.OFFSETS, mmap_mode="r"), 0, self.rows
        )

    def _bm25(self) -> bool:
        if self.plan.kind == DENSE:
            return False
        runs = self.scratch / "runs"
        runs.mkdir(exist_ok=True)
        postings.scan(self._mapped(), runs, self._report("words"))
        postings.merge_runs(runs, self.made / "bm25", self.plan.k1, self.plan.b, self._report("bm25"))
        shutil.rmtree(runs)
        return True

    def _vectors(self) -> int:
        """Width of the vectors, which are at hand now unless there is an index file; 0 without a dense index."""
        from ssp.search.index import vectors

        plan = self.plan
        if plan.kind == BM25:
            return 0
        if self.plan.parts > self.rows:
            found = f"{plan.parts} parts of {self.rows} rows"
            raise InputError("every part of an index holds a row", found, "set --parts to less")
        (self.made / "dense").mkdir(exist_ok=True)
        if plan.faiss_file:
            return vectors.adopted(plan.faiss_file, self.rows, self.dim, plan.factory)[1]
        table, report = self.scratch / "embedding.npy", self._report("vectors")
        if plan.embedding:
            return vectors.take_embedding(plan.embedding, table, self.rows, self.dim, plan.link_from, report)
        assert self.encode is not None
        vectors.embed(self._mapped(), self.encode, table, plan.batch, report)
        return int(np.load(table, mmap_mode="r").shape[1])

    def _dense(self) -> str:
        """The index's factory; "" without one."""
        from ssp.search.index import vectors

        plan, folder = self.plan, self.made / "dense"
        if plan.kind == BM25:
            return ""
        if plan.faiss_file:
            documents.place(plan.faiss_file, self.made / store.part_name(0), plan.link_from)
            return vectors.adopted(plan.faiss_file, self.rows, 0, plan.factory)[0]
        source = self.scratch / "embedding.npy"
        if plan.factory == store.FLAT:
            self._keep(source, self.made / store.VECTORS)
        else:
            table = np.load(source, mmap_mode="r")
            vectors.build_parts(table, plan.factory, plan.parts, self.scratch, folder, self._report("dense"))
        if plan.save_embedding:
            self._keep(source, self.made / store.EMBEDDING)
        return plan.factory

    def _keep(self, table: Path, target: Path) -> None:
        """The table under another name too: a second name costs nothing."""
        target.unlink(missing_ok=True)
        if table.is_symlink():
            target.symlink_to(table.resolve())
        else:
            os.link(table, target)

    def _sealed(self) -> Manifest:
        plan, factory = self.plan, self.notes["dense"]
        if (found := self.plan.noted(self.corpus)["corpus"]) != self.notes["plan"]["corpus"]:
            raise InputError("a corpus stays as it is while it is indexed", found, f"build it again: rm -r {self.work}")
        dense = None
        if plan.encoder is not None:
            dense = DensePart(factory, self.notes["vectors"], 1 if factory == store.FLAT else plan.parts, plan.encoder)
        rows, fingerprint = self.notes["documents"]
        words = (plan.k1, plan.b) if self.notes["bm25"] else None
        sources = self._sources()
        made = Manifest(rows, fingerprint, words, dense)
        made = store.seal(self.made, made, sources, self._report("seal"))
        self._note(sealed=True)
        os.rename(self.made, self.out)
        sync(self.out.parent)
        store.stamp(self.out, made)
        shutil.rmtree(self.work)
        return made

    def _sources(self) -> dict[str, Path]:
        """Where the linked files come from."""
        given = {store.DOCUMENTS: self.corpus, store.VECTORS: self.plan.embedding, store.EMBEDDING: self.plan.embedding}
        given[store.part_name(0)] = self.plan.faiss_file
        linked = {name: path.resolve() for name, path in given.items() if path and (self.made / name).exists()}
        return {name: path for name, path in linked.items() if (self.made / name).samefile(path)}
