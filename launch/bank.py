"""`ssp bank RUN`: the questions of a run, searched, shown with all that came of them, and exported.

Owns the command. Promises to change nothing in a run (--yardstick adds a file), and that what an export leaves out is said.
Refuses to judge: what a question is worth is what is on record.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from launch import policy
from launch.cli import Parser, whole
from launch.questions.tables import show, summary
from ssp import protocols
from ssp.bank import files, reader
from ssp.bank.records import VALID, Filter, Record
from ssp.config import load
from ssp.errors import InputError
from ssp.referee.referee import CHECKS
from ssp.referee.rules import RULES
from ssp.runfolder import RunFolder

SHORTEST_ID = 4
"""Characters of an id that may stand for it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it has shown or written what was asked for. Raises InputError."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else list(argv))
    _check(args)
    place = Path(args.bank)
    # What is neither is refused as a run.
    run = None if files.is_bank(place) else RunFolder(place)
    console = Console(highlight=False, soft_wrap=True)
    if args.curriculum or args.yardstick:
        if run is None:
            raise InputError("--curriculum and --yardstick read a run", place, "give the run's folder")
        from launch.questions import curriculum

        return curriculum.measure(console, args, run) if args.yardstick else curriculum.show(console, run, args.limit)
    found = reader.Reading(files.read_bank(place)) if run is None else reader.read(run)
    if args.ask:
        if run is None:
            raise InputError("--ask searches the corpus of a run's configuration", place, "give the run's folder")
        from launch.questions import regrade  # torch, which nothing else here needs

        return regrade.ask(console, args, run, _named(found.records, args.ask))
    if args.show:
        record = _named(found.records, args.show)
        protocol = None if run is None else protocols.get(load(str(run.config), []).protocol)
        show(console, record if run is None else reader.told(run, [record])[0], protocol)
        return 0
    wanted = Filter(args.valid, args.rule, args.min_difficulty, args.max_difficulty, args.version, args.contains)
    records = [record for record in found.records if wanted(record)]
    if args.export is None:
        summary(console, found, records, args.limit)
    else:
        _export(args, records, run)
    return 0


def _check(args: Namespace) -> None:
    """What can be refused before anything is read."""
    if args.rule and args.rule not in (known := [*RULES, *CHECKS]):
        raise InputError("--rule is one that the referee knows", args.rule, f"use one of {', '.join(known)}")
    if not 0 <= args.min_difficulty <= args.max_difficulty <= 1:
        found = f"{args.min_difficulty:g} and {args.max_difficulty:g}"
        raise InputError("--min-difficulty and --max-difficulty are bounds between 0 and 1", found, "type others")
    needs = {
        "--ask": ("policy", "model", "tokenizer") if not (args.ask or args.yardstick) else (),
        "--export": ("format", "transcripts", "license") if args.export is None else (),
    }
    for other, name in ((other, name) for other, names in needs.items() for name in names if getattr(args, name)):
        raise InputError(f"--{name} is for {other}", f"no {other}", f"leave --{name} out")
    if args.export is None:
        return
    if args.export.exists():
        raise InputError("an export is a new file or folder", args.export, "remove it or choose another")
    if args.transcripts and args.format == "search-r1":
        raise InputError("transcripts have no place in Search-R1's columns", "--transcripts", "leave it out")


def _named(records: Sequence[Record], name: str) -> Record:
    """The record with this id, the one whose id begins so, or the one of this game. InputError when there is none."""
    exact = [record for record in records if record.id == name or any(play.game == name for play in record.plays)]
    near = [record for record in records if len(name) >= SHORTEST_ID and record.id.startswith(name)]
    found = exact or near
    if len(found) != 1:
        said = "none" if not found else f"{len(found)} questions: {', '.join(record.id for record in found[:3])}"
        rule = f"a question is named by its id, its first {SHORTEST_ID} characters, or a game's id"
        raise InputError(rule, f"{name}, {said}", "ssp bank RUN lists them")
    return found[0]


def _export(args: Namespace, records: Sequence[Record], run: RunFolder | None) -> None:
    kind = args.format or "bank"
    kept = [record for record in records if kind == "bank" or record.verdict == VALID]
    if not kept:
        raise InputError("an export holds at least one question", f"{args.bank}: none is left", "ask for less")
    if args.transcripts and run is not None:
        kept = reader.told(run, kept)
    if args.license:
        kept = [replace(record, license=args.license) for record in kept]
    if args.export.suffix:
        if kind == "bank" and args.export.suffix != ".parquet":
            rule = "a bank is exported to a .parquet file, or to a folder, whose name has no ending"
            raise InputError(rule, args.export, "give it such a name")
        files.WRITERS[kind](args.export, kept)
    else:
        files.write_folder(args.export, kept, kind)
    out = f" ({len(records) - len(kept):,} left out, which no referee accepted)" if len(kept) < len(records) else ""
    print(f"{args.export}: {len(kept):,} questions, {kind}{out}")


def _parser() -> Parser:
    parser = Parser("bank", "Search, show and export the questions of a run.")
    parser.add_argument("bank", metavar="RUN|FILE.parquet|DIR", help="a run's folder, or what was exported of one")
    parser.add_argument("--valid", action="store_true", help="only questions that the referee accepted")
    parser.add_argument("--rule", default="", metavar="RULE", help="only questions that this rule rejected")
    parser.add_argument("--min-difficulty", type=float, default=0.0, metavar="X", help="1 - solve rate, at least")
    parser.add_argument("--max-difficulty", type=float, default=1.0, metavar="X", help="1 - solve rate, at most")
    parser.add_argument("--version", type=whole(0), metavar="N", help="only those that this proposer version asked")
    parser.add_argument("--contains", default="", metavar="TEXT", help="in the question or the target, in any case")
    parser.add_argument("--limit", type=whole(0), default=20, metavar="N", help="questions in the table (default 20)")
    parser.add_argument("--show", default="", metavar="ID", help="one question with all attempts and transcripts")
    parser.add_argument(
        "--ask", default="", metavar="ID", help="play one question again, by --policy (default: the run's)"
    )
    parser.add_argument("--curriculum", action="store_true", help="the rounds: how hard, how far, how many different")
    parser.add_argument(
        "--yardstick", type=whole(1), metavar="K", help="ask --policy (default: the solver's start) of every K-th round"
    )
    parser.add_argument(
        "--questions", type=whole(2), default=8, metavar="N", help="--yardstick: of a round (default 8)"
    )
    policy.add_flags(parser)
    parser.add_argument("--export", type=Path, metavar="FILE|DIR", help="a parquet file, or a Hugging Face data set")
    parser.add_argument(
        "--format", choices=list(files.WRITERS), help="export: all fields (bank, default), or training rows"
    )
    parser.add_argument("--transcripts", action="store_true", help="export: with the text of every episode")
    parser.add_argument("--license", default="", metavar="TEXT", help="export: the licence of the questions")
    return parser


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
