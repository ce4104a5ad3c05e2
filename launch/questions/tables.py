"""The bank on the console: counts, a table, one question with all that came of it.

Owns what is shown of a record. Refuses to know where records are from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from launch import transcript
from ssp.bank.reader import Reading
from ssp.bank.records import VALID, Attempt, Play, Record
from ssp.episode import PROPOSER, SOLVER
from ssp.protocols import Protocol
from ssp.tokenlog import Kind

SHOWN, NEWEST = 9, 3
"""Of a table: characters of an id, and win rates."""


def summary(console: Console, found: Reading, records: Sequence[Record], limit: int) -> None:
    """Counts of what is meant, and its first questions."""
    verdicts = Counter(record.verdict for record in records)
    rules = Counter(record.rule for record in records if record.verdict != VALID)
    rates = [record.difficulty for record in records if record.difficulty is not None]
    groups = len({record.group for record in records})
    shares = Counter(min(int(rate * 5), 4) for rate in rates)
    none = "" if found.silent is None else f"; {found.silent:,} proposals handed in none"
    void = f", {found.void:,} more were void" if found.void else ""
    lines = {
        "questions": f"{len(records):,} of {len(found.records):,}{none}{void}",
        "verdicts": ", ".join(f"{number:,} {verdict}" for verdict, number in sorted(verdicts.items())),
        "broken": ", ".join(f"{rule} {number:,}" for rule, number in rules.most_common()),
        "difficulty": ", ".join(f"{i / 5:g}-{(i + 1) / 5:g}: {shares[i]:,}" for i in range(5)) if rates else "",
        "near-duplicates": f"{len(records) - groups:,} of them, {groups:,} groups" if records else "",
    }
    for name, said in lines.items():
        if said:
            console.print(Text(f"{name:>15}  ", style="dim").append(said, style="none"))
    if records[:limit]:
        console.print(_table(records[:limit]))
    if len(records) > limit:
        console.print(f"{len(records) - limit:,} more: --limit N, or --export FILE.parquet")


def _table(records: Sequence[Record]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("id", no_wrap=True)
    for name in ("question", "target", "verdict", "asked by", "win rates", "hard", "like"):
        table.add_column(name, no_wrap=name in ("hard", "like"))
    for record in records:
        version = "" if record.proposer_version is None else f"v{record.proposer_version}"
        rates = [f"{rate:.2f}" for _, rate in record.history]
        newest = " ".join(["…"] * (len(rates) > NEWEST) + rates[-NEWEST:])
        hard = "" if record.difficulty is None else f"{record.difficulty:.2f}"
        like = "" if record.group == record.id else record.group[:SHOWN]
        cells = (record.id[:SHOWN], record.question, record.target, record.rule or VALID, version, newest, hard, like)
        table.add_row(*map(Text, cells))
    return table


def show(console: Console, record: Record, protocol: Protocol | None) -> None:
    """One question with everything that is on record of it."""
    rate = "unknown" if record.difficulty is None else f"{record.difficulty:.2f}"
    lines = {
        "question": f"{record.question}  → {' | '.join(record.answers)}",
        "id": f"{record.id}, group {record.group}",
        "verdict": f"{record.verdict} {record.rule or ''}",
        "difficulty": rate,
        "queries": " | ".join(record.queries) or "none",
        "evidence": ", ".join(record.evidence) or "none",
        "source": f"{record.data_source} ({record.license}), corpus {record.corpus}, run {record.run}",
    }
    for name, said in lines.items():
        console.print(Text(f"{name:>11}  ", style="dim").append(said, style="none"))
    for play in record.plays:
        console.print(_heading(play))
        _tell(console, protocol, PROPOSER, play.transcript)
        for attempt in (attempt for attempt in record.attempts if attempt.game == play.game):
            console.print(_tried(attempt))
            _tell(console, protocol, SOLVER, attempt.transcript)


def _heading(play: Play) -> Text:
    said = f"-- {play.kind} in game {play.game}: {play.verdict} {play.rule or ''}"
    if play.proposal is not None:
        by = "" if play.proposer_version is None else f" by version {play.proposer_version}"
        said += f"; proposal {play.proposal}{by}, {play.file}:{play.row}"
    if play.win_rate is not None:
        said += f"; win rate {play.win_rate:.2f} of {play.scored} by version {play.solver_version}"
    checks = " ".join(f"{check.rule}={check.result}" for check in play.checks)
    return Text(said, style="bold").append(f"\n   {checks}" if checks else "", style="dim")


def _tried(attempt: Attempt) -> Text:
    word = {True: "right", False: "wrong", None: "undecided"}[attempt.right]
    word = f"void: {attempt.cause}" if attempt.outcome == "void" else word + (", greedy" if attempt.greedy else "")
    reward = "" if attempt.reward is None else f", reward {attempt.reward:g}"
    trained = "" if attempt.step is None else f" at step {attempt.step}"
    said = f"-- attempt {attempt.episode}: {attempt.answer or 'no answer'} ({word}{reward}), {attempt.state}{trained}, "
    style = {True: "green", False: "red", None: "dim"}[attempt.right]
    return Text(f"{said}version {attempt.version_max}, {attempt.file}:{attempt.row}", style=style)


def _tell(console: Console, protocol: Protocol | None, role: str, text: str | None) -> None:
    if text is not None:
        console.print(Text(text) if protocol is None else transcript.piece(protocol, role, Kind.MODEL, text))
