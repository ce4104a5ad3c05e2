"""Games whose roles rehearse: what is learned again is no episode, and the ledger does not know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Stage, config
from safetensors.numpy import load_file

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.config.load import to_yaml
from ssp.config.schema import Config
from ssp.learning.coldstart import ARTEFACT
from ssp.selfplay.workers import learner as learner_worker
from ssp.selfplay.workers import lessons
from tests import lessons as made
from tests import local

SHARE = 0.25


def written(file: Path, count: int) -> Path:
    """Traces of every role, in words that the shipped policy knows."""
    made.write(file, count, every=True)
    file.write_text(file.read_text().replace("founder ask", "founder seat"))
    return file


def rehearsing(file: Path, *roles: str, **changes: Any) -> Config:
    for role in roles:
        changes |= {f"{role}__rehearsal__share": SHARE, f"{role}__rehearsal__data": str(file)}
    return config(**{"eval__every": 0, "steps": 2, **changes})


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners that learn; the players are scripted, so that weights change nothing that is played."""
    monkeypatch.setattr(local, "Learner", learner_worker.Learner)


def weights(stage: Stage, role: str) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = load_file(stage.folder.path / stage.state()["folders"][role] / "model.safetensors")
    return found


@pytest.mark.covers("GA-11")
def test_what_is_rehearsed_is_no_episode(tmp_path: Path, real: None) -> None:
    """Law 3: the same rows in the same states, trained by the same commits, as without it; and other weights."""
    file = written(tmp_path / "traces.jsonl", 12)
    plain = Stage(rehearsing(file), tmp_path / "plain", model=ARTEFACT)
    again = Stage(rehearsing(file, *ROLES), tmp_path / "again", model=ARTEFACT)
    assert plain.whole().settled() == again.whole().settled()
    assert plain.ledger.digest() == again.ledger.digest()
    for role in ROLES:
        for before, after in zip(plain.figures(role), again.figures(role), strict=True):
            assert after["episodes"] == before["episodes"] and after["reward/mean"] == before["reward/mean"]
            assert after["tokens"] == before["tokens"] and after["rehearsal/tokens"] > 0
            assert "rehearsal/tokens" not in before
        ours, theirs = weights(again, role), weights(plain, role)
        assert any(not np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_role_that_rehearses_nothing_learns_as_before(tmp_path: Path, real: None) -> None:
    file = written(tmp_path / "traces.jsonl", 12)
    plain = Stage(rehearsing(file), tmp_path / "plain", model=ARTEFACT).played()
    again = Stage(rehearsing(file, SOLVER), tmp_path / "again", model=ARTEFACT).played()
    ours, theirs = weights(again, PROPOSER), weights(plain, PROPOSER)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_policy_of_two_roles_rehearses_for_both(tmp_path: Path, real: None) -> None:
    file = written(tmp_path / "traces.jsonl", 12)
    shared = {f"{role}__policy": "shared" for role in ROLES}
    stage = Stage(rehearsing(file, *ROLES, steps=1, **shared), tmp_path / "run", model=ARTEFACT).whole()
    for role in ROLES:
        assert stage.figures(role)[-1]["rehearsal/nll"] > 0


def test_traces_for_a_proposer_alone_are_left_out_of_a_policy_of_two_roles(tmp_path: Path) -> None:
    file = written(tmp_path / "traces.jsonl", 6)
    file.write_text(file.read_text().replace('{"role": "proposer"', '{"role": "proposer", "alone": true', 2))
    cfg = rehearsing(file, *ROLES)
    assert [len(lessons.read(cfg, role, ARTEFACT)) for role in ROLES] == [6, 6]
    cfg.proposer.policy = cfg.solver.policy = "shared"
    assert [len(lessons.read(cfg, role, ARTEFACT)) for role in ROLES] == [4, 6]


def test_a_finished_run_is_rehearsed_as_it_was_played(tmp_path: Path) -> None:
    """The right attempts of a run, in the order of their ids, without what only a transcript needs."""
    first = Stage(config(eval__every=0, steps=1), tmp_path / "first").played()
    first.folder.config.write_text(to_yaml(first.cfg))
    cfg = rehearsing(first.folder.path, SOLVER)
    logs = lessons.read(cfg, SOLVER, ARTEFACT)
    right = first.rows("SELECT id FROM episodes WHERE role = 'solver' AND reward = 1 ORDER BY id")
    assert [log.id for log in logs] == [row["id"] for row in right] and logs
    assert all(log.log.mask.any() and not log.text for log in logs)
