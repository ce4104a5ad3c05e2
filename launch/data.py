"""`ssp data convert`: question files of any format, one or several, become one file of another
format, or traces."""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from launch.cli import Parser, options, run, whole, writable
from ssp.base.errors import hold
from ssp.base.printable import say
from ssp.data import forms, golds, merging, writers
from ssp.game import protocols
from ssp.learning.warmup import rag, transcripts

TRACES = "traces"
TARGETS = "ssp"
FORMS = "forms"
SEVERAL = "rows have several right answers: the first alone is the target"


def search_r1(path: Path, rows: Sequence[Any]) -> None:
    """Write questions as Search-R1 has them, with our prompt."""
    writers.write_search_r1(path, rows, protocols.training_prompt())


WRITERS: dict[str, Callable[[Path, Sequence[Any]], None]] = {
    "search-r1": search_r1,
    "flashrag": writers.write_flashrag,
    "plain": writers.write_plain,
    TARGETS: writers.write_ssp,
    TRACES: writers.write_traces,
}


def main(argv: Sequence[str]) -> int:
    """Run the command; 0 when the file is written. Raises InputError for a bad row, name or
    path."""
    summary = "Convert and merge question files; formats are recognised row by row."
    args = options(argv, "data", summary, flags)
    if args.action == FORMS:
        asked = f"question, prompt or {', '.join(forms.ASKED)}"
        say(f"questions: {', '.join(golds.COLUMNS)} beside {asked}")
        for what, name, held in forms.table():
            say(f"{what}: {name}: {held}")
        say(f"traces: {'; '.join(transcripts.FORMS.values())}")
        return 0
    rule = "ssp data convert takes SRC, --to and --out"
    hold(args.src and args.to and args.out, rule, "not all of them", "see ssp data --help")
    rule = "--out is a file that does not exist yet"
    hold(not args.out.exists(), rule, args.out, "remove it or choose another")
    of_traces = args.to == TRACES
    fits = bool(args.protocol) == of_traces and (of_traces or not args.found)
    rule = "--to traces, and it alone, takes --protocol, and --found where the source is questions"
    hold(fits, rule, f"--to {args.to}", "see ssp data --help")
    if of_traces and not args.found:
        made = transcripts.read(args.src, protocols.get(args.protocol))
        with writable("the file can be written", args.out):
            writers.write_traces(args.out, made)
        say(f"{args.out}: {len(made):,} rows, {args.to}")
        return 0

    parts = merging.parts(args.src, _names(args.source), _names(args.split))
    dropped: list[str] | None = [] if args.drop_empty else None
    several: list[str] = []
    columns = _columns(args.columns)
    read: Sequence[Sequence[Any]]
    if args.to == TARGETS:
        read = [merging.targets(part, dropped, several, columns) for part in parts]
    else:
        read = merging.merge(parts, dropped, columns)
    for part, rows in zip(parts, read, strict=True):
        split = f", split {part.split}" if part.split else ""
        missing = f" (no {', no '.join(part.missing)})" if part.missing else ""
        say(f"{part.path}: {len(rows):,} rows{split}{missing}")

    written: list[Any] = [row for rows in read for row in rows]
    said = f"{args.out}: {len(written):,} rows, {args.to}"
    if args.to != TARGETS:
        sources = Counter(question.source or "(no source)" for question in written)
        said += "".join(f", {source} {count:,}" for source, count in sources.items())
    with writable("the file can be written", args.out):
        rows = _traces(args, written) if args.to == TRACES else written
        WRITERS[args.to](args.out, rows)
    for place in dropped or ():
        say(f"left out: {place}", file=sys.stderr)
    if several:
        say(f"{len(several):,} {SEVERAL}", file=sys.stderr)
    say(said)
    return 0


def _traces(args: Namespace, questions: list[Any]) -> list[dict[str, Any]]:
    """Questions as traces of one search each, which found what POST /retrieve answered."""
    answers = rag.read_found(args.found)
    traces = rag.traces(questions, answers, protocols.get(args.protocol), args.topk)
    fewer = sum(len(documents) < args.topk for documents in answers)
    if fewer:
        say(f"{fewer:,} questions have fewer than {args.topk} documents")
    return traces


def _columns(text: str) -> dict[str, str]:
    """Our name of a column → the file's. InputError for what is no OURS=THEIRS."""
    columns = {}
    for pair in _names(text):
        ours, equals, theirs = pair.partition("=")
        rule = "--columns names columns as OURS=THEIRS, joined by commas"
        hold(ours and equals and theirs, rule, pair, "for example question=problem,answer=label")
        columns[ours.strip()] = theirs.strip()
    return columns


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def flags(parser: Parser) -> None:
    """The options of `ssp data`."""
    add = parser.add_argument
    add("action", choices=["convert", FORMS], help=f"{FORMS}: show what is read")
    add(
        "src",
        nargs="*",
        type=Path,
        help="a file, a pattern 'train-*.parquet', or a folder with train, dev and test",
    )
    add("--to", default="", choices=list(WRITERS), help="format; ssp keeps the answers only")
    add(
        "--found",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="traces of questions: answers of POST /retrieve, in order; else SRC holds transcripts",
    )
    add("--protocol", default="", metavar="ID", help="traces: whose prompt and answer they are")
    add(
        "--topk",
        type=whole(1),
        default=rag.TOPK,
        metavar="K",
        help=f"traces: documents in a prompt ({rag.TOPK})",
    )
    add("--out", type=Path, help="file to make: .jsonl, .jsonl.gz or .parquet")
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
    add(
        "--columns",
        default="",
        metavar="OURS=THEIRS,...",
        help="whose columns become question, answer, answer_aliases, answer_patterns, id",
    )
    add("--drop-empty", action="store_true", help="leave out answers that normalise to nothing")


if __name__ == "__main__":
    raise SystemExit(run(main))
