"""What is known, or being asked, is not asked again."""

from __future__ import annotations

import threading

import pytest

from ssp.search.known import Known


def test_others_wait_for_whoever_works_and_later_ones_work_again() -> None:
    known, made, inside, go = Known[str, str](), list[list[str]](), threading.Event(), threading.Event()

    def slow(keys: list[str]) -> list[str]:
        made.append(keys)
        inside.set()
        assert go.wait(10)
        return [key.upper() for key in keys]

    first = threading.Thread(target=lambda: got.append(known.ask(["a", "b", "a"], slow)))
    got: list[tuple[dict[str, str], set[str]]] = []
    first.start()
    assert inside.wait(10)

    def quick(keys: list[str]) -> list[str]:
        made.append(keys)
        go.set()
        return ["new"] * len(keys)

    assert known.ask(["b", "c"], quick) == ({"b": "B", "c": "new"}, {"b", "c"})
    first.join()
    assert got == [({"a": "A", "b": "B"}, {"a", "b"})] and made == [["a", "b"], ["c"]]
    assert known.ask(["b"], quick)[0] == {"b": "new"}


def test_a_failure_reaches_all_who_wait_and_is_not_kept() -> None:
    known, inside, go, seen = Known[str, int](9), threading.Event(), threading.Event(), list[str]()

    def fail(keys: list[str]) -> list[int]:
        inside.set()
        assert go.wait(10)
        raise ValueError("no")

    def first() -> None:
        with pytest.raises(ValueError, match="no"):
            known.ask(["a"], fail)
        seen.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    with pytest.raises(TimeoutError):
        known.ask(["a"], lambda keys: [1], seconds=0.01)
    go.set()
    thread.join()
    assert seen == ["first"] and known.ask(["a"], lambda keys: [1]) == ({"a": 1}, {"a"})
    with pytest.raises(ValueError, match="zip"):
        known.ask(["b", "c"], lambda keys: [1])
    assert known.ask(["b"], lambda keys: [2])[0] == {"b": 2}


def test_the_answers_that_were_used_last_are_kept_if_they_are_worth_it() -> None:
    known, asked = Known[str, str](2), list[str]()

    def work(keys: list[str]) -> list[str]:
        asked.extend(keys)
        return keys

    for key in ("a", "b", "a", "c", "a", "b", "x", "x"):
        known.ask([key], work, lambda key, value: key != "x")
    assert asked == ["a", "b", "c", "b", "x", "x"] and (known.hits, known.misses) == (2, 6)
