"""The bank on the console: counts, its questions, one question with all that came of it, the ids of episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from launch.records import transcript
from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.tokenlog import Kind
from ssp.game.protocols import Protocol
from ssp.selfplay.questions.reader import Reading
from ssp.selfplay.questions.records import VALID, Attempt, Play, Record

SHOWN, NEWEST = 9, 3
"""Of a question: characters of an id, and win rates."""


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
    for record in records[:limit]:
        console.print(_block(record))
    if len(records) > limit:
        console.print(f"{len(records) - limit:,} more: --limit N, or --export FILE.parquet")


def _block(record: Record) -> Text:
    """A question in two lines, which a narrow terminal keeps readable."""
    rates = [f"{rate:.2f}" for _, rate in record.history]
    said = [
        record.rule or VALID,
        "" if record.proposer_version is None else f"by v{record.proposer_version}",
        f"win rates {' '.join(['…'] * (len(rates) > NEWEST) + rates[-NEWEST:])}" if rates else "",
        "" if record.difficulty is None else f"hard {record.difficulty:.2f}",
        "" if record.group == record.id else f"like {record.group[:SHOWN]}",
    ]
    found = Text(f"{record.id[:SHOWN]}  ", style="bold").append(", ".join(filter(None, said)), style="dim")
    return found.append(f"\n  {record.question}  → {record.target}", style="none")


def episodes(console: Console, rows: Sequence[dict[str, Any]], limit: int) -> None:
    """An episode a line: its id, role, what came of it, the question."""
    width = max((len(row["id"]) for row in rows[:limit]), default=0)
    for row in rows[:limit]:
        reward = "" if row["reward"] is None else f" {row['reward']:g}"
        said = f"{row['cause'] or row['outcome'] or row['state']}{reward}"
        line = Text(f"{row['id']:<{width}}  ", style="bold").append(f"{row['role']:<8}  {said:<18}  ", style="dim")
        console.print(line.append(row["question"] or "", style="none"))
    if len(rows) > limit:
        console.print(f"{len(rows) - limit:,} more: --limit N")


def show(
    console: Console,
    record: Record,
    protocol: Protocol | None = None,
    begins: Mapping[tuple[str, int], int] | None = None,
) -> None:
    """One question with everything that is on record of it. `begins`: of `reader.begins`; without, texts stay whole."""

    def tell(role: str, one: Play | Attempt) -> None:
        if one.transcript is None:
            return
        at = (begins or {}).get((one.file or "", one.row or 0))
        if protocol is None or at is None:
            console.print(Text(one.transcript))
            return
        if one.transcript[:at].strip():
            console.print(transcript.piece(protocol, role, Kind.PROMPT, one.transcript[:at]))
        console.print(transcript.piece(protocol, role, Kind.MODEL, one.transcript[at:]))

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
        tell(PROPOSER, play)
        for attempt in (attempt for attempt in record.attempts if attempt.game == play.game):
            console.print(_tried(attempt))
            tell(SOLVER, attempt)


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
