"""What the ledger's one writer is asked for in a run. All of it is idempotent, so a lost call is made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ssp.base.crew import call
from ssp.record.ledger.rows import Row

Rows = Sequence[Mapping[str, Any]]
"""Rows with the column names of their table."""


class LedgerWriter(Protocol):
    """See `ssp.record.ledger.HomeLedger`, whose methods these are."""

    @call(repeats=True)
    async def create_games(self, games: Rows, /) -> int:
        """Enter games; how many are new."""
        ...

    @call(repeats=True)
    async def create(self, episodes: Rows, /) -> int:
        """Enter episodes; how many are new."""
        ...

    @call(repeats=True)
    async def advance(self, changes: Rows, /) -> int:
        """Move episodes on in their life cycle; how many moved."""
        ...

    @call(repeats=True)
    async def settle(self, games: Rows, changes: Rows, /) -> None:
        """A round's verdicts and what becomes of its episodes: all of it, or none."""
        ...

    @call(repeats=True)
    async def commit(self, role: str, incarnation: int, step: int, version: int, episodes: Sequence[str], /) -> int:
        """An update has trained these; how many are new."""
        ...

    @call(repeats=True)
    async def rollback(self, steps: Mapping[str, int], /) -> dict[str, int]:
        """Of each role, what later steps than these did is undone."""
        ...

    @call(repeats=True)
    async def next_version(self, role: str, incarnation: int | None = None, step: int | None = None, /) -> int:
        """A number that `role` never had."""
        ...

    @call(repeats=True)
    async def versions(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Role → version → the incarnation and the step that made it."""
        ...

    @call(repeats=True)
    async def get(self, ids: Sequence[str], /) -> list[Row]:
        """Rows of these episodes."""
        ...

    @call(repeats=True)
    async def check(self) -> dict[str, dict[str, int]]:
        """Assert the law of conservation; role → state → episodes."""
        ...

    @call(repeats=True)
    async def keep(self) -> None:
        """Have everything that was written until now in the run folder."""
        ...

    @call(repeats=True)
    async def fold(self) -> None:
        """At a run's end: all of it is in one file of the run folder."""
        ...

    @call(repeats=True)
    async def where(self) -> str:
        """What a user is told about the place; "" for the run folder."""
        ...
