"""A thread that takes orders always answers."""

from __future__ import annotations

import threading

import pytest

from ssp.base.errors import Fault, InputError
from ssp.engines import orders
from ssp.engines.orders import OrderThread


class Work:
    """Rounds that count themselves, as long as `left` says; `broken` is raised by the next one."""

    def __init__(self) -> None:
        self.left, self.rounds, self.broken, self.ended = 0, 0, None, []
        self.thread = OrderThread("test", lambda: self.left > 0, self.round, self.ended.append)

    def round(self) -> None:
        if self.broken is not None:
            raise self.broken
        self.left -= 1
        self.rounds += 1

    def begin(self, rounds: int) -> None:
        self.left = rounds


def test_orders_are_done_between_rounds_on_one_thread() -> None:
    work = Work()
    names = {work.thread.ask(lambda: threading.current_thread().name) for _ in range(3)}
    assert names == {"test"}
    work.thread.ask(lambda: work.begin(5))
    while work.thread.ask(lambda: work.left):
        pass
    assert work.rounds == 5
    with pytest.raises(InputError, match="rule"):
        work.thread.ask(lambda: (_ for _ in ()).throw(InputError("rule", 1, "step")))
    assert work.thread.ask(lambda: 7) == 7, "an error of ours does not end the thread"
    work.thread.stop()
    assert [fault.cause for fault in work.ended] == ["aborted"]
    with pytest.raises(Fault, match="aborted"):
        work.thread.ask(lambda: 7)


def test_an_error_of_a_round_ends_everything_and_everybody_hears_of_it() -> None:
    work = Work()
    work.broken = RuntimeError("no memory")
    heard: list[Fault | None] = []
    work.thread.ask(lambda: work.begin(1))
    with pytest.raises(Fault, match="engine_down: RuntimeError: no memory"):
        while True:
            work.thread.ask(lambda: None)
    work.thread.order(heard.append)
    assert [str(fault) for fault in (*work.ended, *heard)] == ["engine_down: RuntimeError: no memory"] * 2
    work.thread.stop()


def test_whoever_asked_hears_at_once_of_an_error_that_ends_a_thread_and_of_no_other_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(orders, "on_error", lambda error: heard.append(str(error)))
    work = Work()
    work.thread.stop()
    assert heard == []
    work = Work()
    with pytest.raises(Fault, match="engine_down"):
        work.thread.ask(lambda: [][1])
    with pytest.raises(Fault, match="engine_down"):  # answered after the end only
        work.thread.ask(lambda: None)
    assert heard == ["list index out of range"]
