"""`ssp plan` against a real run: engines that sleep, on real Ray, at the speed that the plan says.

    python tests/bench/plan_run.py [--steps 24] [--config simulated] [key=value ...]

Prints seconds a step of both, their ratio, and the staleness of both. What a machine adds to the sleep (tokenizers, search,
the ledger, Ray) is not in the plan, so lengths and costs should make a step seconds long; the defaults below do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

REPO = Path(__file__).resolve().parent.parent.parent
SLOW = [
    "defaults.engine.simulated.tokens=300",
    "defaults.engine.simulated.step_ms=4",
    "defaults.engine.simulated.sequence_ms=0.05",
    "defaults.learner.token_ms=0.1",
]
EDGE = 6
"""Steps that are left out at both ends: rounds in flight, and one."""


def planned(config: str, typed: list[str]) -> tuple[float, dict[str, float]]:
    """Seconds a step, and mean staleness by role, as planned."""
    from ssp.config import load
    from ssp.plan.costs import Costs
    from ssp.plan.simulate import simulate
    from ssp.plan.split import own

    cfg, costs = load(config, typed), Costs(search_s=0.01)
    found = simulate(cfg, own(cfg, costs), costs)
    return found.step, {role: age for role, (age, _) in found.staleness.items()}


def played(config: str, typed: list[str], steps: int, folder: Path) -> tuple[float, dict[str, float]]:
    """The same of a real run, from its metrics."""
    told = [
        f"run.dir={folder}",
        f"steps={steps}",
        "save.every=1000",
        "ray.dashboard=false",
        "eval.final_questions_per_hop=1",
    ]
    command = [sys.executable, "-m", "launch.train", "--config", config, *typed, *told]
    subprocess.run(command, cwd=REPO, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    middle = [row for row in rows if EDGE < row["step"] <= steps - EDGE]
    walls = [row["time/step"] for row in middle if row["role"] == "game"]
    roles = {row["role"] for row in middle if "staleness/mean" in row}
    return mean(walls), {role: mean(r["staleness/mean"] for r in middle if r["role"] == role) for role in sorted(roles)}


def main() -> None:
    """Plan, play, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--config", default="simulated")
    parser.add_argument("typed", nargs="*")
    args = parser.parse_intermixed_args()
    typed = [*SLOW, *args.typed]
    step, ages = planned(args.config, typed)
    with tempfile.TemporaryDirectory() as place:
        wall, found = played(args.config, typed, args.steps, Path(place) / "run")
    print(f"planned {step:.3f} s a step, played {wall:.3f}: ratio {step / wall:.3f} (throughput, played to planned)")
    for role, age in found.items():
        print(f"{role}: staleness planned {ages[role]:.2f}, played {age:.2f}")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
