"""`ssp bank RUN`: the questions of a run, searched, shown with all that came of them, and exported.

Promises to change nothing in a run (--yardstick adds a file), and that what an export leaves out is said.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from launch import policy
from launch.cli import Parser, whole
from ssp.base.errors import InputError
from ssp.base.models import existing
from ssp.game import protocols
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions.records import Filter, Record
from ssp.telemetry.terminal import Terminal

FORMATS = ("bank", "search-r1")
"""What --export writes: the names of `ssp.selfplay.questions.files.WRITERS`."""

SHORTEST_ID = 4
"""Characters of an id that may stand for it."""

TASKS, TABLE = ("show", "ask", "episodes", "curriculum", "yardstick", "export"), "the table"
FLAGS = {
    **dict.fromkeys(("valid", "rule", "min_difficulty", "max_difficulty", "version", "contains"), (TABLE, "--export")),
    "limit": (TABLE, "--curriculum", "--episodes"),
    "questions": ("--yardstick",),
    **dict.fromkeys(("policy", "model", "tokenizer", "trust_code"), ("--ask", "--yardstick")),
    **dict.fromkeys(("format", "source", "transcripts", "license"), ("--export",)),
}
"""Flag → what it is for; anywhere else it is refused."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it has shown or written what was asked for. Raises InputError."""
    parser = _parser()
    args = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    _check(args, parser)
    # Here, because --help needs none of it.
    from launch.questions import export
    from launch.questions.tables import episodes, show, summary
    from ssp.selfplay.questions import files, reader

    place = Path(args.bank)
    run = None if files.is_bank(place) else RunFolder(existing(args.bank))
    console = Terminal(soft_wrap=True)
    if args.curriculum or args.yardstick:
        if run is None:
            raise InputError("--curriculum and --yardstick read a run", place, "give the run's folder")
        from launch.questions import curriculum

        return curriculum.measure(console, args, run) if args.yardstick else curriculum.show(console, run, args.limit)
    if args.episodes:
        if run is None:
            raise InputError("--episodes reads a run's ledger", place, "give the run's folder")
        episodes(console, reader.episodes(run), args.limit)
        return 0
    found = reader.Reading(files.read_bank(place)) if run is None else reader.read(run)
    if args.ask:
        if run is None:
            raise InputError("--ask searches the corpus of a run's configuration", place, "give the run's folder")
        from launch.questions import regrade  # torch, which nothing else here needs

        return regrade.ask(console, args, run, _named(found.records, args.ask))
    if args.show:
        record = _named(found.records, args.show)
        if run is None:
            show(console, record)
        else:
            told = reader.told(run, [record])[0], protocols.get(RunReader(run).cfg.protocol)
            show(console, *told, reader.begins(run, record))
        return 0
    wanted = Filter(args.valid, args.rule, args.min_difficulty, args.max_difficulty, args.version, args.contains)
    records = [record for record in found.records if wanted(record)]
    if args.export is None:
        summary(console, found, records, args.limit)
    else:
        export.write(args, records, run)
    return 0


def _check(args: Namespace, parser: Parser) -> None:
    """What can be refused before anything is read."""
    tasks = [f"--{name}" for name in TASKS if getattr(args, name)]
    if len(tasks) > 1:
        raise InputError("ssp bank does one thing at a time", " and ".join(tasks), "leave one of them out")
    task = tasks[0] if tasks else TABLE
    for name, ends in FLAGS.items():
        if task not in ends and getattr(args, name) != parser.get_default(name):
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} is for {' and '.join(ends)}", f"{flag} with {task}", f"leave {flag} out")
    from ssp.game.referee.referee import CHECKS
    from ssp.game.referee.rules import RULES

    if args.rule and args.rule not in (known := [*RULES, *CHECKS]):
        raise InputError("--rule is one that the referee knows", args.rule, f"use one of {', '.join(known)}")
    if not 0 <= args.min_difficulty <= args.max_difficulty <= 1:
        found = f"{args.min_difficulty:g} and {args.max_difficulty:g}"
        raise InputError("--min-difficulty and --max-difficulty are bounds between 0 and 1", found, "type others")
    if args.export is not None:
        from launch.questions import export

        export.check(args)


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


def _parser() -> Parser:
    parser = Parser("bank", "Search, show and export the questions of a run.")
    parser.add_argument(
        "bank",
        metavar="RUN|FILE.parquet|DIR",
        help="a run (its folder, or its name below runs/), or what was exported of one",
    )
    parser.add_argument("--valid", action="store_true", help="only questions that the referee accepted")
    parser.add_argument("--rule", default="", metavar="RULE", help="only questions that this rule rejected")
    parser.add_argument("--min-difficulty", type=float, default=0.0, metavar="X", help="1 - solve rate, at least")
    parser.add_argument("--max-difficulty", type=float, default=1.0, metavar="X", help="1 - solve rate, at most")
    parser.add_argument("--version", type=whole(0), metavar="N", help="only those that this proposer version asked")
    parser.add_argument("--contains", default="", metavar="TEXT", help="in the question or the target, in any case")
    parser.add_argument("--limit", type=whole(0), default=20, metavar="N", help="so many of them (default 20)")
    parser.add_argument("--show", default="", metavar="QUESTION", help="one question with all attempts and transcripts")
    parser.add_argument(
        "--ask", default="", metavar="QUESTION", help="play one question again, by --policy (default: the run's)"
    )
    parser.add_argument("--episodes", action="store_true", help="ids of all episodes, newest first, evaluations last")
    parser.add_argument("--curriculum", action="store_true", help="the rounds: how hard, how far, how many different")
    parser.add_argument(
        "--yardstick", type=whole(1), metavar="K", help="ask --policy (default: the solver's start) of every K-th round"
    )
    parser.add_argument(
        "--questions", type=whole(2), default=8, metavar="N", help="--yardstick: of a round (default 8)"
    )
    policy.add_flags(parser)
    parser.add_argument("--export", type=Path, metavar="FILE|DIR", help="a parquet file, or a Hugging Face data set")
    parser.add_argument("--format", choices=FORMATS, help="export: all fields (bank, default), or training rows")
    parser.add_argument("--source", metavar="NAME", help="export, search-r1: their data_source, such as nq")
    parser.add_argument("--transcripts", action="store_true", help="export: with the text of every episode")
    parser.add_argument("--license", metavar="TEXT", help="export: the licence of the questions")
    return parser


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
