"""`ssp data convert`: question files of any format, one or several, become one file of another format, or traces."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from launch.cli import Parser
from ssp.base.errors import InputError
from ssp.base.printable import say
from ssp.data import merge, writers
from ssp.game import protocols
from ssp.learning.warmup import rag

WRITERS: dict[str, Callable[[Path, Sequence[Any]], None]] = {
    "search-r1": lambda path, rows: writers.write_search_r1(path, rows, protocols.training_prompt()),
    "flashrag": writers.write_flashrag,
    "plain": writers.write_plain,
    "ssp": writers.write_ssp,
    "traces": writers.write_traces,
}
TRACES = "traces"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when the file is written. Raises InputError for a bad row, name or path."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    if args.out.exists():
        raise InputError("--out is a file that does not exist yet", args.out, "remove it or choose another")
    _convert(args)
    return 0


def _convert(args: Namespace) -> None:
    _check(args)
    found = merge.parts(args.src, _names(args.source), _names(args.split))
    dropped: list[str] | None = [] if args.drop_empty else None
    counts: Counter[str] = Counter()
    if args.to == "ssp":
        read: list[Sequence[Any]] = [merge.targets(part, dropped) for part in found]
    else:
        read = [*merge.merge(found, dropped)]
        counts.update(question.source or "(no source)" for part in read for question in part)
    for part, rows in zip(found, read, strict=True):
        split = f", split {part.split}" if part.split else ""
        missing = f" (no {', no '.join(part.missing)})" if part.missing else ""
        say(f"{part.path}: {len(rows):,} rows{split}{missing}")
    written: list[Any] = [row for rows in read for row in rows]
    if args.to == TRACES:
        written = _traces(args, written)
    WRITERS[args.to](args.out, written)
    for place in dropped or ():
        say(f"left out: {place}", file=sys.stderr)
    each = "".join(f", {source} {count:,}" for source, count in counts.items())
    say(f"{args.out}: {sum(map(len, read)):,} rows, {args.to}{each}")


def _check(args: Namespace) -> None:
    """Traces need what was found and a protocol; no other format takes them."""
    given = {"--found": args.found, "--protocol": args.protocol, "--topk": args.topk is not None}
    if args.to != TRACES:
        for name in (name for name, value in given.items() if value):
            raise InputError(f"{name} is for --to traces", f"--to {args.to}", f"leave {name} out")
        return
    for name in (name for name in ("--found", "--protocol") if not given[name]):
        raise InputError(f"--to traces needs {name}", "not there", "see ssp data --help")
    if args.topk is not None and args.topk < 1:
        raise InputError("--topk is at least 1", args.topk, "give a larger number")


def _traces(args: Namespace, questions: list[Any]) -> list[dict[str, Any]]:
    protocol, topk = protocols.get(args.protocol), rag.TOPK if args.topk is None else args.topk
    found = rag.read_found(args.found)
    made = rag.traces(questions, found, protocol, topk)
    if fewer := sum(len(documents) < topk for documents in found):
        say(f"{fewer:,} questions have fewer than {topk} documents")
    return made


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _parser() -> Parser:
    parser = Parser("data", "Convert and merge question files; formats are recognised row by row.")
    parser.add_argument("action", choices=["convert"])
    parser.add_argument(
        "src", nargs="+", type=Path, help="jsonl (also .gz, .zst), parquet, or a folder NAME/{train,dev,test}.jsonl"
    )
    parser.add_argument("--to", required=True, choices=list(WRITERS), help="format; ssp keeps the answers only")
    parser.add_argument(
        "--found", nargs="+", type=Path, default=[], metavar="FILE",
        help="traces: what POST /retrieve answered to the questions, in their order (JSON files)",
    )  # fmt: skip
    parser.add_argument("--protocol", default="", metavar="ID", help="traces: whose prompt and answer they are")
    parser.add_argument("--topk", type=int, metavar="K", help=f"traces: documents in a prompt (default {rag.TOPK})")
    parser.add_argument("--out", required=True, type=Path, help="file to make: .jsonl, .jsonl.gz or .parquet")
    parser.add_argument("--source", default="", metavar="A,B", help="one name a SRC, for rows without data_source")
    parser.add_argument(
        "--split",
        default="",
        metavar="A,B",
        help="split of rows that name none; of a folder the first that is there (default test,dev,train)",
    )
    parser.add_argument("--drop-empty", action="store_true", help="leave out answers that normalise to nothing")
    return parser


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
