"""Replays on the console: every comparison of one episode, a line each of many."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ssp.views.replay.compared import Measured, Result, Untold
from ssp.views.replay.record import Found


def forced(console: Console, found: Sequence[Found], results: Sequence[Sequence[Result]]) -> None:
    """What was compared of each episode, and what of all."""
    if len(found) == 1:
        for result in results[0]:
            style = "yellow" if isinstance(result, Untold) else "green" if result.same else "bold red"
            console.print(Text(str(result), style=style))
    else:
        table = _table("episode", "role", "versions", "sampled", "largest", "result")
        for one, compared in zip(found, results, strict=True):
            table.add_row(*map(Text, _line(one, compared)))
        console.print(table)
    logprobs = [result for compared in results for result in compared if isinstance(result, Measured)]
    differing = [compared for compared in results if not all(result.same for result in compared)]
    untold = sum(isinstance(result, Untold) for compared in results for result in compared)
    largest = max((result.largest for result in logprobs), default=0.0)
    count = sum(result.count for result in logprobs)
    said = f"{len(found) - len(differing):,} of {len(found):,} the same; largest difference of {count:,} log-probs "
    more = f"; {untold:,} comparisons could not be made" if untold else ""
    console.print(Text(f"{said}{largest:.2g}{more}", style="bold red" if differing else "bold green"))
    if first := _first(differing[0]) if differing else None:
        where = next(one.episode.id for one, compared in zip(found, results, strict=True) if compared is differing[0])
        console.print(Text(f"first difference, in {where}: {first}", style="bold red"))


def _line(one: Found, compared: Sequence[Result]) -> tuple[str, ...]:
    (measured,) = [result for result in compared if isinstance(result, Measured)]
    worst = _first(compared)
    untold = ", ".join(result.what for result in compared if isinstance(result, Untold))
    result = str(worst) if worst else f"same, but {untold} not compared" if untold else "same"
    role = one.entry.get("role", one.episode.role)
    return one.episode.id, role, _versions(one), str(measured.count), f"{measured.largest:.1e}", result


def _first(compared: Sequence[Result]) -> Result | None:
    """What differs first: at the earliest token, then what has no place."""
    differing = [result for result in compared if not result.same]
    return min(differing, key=lambda result: (result.at is None, result.at or 0), default=None)


def _versions(one: Found) -> str:
    return ", ".join(f"v{version}" for version in one.versions)


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for heading in headings:
        wraps = heading in ("episode", "result")
        table.add_column(heading, no_wrap=not wraps, overflow="fold")
    return table
