"""`ssp data convert`: question files of any format, one or several, become one file of another
format, or traces."""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from launch.cli import Parser, run, whole, writable
from ssp.base.errors import hold
from ssp.base.printable import say
from ssp.data import readers, writers
from ssp.game import protocols
from ssp.learning.warmup import rag

TRACES = "traces"
WRITERS: dict[str, Callable[[Path, Sequence[Any]], None]] = {
    "search-r1": lambda path, rows: writers.write_search_r1(
        path, rows, protocols.training_prompt()
    ),
    "flashrag": writers.write_flashrag,
    "plain": writers.write_plain,
    "ssp": writers.write_ssp,
    TRACES: writers.write_traces,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when the file is written. Raises InputError for a bad row, name or
    path."""
    args = _parser().parse_args(argv)
    hold(
        not args.out.exists(),
        "--out is a file that does not exist yet",
        args.out,
        "remove it or choose another",
    )
    rule = "--to traces, and it alone, takes --found and --protocol"
    hold(
        {bool(args.found), bool(args.protocol)} == {args.to == TRACES},
        rule,
        f"--to {args.to}",
        "see ssp data --help",
    )
    parts = readers.parts(args.src, _names(args.source), _names(args.split))
    dropped: list[str] | None = [] if args.drop_empty else None
    ssp = args.to == "ssp"
    read: Sequence[Sequence[Any]]
    several: list[str] = []
    read = (
        [readers.targets(part, dropped, several) for part in parts]
        if ssp
        else readers.merge(parts, dropped)
    )
    for part, rows in zip(parts, read, strict=True):
        split = f", split {part.split}" if part.split else ""
        missing = f" (no {', no '.join(part.missing)})" if part.missing else ""
        say(f"{part.path}: {len(rows):,} rows{split}{missing}")
    written: list[Any] = [row for rows in read for row in rows]
    counts = Counter() if ssp else Counter(question.source or "(no source)" for question in written)
    each = "".join(f", {source} {count:,}" for source, count in counts.items())
    with writable("the file can be written", args.out):
        WRITERS[args.to](args.out, _traces(args, written) if args.to == TRACES else written)
    for place in dropped or ():
        say(f"left out: {place}", file=sys.stderr)
    if several:
        say(
            f"{len(several):,} rows have several right answers: the first alone is the target",
            file=sys.stderr,
        )
    say(f"{args.out}: {len(written):,} rows, {args.to}{each}")
    return 0


def _traces(args: Namespace, questions: list[Any]) -> list[dict[str, Any]]:
    found = rag.read_found(args.found)
    made = rag.traces(questions, found, protocols.get(args.protocol), args.topk)
    if fewer := sum(len(documents) < args.topk for documents in found):
        say(f"{fewer:,} questions have fewer than {args.topk} documents")
    return made


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _parser() -> Parser:
    parser = Parser("data", "Convert and merge question files; formats are recognised row by row.")
    add = parser.add_argument
    add("action", choices=["convert"])
    add(
        "src",
        nargs="+",
        type=Path,
        help="jsonl, packed or not, parquet, or a folder NAME/{train,dev,test}.jsonl",
    )
    add("--to", required=True, choices=list(WRITERS), help="format; ssp keeps the answers only")
    add(
        "--found",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="traces: answers of POST /retrieve, in order",
    )
    add("--protocol", default="", metavar="ID", help="traces: whose prompt and answer they are")
    add(
        "--topk",
        type=whole(1),
        default=rag.TOPK,
        metavar="K",
        help=f"traces: documents in a prompt ({rag.TOPK})",
    )
    add("--out", required=True, type=Path, help="file to make: .jsonl, .jsonl.gz or .parquet")
    add(
        "--source",
        default="",
        metavar="A,B",
        help="one name a SRC, for rows without data_source, and in the ids of all",
    )
    add(
        "--split",
        default="",
        metavar="A,B",
        help="of rows without one; of a folder the first of test, dev, train",
    )
    add("--drop-empty", action="store_true", help="leave out answers that normalise to nothing")
    return parser


if __name__ == "__main__":
    raise SystemExit(run(main))
