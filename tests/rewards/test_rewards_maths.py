"""Boxed mathematics: spellings that are equal, answers that no computer finishes, threads, a broken process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ssp.base.errors import Fault, InputError
from ssp.game import rewards
from ssp.game.rewards import maths
from ssp.game.rewards.maths import Comparer


@pytest.mark.parametrize(
    ("answer", "gold", "value"),
    [
        ("42", "42", 1.0),
        ("42", "$42$", 1.0),
        ("0.5", "\\frac{1}{2}", 1.0),
        ("\\frac{2}{4}", "1/2", 1.0),
        ("2\\sqrt{2}", "\\sqrt{8}", 1.0),
        ("\\{2, 1\\}", "\\{1, 2\\}", 1.0),
        ("x = 5", "5", 1.0),
        ("\\text{A}", "A", 1.0),
        ("\\frac{\\frac{1}{2}}{2}", "1/4", 1.0),
        ("", "42", 0.0),
        ("\\frac{1}", "42", 0.0),
        ("\ud800\x00", "42", 0.0),
        ("1" * 5000, "1", 0.0),
        ("1" * 5000, "1" * 5000, 1.0),
    ],
)
def test_equal_as_mathematics(answer: str, gold: str, value: float) -> None:
    assert rewards.get("math")(f"So \\boxed{{{answer}}}.", [gold]) == value
    assert rewards.get("math")(f"So \\boxed{{{answer}}}.", ["-7", gold]) == value


@pytest.mark.parametrize("response", ["", "42", "\\boxed 42", "\\boxed{42", "<information>\\boxed{42}</information>"])
def test_without_a_box_nothing_is_right(response: str) -> None:
    assert rewards.get("math")(response, ["42"]) == 0.0


@pytest.mark.parametrize("golds", [[], [""], [" $ "], ["1", "."]])
def test_an_empty_gold_is_refused(golds: list[str]) -> None:
    with pytest.raises(InputError, match="LaTeX"):
        rewards.get("math")("\\boxed{1}", golds)


def test_a_gold_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InputError, match="LaTeX"):
        rewards.get("math")("\\boxed{1}", ["\\text{}"])


@pytest.fixture
def comparer() -> Iterator[Comparer]:
    made = Comparer(cpu_seconds=1)
    yield made
    made.close()


def test_an_answer_that_cannot_be_computed_is_wrong_and_the_next_one_is_judged(comparer: Comparer) -> None:
    assert not comparer.equal("1", "9^{9^{9^{9}}}")
    assert comparer.equal("1", "2/2")


def test_it_works_in_threads(comparer: Comparer) -> None:
    assert threading.current_thread() is threading.main_thread()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: comparer.equal("\\frac{1}{2}", f"{n}/8"), range(8)))
    assert found == [n == 4 for n in range(8)]


@pytest.mark.parametrize(
    ("child", "said"), [("raise SystemExit(3)", "code 3"), ("import sys; sys.stdin.readlines()", "no reply in time")]
)
def test_a_broken_or_silent_process_is_a_fault_and_is_replaced(
    child: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "maths_child.py").write_text(child)
    comparer = Comparer(deadline=0.2 if "readlines" in child else 60.0)
    with monkeypatch.context() as patch:
        patch.setattr(maths, "__file__", str(tmp_path / "maths.py"))
        with pytest.raises(Fault, match=said):
            comparer.equal("1", "1")
    comparer._deadline = 60.0
    assert comparer.equal("1", "1.0")
    comparer.close()
