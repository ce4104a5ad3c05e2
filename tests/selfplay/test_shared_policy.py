"""One policy in both roles (SSP): one update, one publication and one checkpoint a round, figures and commits of each role."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeLearner, Stage, config

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.learning.coldstart import ARTEFACT
from ssp.selfplay.workers import build
from ssp.selfplay.workers import learner as learner_worker
from tests import local

SHARED = {"proposer__policy": "shared", "solver__policy": "shared"}
TOGETHER = {f"{role}__learner__combine": True for role in ROLES}
ORDERS = ({}, TOGETHER)
ENGINE, TOKENIZER = build.engine, build.tokenizer


def play(path: Path, **changes: Any) -> Stage:
    return Stage(config(**{**SHARED, **changes}), path).whole()


def commits(stage: Stage) -> list[tuple[str, int, int]]:
    found = stage.rows("SELECT role, step, version FROM commits WHERE NOT rolled_back ORDER BY step, role")
    return [(row["role"], row["step"], row["version"]) for row in found]


@pytest.mark.covers("SP-06")
@pytest.mark.parametrize("bound", [0, 2])
def test_a_round_is_one_update_and_one_publication(tmp_path: Path, bound: int) -> None:
    stage = Stage(config(**SHARED, bounds=(bound, bound), steps=4), tmp_path / "run", jitter=1)
    assert stage.cast.learners[PROPOSER].inner is stage.cast.learners[SOLVER].inner  # type: ignore[attr-defined]
    stage.whole()
    assert FakeLearner.calls["solver/update"] == 4
    assert [(role, count) for role, count, _ in FakeLearner.seen] == [(r, n) for n in (1, 2, 3, 4) for r in ROLES]
    assert commits(stage) == [(role, step, step + 1) for step in (1, 2, 3, 4) for role in ROLES]
    for role in ROLES:
        assert [row["version"] for row in stage.figures(role)] == [2, 3, 4, 5]
        assert all(row["staleness/max"] <= bound and row["episodes"] > 0 for row in stage.figures(role))
        assert all(
            "serial" not in row and "health/alarms" in row and "reward/mean" in row for row in stage.figures(role)
        )
    mean = {role: [row["reward/mean"] for row in stage.figures(role)] for role in ROLES}
    assert mean[PROPOSER] != mean[SOLVER]
    for crew in (
        stage.cast.players["proposer"],
        stage.cast.players["solver"],
    ):  # both play the same weights, each by its version
        orders = [args for _, method, args in crew.calls if method == "play"]  # type: ignore[attr-defined]
        assert all(parcel.payload["w"] == [version - 1] for _, _, version, parcel in orders)
        assert {version for _, _, version, _ in orders} >= {1}


def test_a_step_is_one_folder_which_state_json_names_for_both(tmp_path: Path) -> None:
    stage = play(tmp_path / "run")
    assert FakeLearner.calls["solver/save"] == 4 and FakeLearner.calls["proposer/save"] == 0
    state = stage.state()
    assert state["folders"] == dict.fromkeys(ROLES, "checkpoints/solver/v4") and state["versions"] == dict.fromkeys(
        ROLES, 4
    )
    assert not (stage.folder.checkpoints / PROPOSER).exists()
    longer = play(tmp_path / "run", steps=5)
    assert FakeLearner.calls["solver/load"] == 1 and FakeLearner.calls["proposer/load"] == 0
    assert [(role, count) for role, count, _ in FakeLearner.seen][-4:] == [(r, n) for n in (4, 5) for r in ROLES]
    assert longer.state()["step"] == 5


@pytest.mark.parametrize(
    ("changes", "learns"),
    [
        ({"proposer__warmup_steps": 2}, [{PROPOSER}, {PROPOSER}, set(ROLES), set(ROLES)]),
        ({"solver__freeze_after": 1}, [set(ROLES), {PROPOSER}, {PROPOSER}, {PROPOSER}]),
        ({"proposer__freeze_after": 3}, [set(ROLES)] * 3 + [{SOLVER}]),
    ],
)
def test_what_one_role_has_nothing_to_learn_from_the_other_trains(
    tmp_path: Path, changes: dict[str, int], learns: list[set[str]]
) -> None:
    """Its episodes are kept, and its next ones are played by the weights that the other role has changed."""
    stage = play(tmp_path / "run", steps=4, **changes)
    assert FakeLearner.calls["solver/update"] == 4
    wanted = [(role, step, step + 1) for step, roles in enumerate(learns, 1) for role in sorted(roles)]
    assert commits(stage) == wanted
    for role in ROLES:
        assert [row["version"] for row in stage.figures(role)] == [2, 3, 4, 5]
    kept = Counter(row["role"] for row in stage.rows() if row["state"] == "kept" and row["role"] in ROLES)
    assert set(kept) == {role for roles in learns for role in set(ROLES) - roles}


# the real game, small


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(local, "Learner", learner_worker.Learner)
    monkeypatch.setattr(build, "engine", ENGINE)
    monkeypatch.setattr(build, "tokenizer", TOKENIZER)
    rates = {f"{role}__learner__lr": 5e-4 for role in ROLES}
    return {"proposer__batch": 16, "solver__batch": 6, "eval__every": 0, "steps": 2, **rates}


@pytest.mark.covers("SP-06")
@pytest.mark.parametrize("order", ORDERS, ids=["in turn", "together"])
def test_the_real_game_in_both_orders(tmp_path: Path, real: dict[str, Any], order: dict[str, Any]) -> None:
    """In turn, the solver's ratio starts at the weights that played (law 1), from which the proposer's step has moved."""
    stage = trained(tmp_path / "run", **{**real, **order})
    asked, answered = stage.figures(PROPOSER), stage.figures(SOLVER)
    for mine, other in zip(asked, answered, strict=True):
        assert mine["grad_norm"] > 0 and other["grad_norm"] > 0 and mine["loss"] != other["loss"]
        assert (mine["grad_norm"] == other["grad_norm"]) is bool(order)
        assert mine["ratio/max"] == pytest.approx(1, abs=1e-4)
        assert (other["ratio/max"] == pytest.approx(1, abs=1e-4)) is bool(order)
    assert commits(stage) == [(role, step, step + 1) for step in (1, 2) for role in ROLES]
    folder = stage.folder.path
    assert build.policy_dir(stage.cfg, folder, PROPOSER) == build.policy_dir(stage.cfg, folder, SOLVER)


def trained(path: Path, **changes: Any) -> Stage:
    stage = Stage(config(**{**SHARED, **changes}), path, model=ARTEFACT).whole()
    return stage
