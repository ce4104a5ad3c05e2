"""`ssp index`: a corpus file becomes an index folder, or a folder is checked.

Owns the command line, its progress bar and its summary. Promises that the folder is complete or not there, and that the same
command goes on where a killed one was. Refuses to replace a folder that exists.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.cli import Parser, whole
from ssp.base import models
from ssp.base.errors import InputError
from ssp.base.printable import say
from ssp.search.index import builder, store
from ssp.search.index.builder import IndexPlan
from ssp.search.shard import BM25, DENSE, HYBRID, KINDS
from ssp.telemetry.terminal import Terminal

if TYPE_CHECKING:
    from ssp.search.encoders.encoder import EncoderSpec

NEVER = 2**62
ABOUT = """Search-R1's index_builder.py in these words: --retrieval_method bm25 is --kind bm25, any other is --kind dense
with --encoder; --model_path is --encoder; --corpus_path is --corpus; --save_dir is --out; --max_length,
--pooling_method and --batch_size are --max-length, --pooling and --batch-size; --use_fp16 is --dtype float16;
--faiss_type is --faiss; --embedding_path is --embedding (its emb_*.memmap as it is) and --save_embedding is
--save-embedding; --faiss_gpu is retriever.gpus of a run. Its published indexes: --faiss-file e5_Flat.index
--corpus wiki-18.jsonl --encoder intfloat/e5-base-v2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when the folder is written, or right. Raises InputError for bad input of any kind."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    if args.check is not None:
        return _check(args.check)
    if args.corpus is None or args.out is None:
        raise InputError("an index is made of --corpus FILE as --out DIR", "not both of them", "see ssp index --help")
    started, plan = time.monotonic(), _plan(args)
    with _bar() as report:
        made = builder.build_index(args.corpus, args.out, plan, report)
    size = sum(entry["bytes"] for entry in made.files.values())
    parts = [f"{args.out}: {made.rows:,} documents"]
    parts += [f"bm25 (k1 {made.bm25[0]:g}, b {made.bm25[1]:g})"] if made.bm25 else []
    if made.dense:
        cut = f" in {made.dense.parts} parts" if made.dense.parts > 1 else ""
        parts.append(f"{made.dense.factory}{cut} of {made.dense.dim} numbers by {made.dense.encoder.model}")
    parts += [f"{size / 1e6:,.1f} MB", f"corpus {made.corpus_sha256[:12]}", f"{time.monotonic() - started:.1f} s"]
    say(", ".join(parts))
    return 0


def _check(folder: Path) -> int:
    manifest = store.read_manifest(folder)
    with _bar() as report:
        store.verify(folder, manifest, again=True, progress=lambda done, total: report("seal", done, total))
    size = sum(entry["bytes"] for entry in manifest.files.values())
    say(f"{folder}: right; {manifest.rows:,} documents, {' and '.join(manifest.kinds)}, {size / 1e6:,.1f} MB")
    return 0


def _plan(args: Any) -> IndexPlan:
    kind = args.kind or (DENSE if args.encoder else BM25)
    plan = IndexPlan(kind, args.k1, args.b, link_from=NEVER if args.copy else builder.LINK_FROM)
    if kind == BM25:
        asked = ("encoder", "faiss", "faiss_file", "embedding", "save_embedding", "pooling", "max_length", "parts")
        if given := [name for name in asked if getattr(args, name)]:
            found = f"--{given[0].replace('_', '-')} with --kind bm25"
            raise InputError("a BM25 index has no vectors", found, f"leave it out, or set --kind {DENSE} or {HYBRID}")
        return plan
    if not args.encoder:
        raise InputError(f"a {kind} index has an encoder", "no --encoder", "set --encoder to a model's name or folder")
    folder, spec = _encoder(args)
    plan = replace(plan, encoder=spec, folder=folder, dtype=args.dtype, device=args.device, batch=args.batch_size)
    plan = replace(plan, factory=args.faiss or store.FLAT, parts=args.parts or 1, save_embedding=args.save_embedding)
    return replace(plan, embedding=args.embedding, faiss_file=args.faiss_file)


def _encoder(args: Any) -> tuple[Path, EncoderSpec]:
    """Folder and use of the encoder. A folder is noted as an absolute path: the index is used from elsewhere."""
    from ssp.search.encoders.encoder import detect

    folder = models.folder(args.encoder, "--encoder")
    given = {"pooling": args.pooling, "passage_length": args.max_length}
    name = str(folder.absolute()) if Path(args.encoder).is_dir() else args.encoder
    return folder, detect(folder, name, {key: value for key, value in given.items() if value})


STAGES = {"documents": "reading", "words": "counting words", "bm25": "scoring", "vectors": "encoding"}
STAGES |= {"dense": "indexing vectors", "seal": "checksums"}


@contextmanager
def _bar() -> Iterator[builder.Progress]:
    """A bar a stage on a terminal, with its rate and the time left; nothing elsewhere."""
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Terminal(stderr=True)
    rate = TextColumn("{task.fields[rate]}", markup=False)
    columns = (
        TextColumn("{task.description:>16}", markup=False),
        BarColumn(),
        rate,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(STAGES[stage], rate="")
            speed = progress.tasks[tasks[stage]].speed or 0.0
            unit, scale = ("MB", 1e6) if stage == "seal" else ("rows", 1.0)
            text = f"{done / scale:,.0f} {unit}, {speed / scale:,.0f}/s"
            progress.update(tasks[stage], completed=done, total=total or None, rate=text)

        yield report


def _parser() -> Parser:
    parser = Parser("index", "Build an index folder from a corpus, or check one.")
    parser.epilog = ABOUT
    add = parser.add_argument
    add("--corpus", type=Path, help="jsonl, also .gz and .zst, or parquet: {id, contents} or {id, title, text}")
    add("--out", type=Path, help="index folder to make; the same command goes on with an unfinished one")
    add("--check", type=Path, metavar="DIR", help="only read a folder and compare it with its checksums")
    add("--kind", choices=KINDS, help="default: dense with --encoder, else bm25; hybrid is both")
    add("--k1", type=float, default=1.2, help="BM25: term saturation, at least 0 (default 1.2)")
    add("--b", type=float, default=0.25, help="BM25: length normalisation, 0 to 1 (default 0.25)")
    add("--encoder", metavar="NAME|FOLDER", help="what makes vectors of passages and queries")
    add("--pooling", help="of the encoder: mean, cls, last, pooler, decoder (default: what its files say)")
    add("--max-length", type=whole(8), help="tokens of a passage (default: what its files say)")
    add("--dtype", choices=("float32", "float16", "bfloat16"), default="float32", help="of the encoder's weights")
    add("--device", default="cpu", help="where it runs: cpu (default), cuda, cuda:1")
    add("--batch-size", type=whole(1), default=512, help="passages encoded at a time (default 512)")
    add("--faiss", metavar="FACTORY", help="Flat (exact, default), or what faiss's index_factory takes (HNSW32)")
    add(
        "--parts",
        type=whole(1, 9999),
        help="files of an index other than Flat: as many shards can share it (default 1)",
    )
    add("--save-embedding", action="store_true", help="keep the vectors as DIR/dense/embedding.npy")
    add(
        "--embedding",
        type=Path,
        metavar="FILE",
        help="vectors made before (.npy, or plain float32): nothing is encoded",
    )
    add("--faiss-file", type=Path, metavar="FILE", help="an index of this corpus that faiss wrote: taken over as it is")
    add("--copy", action="store_true", help="copy files of 1 GB and more too; they are linked otherwise")
    return parser


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
