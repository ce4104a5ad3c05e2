"""`em` by name: response only, last turn's answer."""

from __future__ import annotations

import pytest

from ssp import rewards
from ssp.errors import InputError


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("<answer> pota </answer>", 1.0),
        ("<search> e </search> <information> x </information> <answer> Pota . </answer> <eos>", 1.0),
        ("<answer> vure </answer>", 0.0),
        ("<answer> pota", 0.0),
        ("<answer> </answer>", 0.0),
        ("", 0.0),
        ("pota", 0.0),
        ("<answer> pota </answer> <answer> vure </answer>", 0.0),
        ("<think> <answer> pota </answer>", 1.0),
        ("<information> <answer> pota </answer> </information>", 0.0),
    ],
)
def test_em_reads_the_answer_handed_in(response: str, value: float) -> None:
    assert rewards.get("em")(response, ["pota"]) == value


def test_em_takes_any_gold() -> None:
    assert rewards.get("em")("<answer> vure </answer>", ["pota", "Vure"]) == 1.0


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="em"):
        rewards.get("rouge")
    with pytest.raises(InputError, match="protocol"):
        rewards.get("em")("<answer> pota </answer>", ["pota"], protocol="nope")
    assert rewards.names() == ["em"]
