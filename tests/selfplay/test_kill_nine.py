"""kill -9 and resume, with real policies and one process: bit for bit the run that nobody touched."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ninelives import LIVES, STEPS

from ssp.base.episode import ROLES

pytestmark = pytest.mark.timeout(1000)
TIMES = ("time", "seconds", "tokens_per_second", "generate", "mfu", "version")
"""Figures that differ between equal runs: what a clock says, and numbers that are never given twice."""


def test_a_run_that_is_killed_again_and_again_is_the_run_that_nobody_touched(tmp_path: Path) -> None:
    """Each process died where it was to; weights, optimizers, cursor, data, rewards, losses and what the solver rehearsed are
    the same, also in steps that were made twice."""
    command = [sys.executable, str(Path(__file__).with_name("ninelives.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    codes, steps = json.loads((tmp_path / "ends.json").read_text())
    assert codes == {"whole": 0, **dict.fromkeys(LIVES, -signal.SIGKILL), "": 0}
    assert steps == sorted(steps) and steps[0] >= 2 and steps[-1] == STEPS and steps[-2] < STEPS
    assert _learned(tmp_path / "killed") == _learned(tmp_path / "whole")
    trained = _trained(tmp_path / "killed")
    assert trained == _trained(tmp_path / "whole") and {step for _, step, *_ in trained} == set(range(1, STEPS + 1))
    whole, killed = _log(tmp_path / "whole"), _log(tmp_path / "killed")
    once = {(step, role): values for step, role, values in whole}
    learned = [values for (_, role), values in once.items() if role == "solver" and "loss" in values]
    assert len({values["rehearsal/nll"] for values in learned}) == len(learned) > 1
    assert {role for _, role in once} >= set(ROLES) and len(killed) > len(whole) == len(once)
    for step, role, values in killed:
        assert values == once[step, role], (step, role)


def _log(run: Path) -> list[tuple[int, str, dict[str, Any]]]:
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [(step, role, {k: v for k, v in values.items() if not k.startswith(TIMES)}) for step, role, values in rows]


def _learned(run: Path) -> dict[str, object]:
    """Every tensor as bytes."""
    state = json.loads((run / "checkpoints" / "state.json").read_text())
    found: dict[str, object] = {name: state[name] for name in ("step", "pool", "cursor")}
    for role, place in state["folders"].items():
        found |= {f"{role} {path.name}": path.read_bytes() for path in (run / place).glob("*.safetensors")}
        found[f"{role} optimizer"] = _plain(torch.load(run / place / "optimizer.pt", weights_only=False))
        record = json.loads((run / place / "ssp.json").read_text())
        found[f"{role} algorithm"] = record["step"], record["algorithm"], record["kl_coef"]
    assert len(found) == 3 + 3 * len(ROLES)
    return found


def _plain(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _trained(run: Path) -> list[tuple[Any, ...]]:
    """(role, step, episode whatever issue of it, target, reward)."""
    sql = (
        "SELECT e.commit_role, e.commit_step, e.id, g.target, e.reward FROM episodes e JOIN games g ON g.id = e.game_id "
        "WHERE e.state = 'trained'"
    )
    rows = sqlite3.connect(run / "ledger.db").execute(sql).fetchall()
    return sorted((role, step, re.sub(r"-i\d+|\.\d+$", "", id), *rest) for role, step, id, *rest in rows)
