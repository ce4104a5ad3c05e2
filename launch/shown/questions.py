"""What `ssp bank` shows of questions, and how it exports them."""

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from launch.cli import writable
from ssp.base.errors import hold
from ssp.base.printable import say
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions import files, reader
from ssp.selfplay.questions.reader import RunReading
from ssp.selfplay.questions.records import VALID, Attempt, PlayedGame, Record

SHOWN = 9
"""Characters of an id."""


def summary(console: Console, found: RunReading, records: Sequence[Record], limit: int) -> int:
    """Counts of what is meant, and its first questions, each in two lines, which a narrow terminal
    keeps readable."""
    rules = Counter(record.rule for record in records if record.verdict != VALID)
    rates = [record.difficulty for record in records if record.difficulty is not None]
    shares = Counter(min(int(rate * 5), 4) for rate in rates)
    none = "" if found.silent is None else f"; {found.silent:,} proposals handed in none"
    void = f", {found.void:,} more were void" if found.void else ""
    verdicts = sorted(Counter(record.verdict for record in records).items())
    groups = len({record.group for record in records})
    lines = {
        "questions": f"{len(records):,} of {len(found.records):,}{none}{void}",
        "verdicts": ", ".join(f"{number:,} {verdict}" for verdict, number in verdicts),
        "broken": ", ".join(f"{rule} {number:,}" for rule, number in rules.most_common()),
        "difficulty": (
            ", ".join(f"{i / 5:g}-{(i + 1) / 5:g}: {shares[i]:,}" for i in range(5))
            if rates
            else ""
        ),
        "near-duplicates": (
            f"{len(records) - groups:,} of them, {groups:,} groups" if records else ""
        ),
    }
    _lines(console, lines)
    for record in records[:limit]:
        said = [
            record.rule or VALID,
            "" if record.proposer_version is None else f"by v{record.proposer_version}",
            (
                "win rates " + " ".join(f"{rate:.2f}" for _, rate in record.history[-3:])
                if record.history
                else ""
            ),
            "" if record.difficulty is None else f"hard {record.difficulty:.2f}",
            "" if record.group == record.id else f"like {record.group[:SHOWN]}",
        ]
        heading = Text(f"{record.id[:SHOWN]}  ", style="bold").append(
            ", ".join(filter(None, said)), style="dim"
        )
        console.print(heading.append(f"\n  {record.question}  → {record.target}", style="none"))
    if len(records) > limit:
        console.print(f"{len(records) - limit:,} more: --limit N, or --export FILE.parquet")
    return 0


def _lines(console: Console, lines: dict[str, str]) -> None:
    for name, said in lines.items():
        if said:
            console.print(Text(f"{name:>15}  ", style="dim").append(said, style="none"))


def episodes(console: Console, rows: Sequence[Any], limit: int) -> int:
    """An episode a line: its id, role, what came of it, the question."""
    width = max((len(row["id"]) for row in rows[:limit]), default=0)
    for row in rows[:limit]:
        reward = "" if row["reward"] is None else f" {row['reward']:g}"
        said = f"{row['cause'] or row['outcome'] or row['state']}{reward}"
        line = Text(f"{row['id']:<{width}}  ", style="bold").append(
            f"{row['role']:<8}  {said:<18}  ", style="dim"
        )
        console.print(line.append(row["question"] or "", style="none"))
    if len(rows) > limit:
        console.print(f"{len(rows) - limit:,} more: --limit N")
    return 0


def show(console: Console, record: Record) -> int:
    """One question with everything that is on record of it."""
    lines = {
        "question": f"{record.question}  → {' | '.join(record.answers)}",
        "id": f"{record.id}, group {record.group}",
        "verdict": f"{record.verdict} {record.rule or ''}",
        "difficulty": "unknown" if record.difficulty is None else f"{record.difficulty:.2f}",
        "queries": " | ".join(record.queries) or "none",
        "evidence": ", ".join(record.evidence) or "none",
        "source": (
            f"{record.data_source} ({record.license}), corpus {record.corpus}, run {record.run}"
        ),
    }
    _lines(console, lines)
    for play in record.plays:
        tried = [(_tried(one), one.transcript) for one in record.attempts if one.game == play.game]
        for heading, transcript in [(_heading(play), play.transcript), *tried]:
            console.print(heading)
            if transcript is not None:
                console.print(Text(transcript))
    return 0


def _heading(play: PlayedGame) -> Text:
    said = f"-- {play.kind} in game {play.game}: {play.verdict} {play.rule or ''}"
    if play.proposal is not None:
        said += (
            f"; proposal {play.proposal} by version {play.proposer_version}, {play.file}:{play.row}"
        )
    if play.win_rate is not None:
        said += f"; win rate {play.win_rate:.2f} of {play.scored} by version {play.solver_version}"
    return Text(said, style="bold")


def _tried(attempt: Attempt) -> Text:
    word, style = {True: ("right", "green"), False: ("wrong", "red"), None: ("undecided", "dim")}[
        attempt.right
    ]
    word = (
        f"void: {attempt.cause}"
        if attempt.outcome == "void"
        else word + (", greedy" if attempt.greedy else "")
    )
    reward = "" if attempt.reward is None else f", reward {attempt.reward:g}"
    trained = "" if attempt.step is None else f" at step {attempt.step}"
    said = (
        f"-- attempt {attempt.episode}: {attempt.answer or 'no answer'} ({word}{reward}),"
        f" {attempt.state}{trained}, "
    )
    return Text(f"{said}version {attempt.version_max}, {attempt.file}:{attempt.row}", style=style)


def export(args: Namespace, records: Sequence[Record], run: RunFolder | None) -> int:
    """Write the export, and say what it has. InputError for what it cannot hold, and where."""
    hold(
        records,
        "an export holds at least one question",
        f"{args.bank}: none is left",
        "ask for less",
    )
    hold(
        args.export.suffix == ".parquet",
        "a bank is exported to a .parquet file",
        args.export,
        "give it such a name",
    )
    if args.transcripts and run is not None:
        records = reader.told(run, records)
    changed = {"license": args.license, "data_source": args.source}
    kept = [
        replace(record, **{name: text for name, text in changed.items() if text})
        for record in records
    ]
    with writable("an export can be written", args.export):
        files.write_bank(args.export, kept)
    say(f"{args.export}: {len(kept):,} questions")
    return 0
