"""Does the default quickstart learn? Several seeds, several cold starts, against a fixed proposer.

    python tests/bench/learning.py --out runs/learning [--seeds 5] [--coldstarts 3] [key=value ...]

Runs `ssp train --config quickstart` once for each (cold start, seed) and arm, one after the other, and prints a table
with the means and the spread. A finished run is not repeated, so the script can be stopped and started again.
Arms: `co` (both roles learn) and `fixed` (the proposer stays at its start). Evaluation: 400 questions a hop, temperature 1,
held-out world; see docs/learning.md for the table of the last full run.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ssp.telemetry.runlog import read_metrics  # noqa: E402

ARMS = {"co": [], "fixed": ["proposer.policy=frozen"]}
PER_HOP = 400


def main() -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--coldstarts", type=int, default=3)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--table", action="store_true", help="only print the table of what is there")
    options, settings = parser.parse_known_args()
    figures: dict[tuple[str, int, int], dict[str, Any]] = {}
    for seed in range(options.seeds):
        for arm in options.arms:
            cold = seed % options.coldstarts
            folder = options.out / f"{arm}-c{cold}-s{seed}"
            if not (folder / "done.json").exists() and not options.table:
                _run(folder, ARMS[arm], cold, seed, settings)
            if (folder / "done.json").exists():
                figures[arm, cold, seed] = _figures(folder)
    _table(figures, options.arms)
    return 0


def _run(folder: Path, arm: list[str], cold: int, seed: int, settings: list[str]) -> None:
    started, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "launch.train", "--config", "quickstart", f"run.dir={folder.absolute()}"]
    command += ["resume=auto", f"seed={seed}", f"coldstart.seed={cold}", f"eval.final_questions_per_hop={PER_HOP}"]
    command += ["ray.dashboard=false", *arm, *settings]
    print("+", " ".join(command[2:]), flush=True)
    subprocess.run(command, check=True, cwd=Path(__file__).resolve().parents[2], stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (folder / "done.json").write_text(json.dumps({"wall_s": time.time() - started, "driver_cpu_s": cpu}))


def _figures(folder: Path) -> dict[str, Any]:
    lines = read_metrics(folder / "metrics.jsonl")
    evals = [line for line in lines if line["role"] == "eval"]
    games = [line for line in lines if line["role"] == "game"]
    first, last = evals[0], evals[-1]
    win = [line["game/win_rate"] for line in games if "game/win_rate" in line]
    hops = [line["game/hops_mean"] for line in games if "game/hops_mean" in line]
    junk = [(line.get("game/junk_rate", 0.0) * line["game/accepted"], line["game/accepted"]) for line in games]
    smooth = [statistics.mean(win[i : i + 5]) for i in range(len(win) - 4)]
    return {
        "start": _mean(first),
        "end": _mean(last),
        "hop1": last["eval/accuracy_1hop"],
        "hop2": last["eval/accuracy_2hop"],
        "hop3": last["eval/accuracy_3hop"],
        "start3": first["eval/accuracy_3hop"],
        "train_gap": last["eval/train/accuracy_mean123"] - _mean(last),
        "nosearch": last["eval/nosearch/accuracy"],
        "hops_gain": statistics.mean(hops[-5:]) - statistics.mean(hops[:5]),
        "win_first": smooth[0],
        "win_min": min(smooth),
        "win_last": smooth[-1],
        "junk": sum(j for j, _ in junk) / max(1.0, sum(a for _, a in junk)),
        "junk_worst": max(line.get("game/junk_rate", 0.0) for line in games),
        "step_s": statistics.median(line["time/step"] for line in games),
        "overhead": sum(line["time/overhead"] for line in games) / sum(line["time/step"] for line in games),
        "curve": {int(line["step"]): _mean(line) for line in evals},
        "curve3": {int(line["step"]): line["eval/accuracy_3hop"] for line in evals},
        "compute": _compute(games),
    }


def _mean(line: dict[str, Any]) -> float:
    return float(line["eval/accuracy_mean123"])


def _compute(games: list[dict[str, Any]]) -> dict[int, float]:
    """Seconds of engine, verification and learning on the critical path up to each step."""
    total, sums = 0.0, {}
    for line in games:
        total += sum(line[f"time/{kind}"] for kind in ("generate", "search", "verify", "learn"))
        sums[int(line["step"])] = total
    return sums


def _table(figures: dict[tuple[str, int, int], dict[str, Any]], arms: list[str]) -> None:
    columns = "start end hop1 hop2 hop3 train_gap nosearch hops_gain win_first win_min win_last junk junk_worst overhead step_s"
    for arm in arms:
        rows = {key: row for key, row in figures.items() if key[0] == arm}
        if not rows:
            continue
        print(f"\n{arm}\n| cold, seed | " + " | ".join(columns.split()) + " | gain |")
        print("|---" * (len(columns.split()) + 2) + "|")
        for (_, cold, seed), row in sorted(rows.items(), key=lambda item: item[0][2]):
            cells = [f"{row[name]:.3f}" for name in columns.split()]
            print(f"| {cold}, {seed} | " + " | ".join(cells) + f" | {row['end'] - row['start']:+.3f} |")
        gains = [row["end"] - row["start"] for row in rows.values()]
        print(f"gain: mean {statistics.mean(gains):+.3f}, min {min(gains):+.3f}, max {max(gains):+.3f}, n {len(gains)}")
    if {"co", "fixed"} <= set(arms):
        _against(figures)


def _against(figures: dict[tuple[str, int, int], dict[str, Any]]) -> None:
    print("\nco-evolution against the fixed proposer, same start and seed")
    print("| cold, seed | 3-hop co | 3-hop fixed | mean co | mean fixed | mean co at the fixed run's compute |")
    print("|---|---|---|---|---|---|")
    for (arm, cold, seed), row in sorted(figures.items(), key=lambda item: item[0][2]):
        other = figures.get(("fixed", cold, seed))
        if arm != "co" or other is None:
            continue
        budget = max(other["compute"].values())
        reached = [step for step, used in row["compute"].items() if used <= budget and step in row["curve"]]
        equal = row["curve"][max(reached)] if reached else float("nan")
        print(
            f"| {cold}, {seed} | {row['hop3']:.3f} | {other['hop3']:.3f} | {row['end']:.3f} | {other['end']:.3f} | "
            f"{equal:.3f} (step {max(reached, default=0)}) |"
        )


if __name__ == "__main__":
    sys.exit(main())
