"""What `ssp bank` shows of questions, and how it exports them."""

import re
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
TAG = re.compile(r"(?:^|\s)\s*(<(?!/)\w+>)")
"""Where a segment of a transcript begins, which gets a line of its own."""


def summary(console: Console, reading: RunReading, records: Sequence[Record], limit: int) -> int:
    """Print counts of the records, and the first of them, each in two lines, which a narrow
    terminal keeps readable. Returns 0."""
    everything = f"{len(records):,} of {len(reading.records):,}"
    if reading.silent is not None:
        everything += f"; {reading.silent:,} proposals asked nothing"
    if reading.void:
        everything += f", {reading.void:,} more were void"
    verdicts = sorted(Counter(record.verdict for record in records).items())
    rules = Counter(record.rule for record in records if record.verdict != VALID)
    groups = len({record.group for record in records})
    near = f"{len(records) - groups:,}; the others are {groups:,}" if records else ""
    _lines(
        console,
        {
            "questions": everything,
            "referee": ", ".join(f"{number:,} {verdict}" for verdict, number in verdicts),
            "rejected by": ", ".join(f"{rule} {number:,}" for rule, number in rules.most_common()),
            "wrong attempts": _difficulties(records),
            "near-duplicates": near,
        },
    )
    for record in records[:limit]:
        heading = Text(f"{record.id[:SHOWN]}  ", style="bold").append(_facts(record), style="dim")
        console.print(heading.append(f"\n  {record.question}  → {record.target}", style="none"))
    if len(records) > limit:
        console.print(f"{len(records) - limit:,} more: --limit N, or --export FILE.parquet")
    if records[:limit]:
        one = records[0].id[:SHOWN]
        console.print(f"one with every attempt and transcript: --show {one}")
    return 0


def _difficulties(records: Sequence[Record]) -> str:
    """How many questions are in each fifth of the difficulties; "" where none has one."""
    known = [record.difficulty for record in records if record.difficulty is not None]
    fifths = Counter(min(int(difficulty * 5), 4) for difficulty in known)
    shares = [f"{20 * i}-{20 * (i + 1)} %: {fifths[i]:,}" for i in range(5)]
    return ", ".join(shares) + " questions" if known else ""


def _facts(record: Record) -> str:
    """What is known of a question, in few words."""
    facts = [f"rejected by {record.rule}" if record.rule else record.verdict]
    if record.proposer_version is not None:
        facts.append(f"asked by version {record.proposer_version}")
    if record.history:
        rates = [f"{rate:.0%}" for _, rate in record.history[-3:]]
        facts.append(f"answered right {', then '.join(rates)}")
    if record.group != record.id:
        facts.append(f"like {record.group[:SHOWN]}")
    return ", ".join(facts)


def _lines(console: Console, lines: dict[str, str]) -> None:
    """Print a line a subject, without those that have nothing to say."""
    for name, said in lines.items():
        if said:
            console.print(Text(f"{name:>15}  ", style="dim").append(said, style="none"))


def episodes(console: Console, rows: Sequence[Any], limit: int) -> int:
    """Print an episode a line: its id, role, outcome, and the question. Returns 0."""
    width = max((len(row["id"]) for row in rows[:limit]), default=0)
    for row in rows[:limit]:
        reward = "" if row["reward"] is None else f" {row['reward']:g}"
        end = f"{row['cause'] or row['outcome'] or row['state']}{reward}"
        line = Text(f"{row['id']:<{width}}  ", style="bold")
        line.append(f"{row['role']:<8}  {end:<18}  ", style="dim")
        console.print(line.append(row["question"] or "", style="none"))
    if len(rows) > limit:
        console.print(f"{len(rows) - limit:,} more: --limit N")
    return 0


def show(console: Console, record: Record) -> int:
    """Print one question with everything that is on record of it. Returns 0."""
    origin = f"{record.data_source} ({record.license}), corpus {record.corpus}, run {record.run}"
    lines = {
        "question": f"{record.question}  → {' | '.join(record.answers)}",
        "id": f"{record.id}, group {record.group}",
        "referee": f"{record.verdict} {record.rule or ''}",
        "wrong attempts": "unknown" if record.difficulty is None else f"{record.difficulty:.0%}",
        "queries": " | ".join(record.queries) or "none",
        "evidence": ", ".join(record.evidence) or "none",
        "source": origin,
    }
    _lines(console, lines)
    for play in record.plays:
        attempts = [attempt for attempt in record.attempts if attempt.game == play.game]
        tried = [(_tried(attempt), attempt.transcript) for attempt in attempts]
        for heading, transcript in [(_heading(play), play.transcript), *tried]:
            console.print(heading)
            if transcript is not None:
                console.print(Text(TAG.sub(r"\n  \1", transcript).strip("\n")))
    return 0


def _heading(play: PlayedGame) -> Text:
    verdict = f"{play.verdict} by {play.rule}" if play.rule else play.verdict
    said = f"\n-- {play.kind} in game {play.game}: {verdict}"
    if play.proposal is not None:
        said += f"; proposal {play.proposal} by version {play.proposer_version}"
        said += f", {play.file}:{play.row}"
    if play.win_rate is not None:
        said += f"; win rate {play.win_rate:.2f} of {play.scored} by version {play.solver_version}"
    return Text(said, style="bold")


def _tried(attempt: Attempt) -> Text:
    words = {True: ("right", "green"), False: ("wrong", "red"), None: ("undecided", "dim")}
    word, style = words[attempt.right]
    if attempt.outcome == "void":
        word = f"void: {attempt.cause}"
    elif attempt.greedy:
        word += ", greedy"
    reward = "" if attempt.reward is None else f", reward {attempt.reward:g}"
    trained = "" if attempt.step is None else f" at step {attempt.step}"
    said = f"-- attempt {attempt.episode}: {attempt.answer or 'no answer'} ({word}{reward})"
    said += f", {attempt.state}{trained}, version {attempt.version_max}"
    return Text(f"{said}, {attempt.file}:{attempt.row}", style=style)


def export(args: Namespace, records: Sequence[Record], run: RunFolder | None) -> int:
    """Write the export, and say what it has. InputError for what it cannot hold, and where."""
    rule = "an export holds at least one question"
    hold(records, rule, f"{args.bank}: none is left", "ask for less")
    rule = "a bank is exported to a .parquet file"
    hold(args.export.suffix == ".parquet", rule, args.export, "give it such a name")
    if args.transcripts and run is not None:
        records = reader.told(run, records)
    typed = {"license": args.license, "data_source": args.source}
    changes = {name: text for name, text in typed.items() if text}
    with writable("an export can be written", args.export):
        files.write_bank(args.export, [replace(record, **changes) for record in records])
    say(f"{args.export}: {len(records):,} questions")
    return 0
