"""`ssp index`: a corpus file becomes an index folder, which is complete or not there; or a folder
is checked."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from launch.cli import Parser, options, run, whole
from ssp.base import models
from ssp.base.errors import InputError, hold
from ssp.base.printable import say
from ssp.search.encoders.families import detect
from ssp.search.index import builder, store
from ssp.search.index.builder import IndexPlan
from ssp.search.shard import BM25, DENSE, HYBRID, KINDS
from ssp.telemetry.terminal import bar

OF_VECTORS = (
    "encoder",
    "faiss",
    "faiss_file",
    "embedding",
    "save_embedding",
    "pooling",
    "max_length",
    "parts",
)
"""Options that a BM25 index has no use for."""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0 when the folder is written, or right. Raises InputError for bad input of
    any kind."""
    summary = "Build an index folder from a corpus, or check one."
    args = options(argv, "index", summary, flags)
    if args.check is not None:
        made = store.read_manifest(args.check)
        with _bar() as report:
            store.verify(args.check, made, again=True, progress=partial(report, "seal"))
        parts = [f"{args.check}: right", f"{made.rows:,} documents", made.kind]
    else:
        rule = "an index is made of --corpus FILE as --out DIR"
        both = args.corpus is not None and args.out is not None
        hold(both, rule, "not both of them", "see ssp index --help")
        with _bar() as report:
            made = builder.build_index(args.corpus, args.out, _plan(args), report)
        parts = [f"{args.out}: {made.rows:,} documents"]
        if args.skip_empty:
            parts.append(f"{made.skipped:,} without text left out")
        if made.bm25:
            stems = f", {made.stemmer} stems" if made.stemmer else ""
            parts.append(f"bm25 (k1 {made.bm25[0]:g}, b {made.bm25[1]:g}{stems})")
        if made.dense:
            encoder = made.dense.encoder.model
            parts.append(f"{made.dense.factory} of {made.dense.dim} numbers by {encoder}")
    size = sum(entry["bytes"] for entry in made.files.values())
    say(", ".join([*parts, f"{size / 1e6:,.1f} MB"]))
    return 0


def _plan(args: Any) -> IndexPlan:
    """What is built. InputError for options of a dense index with BM25, and a dense one without an
    encoder."""
    kind = args.kind or (DENSE if args.encoder else BM25)
    if kind == BM25:
        for name in OF_VECTORS:
            if getattr(args, name):
                option = f"--{name.replace('_', '-')} with --kind bm25"
                step = f"leave it out, or set --kind {DENSE} or {HYBRID}"
                raise InputError("a BM25 index has no vectors", option, step)
        return IndexPlan(kind, args.k1, args.b, stemmer=args.stemmer, skip_empty=args.skip_empty)
    rule = f"a {kind} index has an encoder"
    hold(args.encoder, rule, "no --encoder", "set --encoder to a model's name or folder")
    folder = models.folder(args.encoder, "--encoder")
    typed = {"pooling": args.pooling, "passage_length": args.max_length}
    # A folder is noted as an absolute path: the index is used from elsewhere.
    name = str(folder.absolute()) if Path(args.encoder).is_dir() else args.encoder
    return IndexPlan(
        kind,
        args.k1,
        args.b,
        encoder=detect(folder, name, {key: value for key, value in typed.items() if value}),
        folder=folder,
        dtype=args.dtype,
        device=args.device,
        batch=args.batch_size,
        factory=args.faiss or store.FLAT,
        parts=args.parts or 1,
        save_embedding=args.save_embedding,
        embedding=args.embedding,
        faiss_file=args.faiss_file,
        stemmer=args.stemmer,
        skip_empty=args.skip_empty,
    )


@contextmanager
def _bar() -> Iterator[builder.Progress]:
    """A bar a stage on a terminal; nothing elsewhere."""
    with bar(disable=not sys.stderr.isatty()) as progress:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage)
            progress.update(tasks[stage], completed=done, total=total or None)

        yield report


def of_vectors(add: Callable[..., Any]) -> None:
    """The options of a dense index."""
    add("--encoder", metavar="NAME|FOLDER", help="what makes vectors of passages and queries")
    add(
        "--pooling",
        help="of the encoder: mean, cls, last, pooler, decoder (default: what its files say)",
    )
    add("--max-length", type=whole(8), help="tokens of a passage (default: what its files say)")
    add(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="of the encoder's weights",
    )
    add("--device", default="cpu", help="where it runs: cpu (default), cuda, cuda:1")
    add("--batch-size", type=whole(1), default=512, help="passages encoded at a time (default 512)")
    add(
        "--faiss",
        metavar="FACTORY",
        help="Flat (exact, default), or what faiss's index_factory takes (HNSW32)",
    )
    add(
        "--parts",
        type=whole(1, 9999),
        help="files of an index other than Flat, for as many shards (default 1)",
    )
    add("--save-embedding", action="store_true", help="keep the vectors as DIR/dense/embedding.npy")
    add(
        "--embedding",
        type=Path,
        metavar="FILE",
        help="vectors made before (.npy or plain float32), not encoded again",
    )
    add(
        "--faiss-file",
        type=Path,
        metavar="FILE",
        help="an index of this corpus that faiss wrote: taken over as it is",
    )


def flags(parser: Parser) -> None:
    """The options of `ssp index`."""
    add = parser.add_argument
    add(
        "--corpus",
        type=Path,
        help="a file, a pattern 'part-*.jsonl', or a folder of numbered files",
    )
    add(
        "--out",
        type=Path,
        help="index folder to make; the same command goes on with an unfinished one",
    )
    add(
        "--check",
        type=Path,
        metavar="DIR",
        help="only read a folder and compare it with its checksums",
    )
    add(
        "--kind",
        choices=KINDS,
        help="default: dense with --encoder, else bm25; hybrid is both",
    )
    add("--k1", type=float, default=1.2, help="BM25: term saturation, at least 0 (default 1.2)")
    add("--b", type=float, default=0.25, help="BM25: length normalisation, 0 to 1 (default 0.25)")
    add(
        "--stemmer",
        default="",
        metavar="NAME",
        help="BM25: words as their stems: porter (as Lucene, Pyserini), german, ... (default: none)",
    )
    add("--skip-empty", action="store_true", help="leave out passages without text, and count them")
    of_vectors(add)


if __name__ == "__main__":
    raise SystemExit(run(main))
