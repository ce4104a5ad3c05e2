"""A run in which anything fails at random, and what must hold of its games all the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from tests.selfplay.fakes import FakeLearner, Stage, config, room_for


def played(path: Path, seed: int, patch: pytest.MonkeyPatch, league: bool = False) -> Stage:
    """Eight steps with random faults everywhere, random bounds and small queues, to the end."""
    rng = random.Random(seed)
    calls = [f"{role}/{method}" for role in ROLES for method in ("update", "save", "load", "weights", "export")]
    FakeLearner.fail_at = {call: {rng.randint(1, 5)} for call in calls if rng.random() < 0.5}
    shared = seed == 5
    if shared:
        FakeLearner.fail_at = {"solver/update": {3}, "solver/export": {2}}
    met = {"league__match": rng.choice(["mix", "prioritised"]), "league__every": 2, "league__size": 3} if league else {}
    cfg = config(
        **met,
        steps=8,
        save__every=rng.randint(1, 3),
        save__keep=1,
        bounds=(rng.randint(0, 3), rng.randint(0, 3)),
        game__batch=rng.choice(["dummy", "replay", "resample", "replay_reset"]),
        referee__verifier=rng.choice(["frozen", "solver"]),
        **room_for(rng.choice([40, 4096]), patch),
        **({f"{role}__policy": "shared" for role in ROLES} if shared else {}),
    )
    made = Stage(cfg, path, jitter=seed)
    cast = made.cast
    for crew in (cast.players["proposer"], cast.players["solver"], cast.judges):
        crew.fails = lambda *call: "boom" if rng.random() < 0.04 else ""  # type: ignore[attr-defined]
    made.whole()
    assert made.state()["step"] == 8 and not [row for row in made.rows() if row["cause"] == "stale"]
    return made


def one_pair_a_game(made: Stage) -> None:
    """Each game has one version of each role, of which the past one learns nothing; and a batch one grader of proposals."""
    ends: dict[str, list[dict[str, Any]]] = {}
    for row in made.rows(
        "SELECT * FROM episodes WHERE role != 'eval' AND outcome != 'void' AND id NOT LIKE '%greedy%'"
    ):
        if row["cause"] != "rolled_back":
            ends.setdefault(row["game_id"], []).append(row)
    graders: dict[tuple[Any, ...], set[int]] = {}
    for id, rows in ends.items():
        for role, other in ((PROPOSER, SOLVER), (SOLVER, PROPOSER)):
            mine = [row for row in rows if row["role"] == role]
            assert len({row["policy_version_min"] for row in mine if row["policy_version_min"] > 0}) <= 1, id
            assert len({row["opponent_version_min"] for row in mine}) <= 1, id
            kept = {row["state"] == "kept" for row in mine}
            assert len(kept) <= 1, id
            if kept == {True}:
                assert all(row["state"] != "kept" for row in rows if row["role"] == other), id
        for row in rows:
            if row["role"] == PROPOSER and row["state"] == "trained" and row["opponent_version_min"]:
                grouped = made.cfg.proposer.algorithm in ("grpo", "rloo")
                key = (row["commit_step"], int(id[1:8]) // made.cfg.game.proposals if grouped else None)
                graders.setdefault(key, set()).add(row["opponent_version_min"])
    assert all(len(found) == 1 for found in graders.values())
