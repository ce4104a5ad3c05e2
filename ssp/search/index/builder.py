"""A corpus file becomes an index folder, in stages: documents, bm25, vectors, dense, seal. The
folder is complete or not there. The same command goes on where a killed one stopped:
`.NAME.building` beside the folder says what is done."""

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
from ssp.data.containers import files
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
    """What is built. `kind`: bm25, dense, hybrid (both). `k1`, `b`: BM25's;
    `stemmer`: of its words, "" for none. `skip_empty`: passages without text are left out.

    For dense: `encoder` and the `folder` of its weights, `dtype`, `device`, `batch` texts at a
    time; `factory`, faiss's string, in `parts` files of consecutive rows (Flat needs none). With
    `save_embedding` the vectors stay in the folder beside the index. Instead of encoding,
    `embedding` names a file of the corpus's vectors, or `faiss_file` an index of them."""

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
    stemmer: str = ""
    skip_empty: bool = False

    def check(self) -> None:
        """InputError for settings that do not go together."""
        postings.check(self.k1, self.b)
        postings.cutter(self.stemmer)
        rule = "a stemmer is of the words of BM25"
        fits = not self.stemmer or self.kind != DENSE
        hold(fits, rule, f"--stemmer {self.stemmer} with --kind {DENSE}", "leave it out")
        if (self.kind == BM25) != (self.encoder is None):
            rule = "a dense or hybrid index has an encoder, a BM25 index none"
            raise InputError(rule, f"--kind {self.kind}", "set --kind and --encoder")
        if self.faiss_file and (self.embedding or self.save_embedding or self.parts > 1):
            both = "--faiss-file with --embedding, --save-embedding or --parts"
            raise InputError("an index file is taken over as it is", both, "leave these out")
        if self.skip_empty and (self.faiss_file or self.embedding):
            rule = "vectors from elsewhere count every row of the corpus"
            raise InputError(rule, "--skip-empty", "leave it out")
        if self.factory == store.FLAT and self.parts > 1:
            rule = "any number of shards share a Flat index; others have parts"
            raise InputError(rule, f"--parts {self.parts}", "leave it out")

    def noted(self, corpus: Path) -> dict[str, Any]:
        """All that decides the folder, with size and time of each file, as JSON. InputError for a
        file that is not one."""
        body = asdict(replace(self, device=""))
        body |= {"folder": str(self.folder), "version": store.VERSION}
        sources = {"corpus": corpus, "embedding": self.embedding, "faiss_file": self.faiss_file}
        for key, path in sources.items():
            if path is None:
                continue
            marks: list[Any] = []
            for file in files(path) if key == "corpus" else [path]:
                rule = "a data file must exist, and be a file"
                hold(file.is_file(), rule, file, "check the path")
                stat = file.stat()
                marks += [str(file.absolute()), stat.st_size, stat.st_mtime_ns]
            body[key] = marks
        return json.loads(json.dumps(body))  # type: ignore[no-any-return]


def build_index(
    corpus: Path,
    out: Path,
    plan: IndexPlan,
    progress: Progress = lambda stage, done, total: None,
    encode: Encode | None = None,
) -> Manifest:
    """Make the folder `out`, or go on with it. `progress` hears the stage, how much is done, and
    how much there is (0: not known): rows, and bytes in "seal". `encode`: passages → vectors,
    instead of the plan's encoder. InputError for bad input, a taken or an unwritable folder, an
    unfinished build of another plan, and one that is under way."""
    plan.check()
    noted = plan.noted(corpus)
    dim = getattr(encode, "dim", 0)
    if plan.kind != BM25:  # before the first stage: hours may lie between
        from ssp.search.dense import open_index
        from ssp.search.index import vectors

        if plan.faiss_file:
            open_index(plan.faiss_file)
        if encode is None:
            from ssp.search.encoders.encoder import TextEncoder

            assert plan.folder is not None and plan.encoder is not None
            encoder = TextEncoder(plan.folder, plan.encoder, plan.dtype, plan.device)
            encode = encoder.encode_passages
            dim = encoder.dim
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
        reason = f"{out}: {error.strerror or error}"
        step = "make room or choose another; then run it again"
        raise InputError("the index folder can be written", reason, step) from error


@dataclass
class _Build:
    """One run over the stages. What a stage made counts once a note says that it is done."""

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
        self.made = self.work / "made"
        self.scratch = self.work / "scratch"
        file = self.work / NOTES
        rule = "the notes of an unfinished build can be read"
        step = f"type the first command again, or give that build up: rm -r {self.work}"
        with holding((ValueError, KeyError, TypeError), rule, file, step):
            self.notes = json.loads(file.read_bytes()) if file.exists() else {"plan": self.noted}
            before = self.notes["plan"]
        changed = []
        for key, value in self.noted.items():
            if before.get(key) != value:
                changed.append(f"{key} was {before.get(key)}, now {value}")
        rule = f"an unfinished build goes on with its own plan ({self.work})"
        hold(not changed, rule, "; ".join(changed), step)

    def _note(self, **facts: Any) -> None:
        self.notes |= facts
        with whole(self.work / NOTES, durable=True) as aside:
            aside.write_text(json.dumps(self.notes, indent=1))

    def run(self) -> Manifest:
        """Make every stage that is not done, and return what the folder holds."""
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

    def _documents(self) -> tuple[int, str, int]:
        blob, offsets = self.made / store.DOCUMENTS, self.made / store.OFFSETS
        names = self.made / store.NAMES
        skip = self.plan.skip_empty
        return documents.store(self.corpus, blob, offsets, names, self.progress, skip)

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
        plan = self.plan
        cut = postings.cutter(plan.stemmer)
        postings.on_disk(self._held, scratch, out, plan.k1, plan.b, self.progress, cut)
        shutil.rmtree(scratch)
        return True

    def _vectors(self) -> int:
        """Width of the vectors, which are at hand now unless there is an index file."""
        from ssp.search.index import vectors

        plan = self.plan
        held = self._held
        parts = f"{plan.parts} parts of {held.rows} rows"
        rule = "every part of an index holds a row"
        hold(plan.parts <= held.rows, rule, parts, "set --parts to less")
        (self.made / "dense").mkdir(exist_ok=True)
        if plan.faiss_file:
            _, width = vectors.adopted(plan.faiss_file, held.rows, self.dim, plan.factory)
            if self.encode is not None:
                vectors.check_rows(plan.faiss_file, held, self.encode)
            return width
        table = self.scratch / TABLE
        report = partial(self.progress, "vectors")
        if plan.embedding:
            return vectors.take_embedding(plan.embedding, table, held.rows, self.dim, report)
        assert self.encode is not None
        vectors.embed(held, self.encode, table, plan.batch, report)
        return int(np.load(table, mmap_mode="r").shape[1])

    def _dense(self) -> str:
        """The index's factory."""
        from ssp.search.index import vectors

        plan = self.plan
        if plan.faiss_file:
            documents.place(plan.faiss_file, self.made / store.part_name(0))
            factory, _ = vectors.adopted(plan.faiss_file, self._held.rows, 0, plan.factory)
            return factory
        source = self.scratch / TABLE
        if plan.factory == store.FLAT:
            _second_name(source, self.made / store.VECTORS)
        else:
            table = np.load(source, mmap_mode="r")
            out = self.made / "dense"
            report = partial(self.progress, "dense")
            vectors.build_parts(table, plan.factory, plan.parts, self.scratch, out, report)
        if plan.save_embedding:
            _second_name(source, self.made / store.EMBEDDING)
        return plan.factory

    def _sealed(self) -> Manifest:
        plan, notes = self.plan, self.notes
        corpus = plan.noted(self.corpus)["corpus"]
        rule = "a corpus stays as it is while it is indexed"
        same = corpus == notes["plan"]["corpus"]
        hold(same, rule, corpus, f"build it again: rm -r {self.work}")
        words = (plan.k1, plan.b) if notes["bm25"] else None
        dense = None
        if plan.encoder is not None:
            parts = 1 if notes["dense"] == store.FLAT else plan.parts
            dense = DensePart(notes["dense"], notes["vectors"], parts, plan.encoder)
        rows, fingerprint, skipped = notes["documents"]
        manifest = Manifest(rows, fingerprint, words, dense, stemmer=plan.stemmer, skipped=skipped)
        manifest = store.seal(self.made, manifest, partial(self.progress, "seal"))
        self._note(sealed=True)
        os.rename(self.made, self.out)
        sync(self.out.parent)
        store.stamp(self.out, manifest)
        shutil.rmtree(self.work)
        return manifest


def _second_name(source: Path, target: Path) -> None:
    """Give the file `source` the name `target` too, which costs nothing where it can be done."""
    target.unlink(missing_ok=True)
    if source.is_symlink():
        target.symlink_to(source.resolve())
        return
    try:
        os.link(source, target)
    except OSError:  # a file system without second names
        shutil.copyfile(source, target)
