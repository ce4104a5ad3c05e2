"""`ssp bank RUN`: the questions of a run, searched, shown with all that came of them, exported. The
run is only read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launch import policy
from launch.cli import Parser, number, options, run, whole
from ssp.base.errors import InputError, hold
from ssp.base.extras import extra
from ssp.base.models import existing
from ssp.record.runfolder import RunFolder
from ssp.telemetry.terminal import Terminal

if TYPE_CHECKING:
    from ssp.selfplay.questions.records import Record

SHORTEST_ID = 4
"""Characters of an id that may stand for it."""


def main(argv: Sequence[str]) -> int:
    """Run the command; 0 when it has shown or written what was asked for. Raises InputError."""
    summary = "Search, show and export the questions of a run."
    args = options(argv, "bank", summary, flags)
    if args.export is not None and args.export.exists():
        raise InputError("an export is a new file", args.export, "remove it or choose another")
    # Here, because --help needs none of it.
    from launch.shown import questions
    from ssp.selfplay.questions import files, reader
    from ssp.selfplay.questions.records import Filter

    place = Path(args.bank)
    console = Terminal(soft_wrap=True)
    folder = None if files.is_bank(place) else RunFolder(existing(args.bank))
    if folder is None and (args.yardstick or args.episodes):
        raise InputError("--yardstick and --episodes read a run", place, "give the run's folder")
    if folder is not None and args.yardstick:
        yardstick = extra("yardstick", "--yardstick")
        return int(yardstick.command(console, folder, args.yardstick, args.trust_code))
    if folder is not None and args.episodes:
        return questions.episodes(console, reader.episodes(folder), args.limit)
    if folder is None:
        reading = reader.RunReading(files.read_bank(place))
    else:
        reading = reader.read(folder)
    if args.show:
        record = named(reading.records, args.show)
        if folder is not None:
            (record,) = reader.told(folder, [record])
        return questions.show(console, record)
    names = ("valid", "rule", "min_difficulty", "max_difficulty", "contains")
    wanted = Filter(**{name: getattr(args, name) for name in names})
    records = [record for record in reading.records if wanted(record)]
    if args.export is None:
        return questions.summary(console, reading, records, args.limit)
    return questions.export(args, records, folder)


def named(records: Sequence[Record], name: str) -> Record:
    """The record with this id, the one whose id begins so, or the one of this game. InputError when
    there is none."""
    matches = []
    for record in records:
        if record.id == name or any(play.game == name for play in record.plays):
            matches.append(record)
    if not matches and len(name) >= SHORTEST_ID:
        matches = [record for record in records if record.id.startswith(name)]
    rule = f"a question is named by its id, its first {SHORTEST_ID} characters, or a game's id"
    hold(len(matches) == 1, rule, f"{name}, {len(matches) or 'none'}", "ssp bank RUN lists them")
    return matches[0]


def flags(parser: Parser) -> None:
    """The options of `ssp bank`."""
    add = parser.add_argument
    add("bank", metavar="RUN|FILE.parquet", help="a run, or what was exported of one")
    only = parser.add_argument_group("which questions, in the table and the export")
    only.add_argument("--valid", action="store_true", help="only those that the referee accepted")
    only.add_argument(
        "--rule", default="", metavar="RULE", help="only those that this rule rejected"
    )
    only.add_argument(
        "--min-difficulty",
        type=number(0, 1),
        default=0.0,
        metavar="X",
        help="1 - solve rate, at least",
    )
    only.add_argument(
        "--max-difficulty",
        type=number(0, 1),
        default=1.0,
        metavar="X",
        help="1 - solve rate, at most",
    )
    only.add_argument(
        "--contains", default="", metavar="TEXT", help="in the question or the target, in any case"
    )
    only.add_argument(
        "--limit", type=whole(0), default=20, metavar="N", help="lines of a table (default 20)"
    )
    tasks = parser.add_argument_group(
        "what to do with them, in place of a table"
    ).add_mutually_exclusive_group()
    tasks.add_argument(
        "--show", default="", metavar="QUESTION", help="one question, all attempts and transcripts"
    )
    tasks.add_argument(
        "--episodes",
        action="store_true",
        help="ids of all episodes, newest first, evaluations last",
    )
    tasks.add_argument(
        "--yardstick", type=whole(1), metavar="K", help="ask the solver's start of every K-th round"
    )
    tasks.add_argument("--export", type=Path, metavar="FILE", help="a parquet file")
    policy.trust_flag(parser)
    add("--source", default="", metavar="NAME", help="export: their data_source, such as nq")
    add("--license", default="", metavar="TEXT", help="export: the licence of the questions")
    add("--transcripts", action="store_true", help="export: with the text of every episode")


if __name__ == "__main__":
    raise SystemExit(run(main))
