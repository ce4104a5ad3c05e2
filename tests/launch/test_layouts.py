"""Layouts in which engines and learners share GPUs, as a cluster runs them that only claims to have some.

vLLM, DeepSpeed and torch compute on this machine's CPU: who sits where, who sleeps when, and what travels is real.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ray.util.state import list_tasks
from safetensors import safe_open
from trainruns import Cluster, Run, ledger_is_sound, run

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    *[
        pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")
        for name in ("vllm", "deepspeed")
    ],
]
SMALL = "steps=2 proposer.batch=8 solver.batch=4 game.attempts=3 eval.final_questions_per_hop=2 referee.verifier=none".split()
SMALL += "referee.evidence=none defaults.engine.kind=vllm placement.nodes=1x2x80 placement.engine_gpus=0.5".split()
ROLES = ("proposer", "solver")


@pytest.fixture(scope="module")
def claims() -> Iterator[Cluster]:
    """A cluster with two GPUs that are not there."""
    folder = Path(tempfile.mkdtemp(prefix="ssp-ray-", dir="/tmp"))
    cluster = Cluster(folder, gpus=2)
    try:
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)


def ended(claims: Cluster, made: Run, roles: Sequence[str]) -> Counter[str]:
    """Calls to actors of this run, the cluster's last job, by class and method. The run ended well, its versions went up,
    and all `roles` trained, each time on episodes of the newest version."""
    assert made.wait(800.0) == 0, made.text()
    ledger_is_sound(made, roles)
    text = made.text()
    assert made.steps() == 2 and made.sql("SELECT count(*) FROM episodes WHERE outcome = 'void'") == [(0,)], text
    assert "engines sleep; learners are starting" in text
    for role in roles:
        rows = made.rows(role)
        first, second = (row["version"] for row in rows)
        assert first < second
        trained = made.sql(f"SELECT count(*) FROM episodes WHERE role = '{role}' AND state = 'trained'")
        assert trained[0][0] > 0 and any(row["grad_norm"] > 0 for row in rows), text
        assert max(row.get("logprob_mismatch/max", 0.0) for row in rows) < 1e-3
        assert all(row["staleness/max"] == 0 for row in rows)
    tasks = list_tasks(address=claims.dashboard, limit=10_000, timeout=60)
    last = max(task.job_id for task in tasks)  # the runs of earlier tests are on record too
    return Counter(task.func_or_class_name for task in tasks if task.job_id == last)


@pytest.mark.nightly  # in CI: test_placement_groups.py has who sits where
def test_torch_shares_one_gpu_and_nobody_sleeps(claims: Cluster, tmp_path: Path) -> None:
    """Without vLLM: two players, a verifier and two learners on one GPU, which is not there, so that torch takes the CPU."""
    parts = "engine_gpus=0.2 learner_gpus=0.2 proposers=1 solvers=1 judges=1 nodes=1x2x80".split()
    typed = [word for word in SMALL[:5] if not word.startswith("eval")] + [f"placement.{part}" for part in parts]
    with run(tmp_path / "parts", *typed, "referee.verifier=frozen", env=claims.env) as made:
        assert made.wait(300.0) == 0, made.text()
        ledger_is_sound(made, ROLES)
        assert "engines sleep" not in made.text()


@pytest.mark.nightly
def test_one_engine_plays_both_roles_with_an_adapter_each(claims: Cluster, tmp_path: Path) -> None:
    """DeepSpeed learns for the proposer, torch for the solver; what they publish is adapters, what they save is whole."""
    settings = [
        "placement.layout=shared-base",
        "placement.learner_gpus=0.25",
        "defaults.learner.lora.rank=4",
        "proposer.learner.kind=deepspeed",
    ]
    with run(tmp_path / "base", *SMALL, *settings, env=claims.env) as made:
        calls = ended(claims, made, ROLES)
        state = json.loads((made.folder / "checkpoints" / "state.json").read_text())
        sizes = [row["sync/bytes"] for role in ROLES for row in made.rows(role)]
        for folder in state["folders"].values():
            with safe_open(made.folder / folder / "model.safetensors", framework="np") as file:
                whole = sum(file.get_tensor(name).nbytes for name in file.keys())  # noqa: SIM118
    assert max(sizes) < whole / 4, "adapters travel"
    # Both say where they are, then the engine sleeps at the start, wakes to play and sleeps to learn in each step.
    assert calls["PairActor.as_role"] >= 2 + 2 + 2 * 2 and not calls["PlayerActor.play"], calls


@pytest.mark.parametrize(
    ("roles", "more"),
    [
        (ROLES[1:], ["game.questions=dataset", "data.questions=world:train"]),
        pytest.param(ROLES, [], marks=pytest.mark.nightly),  # a vLLM more
    ],
)
def test_each_learner_sits_with_its_engine(
    claims: Cluster, tmp_path: Path, roles: Sequence[str], more: list[str]
) -> None:
    settings = ["placement.layout=colocate", "placement.learner_gpus=0.5", *more]
    with run(tmp_path / f"beside{len(roles)}", *SMALL, *settings, env=claims.env) as made:
        calls = ended(claims, made, roles)
    # At the start and to learn, and to play, in each step.
    assert calls["PlayerActor.sleep"] >= 3 * len(roles) and calls["PlayerActor.wake"] >= 2 * len(roles), calls
