"""What the ledger's one writer is asked for in a run. All of it is idempotent, so a lost call is made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ssp.base.crew import call
from ssp.record.ledger.rows import NOTHING, Row

Rows = Sequence[Mapping[str, Any]]
"""Rows with the column names of their table."""


class LedgerWriter(Protocol):
    """See `ssp.record.ledger.HomeLedger`, whose methods these are."""

    @call(repeats=True)
    async def create_games(self, games: Rows, /) -> int: ...

    @call(repeats=True)
    async def create(self, episodes: Rows, shared: Mapping[str, Any] = NOTHING, /) -> int: ...

    @call(repeats=True)
    async def advance(self, changes: Rows, shared: Mapping[str, Any] = NOTHING, /) -> int: ...

    @call(repeats=True)
    async def settle(self, games: Rows, changes: Rows, /) -> None: ...

    @call(repeats=True)
    async def commit(self, role: str, incarnation: int, step: int, version: int, episodes: Sequence[str], /) -> int: ...

    @call(repeats=True)
    async def rollback(self, steps: Mapping[str, int], /) -> dict[str, int]: ...

    @call(repeats=True)
    async def next_version(self, role: str, incarnation: int | None = None, step: int | None = None, /) -> int: ...

    @call(repeats=True)
    async def versions(self) -> dict[str, dict[int, tuple[int, int]]]: ...

    @call(repeats=True)
    async def get(self, ids: Sequence[str], /) -> list[Row]: ...

    @call(repeats=True)
    async def check(self) -> dict[str, dict[str, int]]: ...

    @call(repeats=True)
    async def keep(self) -> None: ...

    @call(repeats=True)
    async def fold(self) -> None: ...

    @call(repeats=True)
    async def where(self) -> str: ...
