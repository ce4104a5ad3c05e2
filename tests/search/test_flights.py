"""Work that several want at once is done once."""

from __future__ import annotations

import threading

import pytest

from ssp.search.flights import Flights


def test_others_wait_for_whoever_works_and_later_ones_work_again() -> None:
    flights, made, inside, go = Flights[str, str](), list[list[str]](), threading.Event(), threading.Event()

    def slow(keys: list[str]) -> list[str]:
        made.append(keys)
        inside.set()
        assert go.wait(10)
        return [key.upper() for key in keys]

    first = threading.Thread(target=lambda: got.append(flights.run(["a", "b", "a"], slow, 10)))
    got: list[dict[str, str]] = []
    first.start()
    assert inside.wait(10)

    def quick(keys: list[str]) -> list[str]:
        made.append(keys)
        go.set()
        return ["new"] * len(keys)

    assert flights.run(["b", "c"], quick, 10) == {"b": "B", "c": "new"}
    first.join()
    assert got == [{"a": "A", "b": "B"}] and made == [["a", "b"], ["c"]]
    assert flights.run(["b"], quick, 10) == {"b": "new"}


def test_a_failure_reaches_all_who_wait_and_is_not_kept() -> None:
    flights, inside, go, seen = Flights[str, int](), threading.Event(), threading.Event(), list[str]()

    def fail(keys: list[str]) -> list[int]:
        inside.set()
        assert go.wait(10)
        raise ValueError("no")

    def first() -> None:
        with pytest.raises(ValueError, match="no"):
            flights.run(["a"], fail, 10)
        seen.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    with pytest.raises(TimeoutError):
        flights.run(["a"], lambda keys: [1], 0.01)
    go.set()
    thread.join()
    assert seen == ["first"] and flights.run(["a"], lambda keys: [1], 10) == {"a": 1}
    with pytest.raises(ValueError, match="zip"):
        flights.run(["a", "b"], lambda keys: [1], 10)
    assert flights.run(["b"], lambda keys: [2], 10) == {"b": 2}
