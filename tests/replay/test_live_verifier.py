"""Which solver verified a proposal, where the live one does: its round's newest, if the records say so for certain."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ssp.selfplay.settings import load
from ssp.views.replay import verdicts
from ssp.views.replay.verdicts import Verdicts

ROWS = [
    ("solver-000002-i1-0.0.parquet", 3),
    ("solver-000003-i1-0.0.parquet", 4),
    ("solver-000003-i1-1.0.parquet", 4),
    ("solver-000003-i1-2.0.parquet", -1),  # it wrote nothing
    ("solver-000003-i1-v2-0.0.parquet", 2),  # a past version, met in the league
    ("solver-000003-i2-0.0.parquet", 9),  # the same round, when the run was gone on with
    ("solver-000005-i1-v2-0.0.parquet", 2),
    ("solver-000006-i1-0.0.parquet", 6),
    ("solver-000006-i1-1.0.parquet", 7),
]


def verified_by(file: str, monkeypatch: pytest.MonkeyPatch, *settings: str) -> tuple[Any, str]:
    cfg = load("quickstart", ["referee.verifier=solver", *settings])
    rows = [{"file": name, "policy_version_max": version} for name, version in ROWS]
    records: Any = SimpleNamespace(cfg=cfg, played=lambda role: rows, block=lambda file: [])
    weights: Any = SimpleNamespace(folder=lambda role, version: Path(f"{role}/v{version}"))
    monkeypatch.setattr(verdicts, "Judge", lambda cfg, folder: folder)
    found: Any = SimpleNamespace(episode=SimpleNamespace(seed=1), file=Path("episodes") / file)
    return Verdicts(records, weights)._judge(found)


@pytest.mark.parametrize(
    ("file", "version"),
    [
        ("proposer-000003-i1-0.0.parquet", 4),
        ("proposer-000003-i1-v1-0.0.parquet", 4),
        ("proposer-000003x1-i1-0.0.parquet", 4),
        ("proposer-000003-i2-0.0.parquet", 9),
    ],
)
def test_the_newest_solver_of_the_round_verified(file: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked: a past proposer's questions are verified by the newest solver too, whoever answers them."""
    assert verified_by(file, monkeypatch) == (Path(f"solver/v{version}"), "")


@pytest.mark.parametrize("round_", [4, 5, 6])
def test_where_it_is_not_certain_nobody_verifies(round_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answered in the round, only a past version did, or several did."""
    judge, why = verified_by(f"proposer-{round_:06d}-i1-0.0.parquet", monkeypatch)
    assert judge is None and "not on record" in why


def test_in_flight_an_answer_may_be_of_newer_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    flying = ["schedule.in_flight=true", "defaults.engine.continuous=true", "schedule.max_staleness.proposer=2",
              "schedule.max_staleness.solver=2", "proposer.algorithm=grpo", "proposer.loss=tis"]  # fmt: skip
    judge, why = verified_by("proposer-000003-i1-0.0.parquet", monkeypatch, *flying)
    assert judge is None and "not on record" in why
