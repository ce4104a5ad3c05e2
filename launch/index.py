"""`ssp index`: a corpus file becomes a BM25 index folder.

Owns the command line and its progress line. Promises that the folder is complete or not there.
Refuses to replace a folder that exists.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from launch.cli import Parser
from ssp.data.readers import read_corpus
from ssp.search import store
from ssp.search.bm25 import build


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when the folder is written. Raises InputError for a bad corpus, folder, k1 or b."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    started = time.monotonic()
    store.check_free(args.out)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        line = progress.add_task(f"reading {args.corpus}")
        documents = read_corpus(args.corpus, lambda n: progress.update(line, description=f"reading: {n:,} documents"))
        progress.update(line, description=f"scoring {len(documents):,} documents")
        index = build(documents, args.k1, args.b)
        progress.update(line, description=f"writing {args.out}")
        store.save(index, args.out)
    size = sum(path.stat().st_size for path in args.out.iterdir())
    print(
        f"{args.out}: {index.total:,} documents, {len(index.vocabulary):,} words, {size / 1e6:.1f} MB, "
        f"k1 {args.k1}, b {args.b}, corpus {index.corpus_sha256[:12]}, {time.monotonic() - started:.1f} s"
    )
    return 0


def _parser() -> Parser:
    parser = Parser("index", "Build a BM25 index folder from a corpus.")
    parser.add_argument(
        "--corpus", required=True, type=Path, help="jsonl, also .gz: {id, contents} or {id, title, text}"
    )
    parser.add_argument("--out", required=True, type=Path, help="index folder to make")
    parser.add_argument("--k1", type=float, default=1.2, help="term saturation, at least 0 (default 1.2)")
    parser.add_argument("--b", type=float, default=0.25, help="length normalisation, 0 to 1 (default 0.25)")
    return parser


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
