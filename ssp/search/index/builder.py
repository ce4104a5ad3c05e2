"""A corpus file becomes an index folder, in stages: documents, bm25, vectors, dense, seal. The
folder is complete or not there, and the same command goes on where a killed one was
(`.NAME.building` beside the folder says what is done)."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ssp.base.errors import InputError, hold, holding
from ssp.base.files import sync, whole
from ssp.data.rows import lines
from ssp.search import documents, postings
from ssp.search.documents import MappedDocuments, Progress
from ssp.search.encoders.families import EncoderSpec
from ssp.search.index import store
from ssp.search.index.store import DensePart, Manifest
from ssp.search.shard import BM25, DENSE

if TYPE_CHECKING:
    from ssp.search.index.vectors import Encode

NOTES, TABLE = "notes.json", "embedding.npy"


@dataclass(frozen=True)
class IndexPlan:
    """What is built. `kind`: bm25, dense, hybrid (both); `k1`, `b`: of BM25. Dense: `encoder` and
    the `folder` of its weights, `dtype`, `device`, `batch` texts at a time; `factory`: faiss's
    string, in `parts` files of consecutive rows (Flat needs none); `save_embedding`: the vectors
    stay in the folder beside the index. `embedding`: a file of the corpus's vectors, `faiss_file`:
    an index of them, both instead of encoding."""

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

    def check(self) -> None:
        """InputError for settings that do not go together."""
        postings.check(self.k1, self.b)
        rule, found = (
            "a dense or hybrid index has an encoder, a BM25 index none",
            f"--kind {self.kind}",
        )
        hold((self.kind == BM25) == (self.encoder is None), rule, found, "set --kind and --encoder")
        if self.faiss_file and (self.embedding or self.save_embedding or self.parts > 1):
            found = "--faiss-file with --embedding, --save-embedding or --parts"
            raise InputError("an index file is taken over as it is", found, "leave these out")
        rule = "any number of shards share a Flat index; others have parts"
        hold(
            self.factory != store.FLAT or self.parts <= 1,
            rule,
            f"--parts {self.parts}",
            "leave it out",
        )

    def noted(self, corpus: Path) -> dict[str, Any]:
        """All that decides the folder, with size and time of each file, as JSON. InputError for a
        file that is not one."""
        body = asdict(replace(self, device="")) | {
            "folder": str(self.folder),
            "version": store.VERSION,
        }
        for key, path in (
            ("corpus", corpus),
            ("embedding", self.embedding),
            ("faiss_file", self.faiss_file),
        ):
            if path is None:
                continue
            if path.is_dir():
                next(lines(path))  # refuses it, with the names of the files in it
            hold(path.is_file(), "a data file must exist, and be a file", path, "check the path")
            stat = path.stat()
            body[key] = [str(path.absolute()), stat.st_size, stat.st_mtime_ns]
        return json.loads(json.dumps(body))  # type: ignore[no-any-return]


def build_index(
    corpus: Path,
    out: Path,
    plan: IndexPlan,
    progress: Progress = lambda stage, done, total: None,
    encode: Encode | None = None,
) -> Manifest:
    """Make the folder `out`, or go on with it. `progress`: stage, done, in all (0: not known);
    rows, and bytes in "seal". `encode`: passages → vectors, instead of the plan's encoder.
    InputError for bad input, a taken or an unwritable folder, an unfinished build of another plan,
    and one that is under way."""
    plan.check()
    noted, dim = plan.noted(corpus), getattr(encode, "dim", 0)
    if plan.kind != BM25:  # before the first stage: hours may lie between
        from ssp.search.dense import open_index
        from ssp.search.index import vectors

        if plan.faiss_file:
            open_index(plan.faiss_file)
        if encode is None:
            from ssp.search.encoders.encoder import TextEncoder

            assert plan.folder is not None and plan.encoder is not None
            encoder = TextEncoder(plan.folder, plan.encoder, plan.dtype, plan.device)
            encode, dim = encoder.encode_passages, encoder.dim
        if dim and not plan.faiss_file:
            vectors.check_factory(plan.factory, dim)
    out = out.absolute()
    work = out.parent / f".{out.name}.building"
    if not work.exists():
        store.check_free(out)
    try:
        work.mkdir(parents=True, exist_ok=True)
        with (work / "lock").open("w") as lock:
            rule = "one process at a time builds an index"
            with holding(BlockingIOError, rule, lambda _: work, "wait for the other one"):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _Build(corpus, out, work, plan, noted, progress, encode, dim).run()
    except OSError as error:
        found, step = (
            f"{out}: {error.strerror or error}",
            "make room or choose another; then run it again",
        )
        raise InputError("the index folder can be written", found, step) from error


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
    notes: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.made, self.scratch = self.work / "made", self.work / "scratch"
        file, step = (
            self.work / NOTES,
            f"type the first command again, or give that build up: rm -r {self.work}",
        )
        with holding(
            (ValueError, KeyError, TypeError),
            "the notes of an unfinished build can be read",
            file,
            step,
        ):
            self.notes = json.loads(file.read_bytes()) if file.exists() else {"plan": self.noted}
            before = self.notes["plan"]
        if changed := [key for key, value in self.noted.items() if before.get(key) != value]:
            found = "; ".join(
                f"{key} was {before.get(key)}, now {self.noted[key]}" for key in changed
            )
            raise InputError(
                f"an unfinished build goes on with its own plan ({self.work})", found, step
            )

    def _note(self, **facts: Any) -> None:
        self.notes |= facts
        with whole(self.work / NOTES, durable=True) as aside:
            aside.write_text(json.dumps(self.notes, indent=1))

    def run(self) -> Manifest:
        """Every stage that is not done."""
        # killed between the last rename and the tidying
        if self.notes.get("sealed") and not self.made.exists():
            shutil.rmtree(self.work)
            return store.read_manifest(self.out)
        store.check_free(self.out)
        self._note()
        self.made.mkdir(exist_ok=True)
        self.scratch.mkdir(exist_ok=True)
        stages: dict[str, Callable[[], Any]] = {"documents": self._documents, "bm25": self._bm25}
        if self.plan.kind != BM25:
            stages |= {"vectors": self._vectors, "dense": self._dense}
        for stage, make in stages.items():
            if stage not in self.notes:
                try:
                    self._note(**{stage: make()})
                except InputError:
                    # a bad corpus: there is nothing to go on with
                    if stage in ("documents", "bm25"):
                        shutil.rmtree(self.work)
                    raise
        return self._sealed()

    def _documents(self) -> tuple[int, str]:
        blob, offsets = self.made / store.DOCUMENTS, self.made / store.OFFSETS
        return documents.store(self.corpus, blob, offsets, self.progress)

    @property
    def _held(self) -> MappedDocuments:
        offsets = np.load(self.made / store.OFFSETS, mmap_mode="r")
        return MappedDocuments(self.made / store.DOCUMENTS, offsets, 0, len(offsets) - 1)

    def _bm25(self) -> bool:
        if self.plan.kind == DENSE:
            return False
        scratch, out = self.scratch / "runs", self.made / "bm25"
        for folder in (scratch, out):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        postings.on_disk(self._held, scratch, out, self.plan.k1, self.plan.b, self.progress)
        shutil.rmtree(scratch)
        return True

    def _vectors(self) -> int:
        """Width of the vectors, which are at hand now unless there is an index file."""
        from ssp.search.index import vectors

        plan, held = self.plan, self._held
        rule = "every part of an index holds a row"
        hold(
            plan.parts <= held.rows,
            rule,
            f"{plan.parts} parts of {held.rows} rows",
            "set --parts to less",
        )
        (self.made / "dense").mkdir(exist_ok=True)
        if plan.faiss_file:
            width = vectors.adopted(plan.faiss_file, held.rows, self.dim, plan.factory)[1]
            if self.encode is not None:
                vectors.check_rows(plan.faiss_file, held, self.encode)
            return width
        table, report = self.scratch / TABLE, partial(self.progress, "vectors")
        if plan.embedding:
            return vectors.take_embedding(plan.embedding, table, held.rows, self.dim, report)
        assert self.encode is not None
        vectors.embed(held, self.encode, table, plan.batch, report)
        return int(np.load(table, mmap_mode="r").shape[1])

    def _dense(self) -> str:
        """The index's factory."""
        from ssp.search.index import vectors

        plan, source = self.plan, self.scratch / TABLE
        if plan.faiss_file:
            documents.place(plan.faiss_file, self.made / store.part_name(0))
            return vectors.adopted(plan.faiss_file, self._held.rows, 0, plan.factory)[0]
        if plan.factory != store.FLAT:
            table, report = np.load(source, mmap_mode="r"), partial(self.progress, "dense")
            vectors.build_parts(
                table, plan.factory, plan.parts, self.scratch, self.made / "dense", report
            )
        kept = {store.VECTORS: plan.factory == store.FLAT, store.EMBEDDING: plan.save_embedding}
        # a second name costs nothing
        for target in (self.made / name for name, wanted in kept.items() if wanted):
            target.unlink(missing_ok=True)
            if source.is_symlink():
                target.symlink_to(source.resolve())
            else:
                try:
                    os.link(source, target)
                except OSError:  # a file system without second names
                    shutil.copyfile(source, target)
        return plan.factory

    def _sealed(self) -> Manifest:
        plan = self.plan
        if (found := plan.noted(self.corpus)["corpus"]) != self.notes["plan"]["corpus"]:
            raise InputError(
                "a corpus stays as it is while it is indexed",
                found,
                f"build it again: rm -r {self.work}",
            )
        dense = None
        if plan.encoder is not None:
            factory = self.notes["dense"]
            dense = DensePart(
                factory,
                self.notes["vectors"],
                1 if factory == store.FLAT else plan.parts,
                plan.encoder,
            )
        rows, fingerprint = self.notes["documents"]
        made = Manifest(rows, fingerprint, (plan.k1, plan.b) if self.notes["bm25"] else None, dense)
        made = store.seal(self.made, made, partial(self.progress, "seal"))
        self._note(sealed=True)
        os.rename(self.made, self.out)
        sync(self.out.parent)
        store.stamp(self.out, made)
        shutil.rmtree(self.work)
        return made
