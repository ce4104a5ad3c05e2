"""A run on real Ray whose engines sleep, by `launch.cluster` on one node: as a run is, about as fast as its plan says (exactly:
tests/bench/plan_run.py), and ended without a trace."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from trainruns import SMALL, free_port, ledger_is_sound, marked, run, until

from ssp.capacity.plan.costs import Costs, own
from ssp.capacity.plan.simulate import simulate
from ssp.selfplay.settings import load

# in CI: what is planned by the coordinator in simulated time, and that runs on Ray leave no process
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
STEPS, BOUND = 8, 1
SLEEPING = f"""steps={STEPS} schedule.preset=one-step-off schedule.in_flight=true health.on_collapse=warn
    defaults.engine.kind=simulated defaults.engine.sequences=8 defaults.engine.simulated.tokens=200
    defaults.engine.simulated.step_ms=1 defaults.learner.kind=simulated defaults.limits.searches=1
    defaults.limits.turn_tokens=600 defaults.limits.total_tokens=1400 proposer.algorithm=grpo proposer.loss=ppo_clip
    solver.reward=ssp.learning.tiny.reward:letters referee.verifier=none referee.evidence=none
    referee.rules=[malformed,empty,leakage]""".split()


def test_one_node_alone_plays_as_it_was_planned_and_leaves_nothing(tmp_path: Path) -> None:
    alone = {"NNODES": "1", "MASTER_PORT": str(free_port(2))}
    cfg = load("quickstart", [*SMALL, *SLEEPING])
    costs = Costs(search_s=0.01)
    planned = simulate(cfg, own(cfg, costs), costs)
    with run(tmp_path / "run", *SLEEPING, env=alone, module="launch.cluster") as made:
        made.ends_well()
        until("no process of the run is left", lambda: not marked(made.mark), 60.0)
        ledger_is_sound(made)
        ages = [row["staleness/max"] for role in cfg.roles for row in made.rows(role)]
        assert len(ages) == 2 * STEPS and max(ages) <= BOUND
        walls = [row["time/step"] for row in made.rows("game") if 2 < row["step"] < STEPS]
        assert 0.6 * planned.step < median(walls) < 4 * planned.step  # a busy machine is late, never early
