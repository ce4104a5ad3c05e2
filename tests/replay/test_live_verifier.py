"""Which solver verified a proposal, where the live one does: its round's newest, if the records say so for certain."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ssp.selfplay.settings import load
from ssp.views.replay import forced
from ssp.views.replay.forced import Verdicts

ROWS = [  # round, incarnation, whether a past version played, which
    (2, 1, 0, 3),
    (3, 1, 0, 4),
    (3, 1, 0, 4),
    (3, 1, 0, -1),  # it wrote nothing
    (3, 1, 1, 2),  # a past version, met in the league
    (3, 2, 0, 9),  # the same round, when the run was gone on with
    (5, 1, 1, 2),
    (6, 1, 0, 6),
    (6, 1, 0, 7),
]


def verified_by(round_: int, incarnation: int, monkeypatch: pytest.MonkeyPatch, *settings: str) -> tuple[Any, str]:
    cfg = load("quickstart", ["referee.verifier=solver", *settings])
    names = ("round", "incarnation", "past", "policy_version_max")
    rows = [{"kind": "attempt", **dict(zip(names, row, strict=True))} for row in ROWS]
    records: Any = SimpleNamespace(cfg=cfg, played=lambda role: rows, block=lambda file: [])
    weights: Any = SimpleNamespace(folder=lambda role, version: Path(f"{role}/v{version}"))
    monkeypatch.setattr(forced, "Judge", lambda cfg, folder: folder)
    found: Any = SimpleNamespace(entry={"round": round_, "incarnation": incarnation})
    return Verdicts(records, weights)._judge(found)


@pytest.mark.parametrize(("incarnation", "version"), [(1, 4), (2, 9)])
def test_the_newest_solver_of_the_round_verified(
    incarnation: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked: a past proposer's questions are verified by the newest solver too, whoever answers them."""
    assert verified_by(3, incarnation, monkeypatch) == (Path(f"solver/v{version}"), "")


@pytest.mark.parametrize("round_", [4, 5, 6])
def test_where_it_is_not_certain_nobody_verifies(round_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answered in the round, only a past version did, or several did."""
    judge, why = verified_by(round_, 1, monkeypatch)
    assert judge is None and "not on record" in why


def test_in_flight_an_answer_may_be_of_newer_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    flying = ["schedule.in_flight=true", "defaults.engine.continuous=true", "schedule.max_staleness.proposer=2",
              "schedule.max_staleness.solver=2", "proposer.algorithm=grpo", "proposer.loss=tis"]  # fmt: skip
    judge, why = verified_by(3, 1, monkeypatch, *flying)
    assert judge is None and "not on record" in why
