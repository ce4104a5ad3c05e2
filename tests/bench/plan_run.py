"""`ssp plan` against a real run: engines that sleep, on real Ray, at the speed that the plan says.

    python tests/bench/plan_run.py [--steps 24] [--config simulated] [key=value ...]

Prints seconds a step of both, their ratio, the staleness of both, and the share of a core that each process of the run took
meanwhile (engines that sleep should take next to none). What a machine adds to the sleep (tokenizers, search, the ledger,
Ray) is not in the plan, so lengths and costs should make a step seconds long; the defaults below do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any

import psutil

REPO = Path(__file__).resolve().parent.parent.parent
SLOW = [
    "defaults.engine.simulated.tokens=300",
    "defaults.engine.simulated.step_ms=4",
]


def edge(config: str, typed: list[str]) -> int:
    """Steps that are left out at both ends, of both: rounds in flight, and one."""
    from ssp.capacity.plan.simulate import WARM
    from ssp.selfplay.settings import load

    cfg = load(config, typed)
    return WARM + 1 + max(cfg.schedule.max_staleness[role] for role in cfg.roles)


def planned(config: str, typed: list[str], rounds: int) -> tuple[float, dict[str, float]]:
    """Seconds a step, and mean staleness by role, as planned, over the rounds that are played too: their lengths are drawn
    from the same seeds."""
    from ssp.capacity.plan.costs import Costs, own
    from ssp.capacity.plan.simulate import simulate
    from ssp.selfplay.settings import load

    cfg, costs = load(config, typed), Costs(search_s=0.01)
    found = simulate(cfg, own(cfg, costs), costs, rounds)
    return found.step, {role: age for role, (age, _) in found.staleness.items()}


def burnt(root: psutil.Process) -> Counter[str]:
    """CPU seconds up to now of a process and all below it, by name; those of one actor class together."""
    found: Counter[str] = Counter()
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.Error):
            title = " ".join(process.cmdline()) or process.name()
            name = title.split(".")[0] if title.startswith("ray::") else Path(title.split(" ")[0]).name
            name = "driver" if process.pid == root.pid else name
            used = process.cpu_times()
            found[name] += used.user + used.system
            found[f"{name} (processes)"] += 1
    return found


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Complete lines of the run's metrics up to now."""
    file = folder / "metrics.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def watched(root: psutil.Popen, folder: Path, first: int, last: int) -> tuple[float, Counter[str]]:
    """Wall seconds and CPU seconds by name between two steps of a run."""
    marks: list[tuple[float, Counter[str]]] = []
    while root.poll() is None and len(marks) < 2:
        step = max((row["step"] for row in rows_of(folder) if row["role"] == "game"), default=0)
        if step >= (first, last)[len(marks)]:
            marks.append((time.monotonic(), burnt(root)))
        time.sleep(0.5)
    (began, before), (ended, after) = marks
    spent = {name: after[name] if "(" in name else after[name] - before[name] for name in after}
    return ended - began, Counter(spent)


def played(config: str, typed: list[str], steps: int, folder: Path) -> tuple[float, dict[str, float]]:
    """The same of a real run, from its metrics; prints who used the processor."""
    ends = edge(config, typed)
    told = [
        f"run.dir={folder}",
        f"steps={steps}",
        "save.every=1000",
        "ray.dashboard=-1",
        "eval.final_questions_per_hop=1",
    ]
    command = [sys.executable, "-m", "launch.train", "--config", config, *typed, *told]
    run = psutil.Popen(
        command, cwd=REPO, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, start_new_session=True
    )
    wall, used = watched(run, folder, ends, steps - ends)
    assert run.wait() == 0, "the run failed"
    for name, seconds in used.most_common():
        if "(" not in name and seconds / wall > 0.001:
            count = used[f"{name} (processes)"]
            print(f"cpu {seconds / wall:6.1%} of a core, {seconds / wall / count:6.1%} each of {count:.0f}: {name}")
    rows = rows_of(folder)
    middle = [row for row in rows if ends < row["step"] <= steps - ends]
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
    step, ages = planned(args.config, typed, args.steps - 2 * edge(args.config, typed))
    with tempfile.TemporaryDirectory() as place:
        wall, found = played(args.config, typed, args.steps, Path(place) / "run")
    print(f"planned {step:.3f} s a step, played {wall:.3f}: ratio {step / wall:.3f} (throughput, played to planned)")
    for role, age in found.items():
        print(f"{role}: staleness planned {ages[role]:.2f}, played {age:.2f}")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
