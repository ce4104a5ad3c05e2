"""Who a declared fault strikes, over a made-up table of processes."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from actors.watch import chaos
from ssp.config.cluster import FaultConfig


class Table:
    """Deaths' view: an actor whose process `table[0]` is seen now; a look may show the next one. `gone` cannot be signalled."""

    def __init__(self, table: list[int], gone: set[int]) -> None:
        self.table, self.gone = table, gone
        self.chaos: dict[int, str] = {}
        self.signals: list[tuple[int, int]] = []

    @property
    def seen(self) -> dict[str, Any]:
        return {"id": SimpleNamespace(actor="ledger-0", alive=True, node="n", pid=self.table[0])}

    def look(self) -> None:
        if len(self.table) > 1:
            self.table.pop(0)

    def place(self, actor: str) -> Any:
        return self.seen["id"]

    def asked(self, node: str, method: str, pid: int, number: int) -> None:
        if pid in self.gone:
            raise ProcessLookupError(3, "No such process")
        self.signals.append((pid, number))


def _made(monkeypatch: pytest.MonkeyPatch, table: Table, *faults: FaultConfig) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(chaos, "EVERY", 0.001)
    here = SimpleNamespace(get_node_id=lambda: "n")
    monkeypatch.setattr(chaos, "ray", SimpleNamespace(get_runtime_context=lambda: here))
    deaths: Any = table
    report: Any = SimpleNamespace(step=9)
    asyncio.run(chaos.Chaos(faults, "run", deaths, report, said.append).watch())
    return said


KILL, STALL = FaultConfig(1, "kill", "ledger-0"), FaultConfig(2, "stall", "ledger-0", 0.01)


def test_a_second_kill_waits_for_the_process_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table([0, 1, 1, 1, 2], set())
    _made(monkeypatch, table, KILL, KILL)
    assert table.signals == [(1, signal.SIGKILL), (2, signal.SIGKILL)]


def test_a_process_that_died_by_itself_is_no_end_of_the_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table([0, 1, 2], {1})
    _made(monkeypatch, table, KILL)
    assert table.signals == [(2, signal.SIGKILL)]


@pytest.mark.parametrize("gone", [set(), {1}])
def test_what_is_stalled_goes_on(monkeypatch: pytest.MonkeyPatch, gone: set[int]) -> None:
    table = Table([0, 1], gone)
    _made(monkeypatch, table, STALL)
    assert table.signals == ([] if gone else [(1, signal.SIGSTOP), (1, signal.SIGCONT)])
    assert gone or not table.chaos
