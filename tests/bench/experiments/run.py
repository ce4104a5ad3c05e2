"""Experiments, on the embedded world and in English: the arms of one YAML file, over seeds and cold starts, and what
comes of them.

    python tests/bench/experiments/run.py coevolution --out runs/experiments [--jobs 2] [--arms own shared] [--seeds 2] [--cold 1]

Plays each missing (arm, seed) with the settings of `ssp train --config quickstart` (or of the file's `config`), by `alone.py` in one
process, and adds one row of figures to `docs/experiments/NAME.jsonl`; an arm that another experiment has played too takes its row. It may be
ended and started again at any time, and on another day; a run that was ended goes on from its last checkpoint (with
injected outages, from its start). `report.py` makes the page. The cold start of seed s is s modulo `coldstarts`, so arms
are paired by cold start and seed; that of 0 is the shipped policy, the others are taught first (`../coldstart/teach.py`).
Evaluation: 400 questions a hop, temperature 1, in a world that training never searches. The English experiment begins with
the shipped starts, and asks 64 a hop, greedy.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from statistics import mean
from typing import Any

REPO = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPO))

from omegaconf import OmegaConf  # noqa: E402

from ssp.telemetry.runlog import read_metrics  # noqa: E402

HERE, RESULTS = Path(__file__).resolve().parent, REPO / "docs" / "experiments"
PER_HOP = 400
# An arm that collapses is a finding, and is played to its end like the others.
ALWAYS = [
    "resume=auto",
    "ray.dashboard=-1",
    "save.keep=1",
    "health.on_collapse=warn",
]
CURVES = ("game/win_rate", "game/valid_rate", "game/hops_mean", "game/junk_rate")
AUDIT = ("label_truth", "false_agreement")


def experiment(name: str) -> dict[str, Any]:
    """The YAML file of that name: `title`, `about`, `config` and `per_hop` (where they are not quickstart and 400), `seeds`,
    `coldstarts`, `control`, `base`, `arms` of overrides (or flags of `alone.py`), `shown` (further figures of a row),
    `finding`."""
    said = OmegaConf.to_container(OmegaConf.load(HERE / f"{name}.yaml"))
    return {"config": "quickstart", "per_hop": PER_HOP, **said}  # type: ignore[dict-item]


def rows(name: str) -> list[dict[str, Any]]:
    """What has been measured so far, one row an (arm, seed): the first, where two machines played the same. `cpu`: since the
    evaluation of the start; None of a run that went on."""
    file = RESULTS / f"{name}.jsonl"
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        row = json.loads(line)
        spent = row["cpu"] or {}
        row["cpu"] = {step: seconds - spent["0"] for step, seconds in spent.items()} if "0" in spent else None
        found.setdefault((row["arm"], row["seed"]), row)
    return list(found.values())


def missing(name: str, about: dict[str, Any], seeds: int, arms: Sequence[str]) -> list[tuple[str, int]]:
    """The (arm, seed) that have no row yet, seed by seed: every arm of a cold start before the next."""
    done = {(row["arm"], row["seed"]) for row in rows(name)}
    return [(arm, seed) for seed in range(seeds) for arm in arms if (arm, seed) not in done]


def command(about: dict[str, Any], arm: str, seed: int, folder: Path) -> list[str]:
    """What plays one run."""
    cold = seed % about["coldstarts"]
    start = [f"defaults.model={policy(folder.parents[1], cold)}"] if cold else []
    told = [f"run.dir={folder}", f"seed={seed}", *start, *ALWAYS, f"eval.final_questions_per_hop={about['per_hop']}"]
    return [
        sys.executable,
        str(HERE / "alone.py"),
        "--config",
        about["config"],
        *told,
        *about["base"],
        *about["arms"][arm],
    ]


def policy(out: Path, cold: int) -> Path:
    """The folder of a cold start that is not shipped."""
    return out / "coldstarts" / str(cold)


def teach(out: Path, cold: int) -> None:
    """Make that folder, where it is not there yet."""
    made = policy(out, cold)
    if not (made / "ssp.json").exists():
        line = [sys.executable, str(HERE.parent / "coldstart" / "teach.py"), "--seed", str(cold), "--out", str(made)]
        subprocess.run(line, cwd=REPO, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)


def twin(about: dict[str, Any], arm: str, seed: int) -> dict[str, Any] | None:
    """The row of another experiment's run with the same settings and seed, which need not be played again."""

    def told(about: dict[str, Any], arm: str) -> list[Any]:
        return [seed % about["coldstarts"], *about["base"], *about["arms"][arm]]

    for file in sorted(HERE.glob("*.yaml")):
        other = experiment(file.stem)
        for row in rows(file.stem):
            if row["seed"] == seed and row["arm"] in other["arms"] and told(other, row["arm"]) == told(about, arm):
                return {**row, "arm": arm}
    return None


def play(name: str, about: dict[str, Any], arm: str, seed: int, out: Path) -> None:
    """One run, to its row. A run that ended by an alarm has one too: `exit` says so."""
    if (row := twin(about, arm, seed)) is not None:
        keep(name, row)
        return
    folder = out / name / f"{arm}-s{seed}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    if "--outages" in about["arms"][arm]:  # the services' time is in no checkpoint
        shutil.rmtree(folder, ignore_errors=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with (folder.parent / f"{arm}-s{seed}.log").open("w") as log:
        line = command(about, arm, seed, folder)
        code = subprocess.run(line, cwd=REPO, env=env, stdout=log, stderr=log, check=False).returncode
    if code not in (0, 1) or not (folder / "metrics.jsonl").exists():
        print(f"{name} {arm} seed {seed}: exit {code}, see {log.name}", flush=True)
        return
    found = figures(folder)
    keep(name, {"arm": arm, "seed": seed, "cold": seed % about["coldstarts"], "exit": code, **found})


def keep(name: str, row: dict[str, Any]) -> None:
    """Add a row to the experiment's file."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    end = f"{row['end']:.3f}" if row["end"] is not None else "no final evaluation"
    print(f"{name} {row['arm']} seed {row['seed']}: exit {row['exit']}, end {end}", flush=True)


def figures(folder: Path) -> dict[str, Any]:
    """The figures of a run that ended: held-out accuracy at start and end, its curve, the game's curves every 5 steps, CPU."""
    lines = read_metrics(folder / "metrics.jsonl")
    games = [line for line in lines if line["role"] == "game"]
    # The first and the last evaluation ask all questions, those between half of them.
    evals = [line for line in lines if line["role"] == "eval" and "eval/accuracy_mean123" in line]
    last = evals[-1] if len(evals) > 1 and evals[-1]["eval/items"] == evals[0]["eval/items"] else None
    asked = [line.get("game/accepted", 0.0) for line in games]  # none where questions are given
    junk = [(line.get("game/junk_rate", 0.0) * count, count) for line, count in zip(games, asked, strict=True)]
    cpu, faults = folder / "cpu.json", folder / "faults.json"
    spent = json.loads(cpu.read_text()) if cpu.exists() else None
    stale = {
        f"stale_{role}": [line["staleness/mean"] for line in lines if line["role"] == role and "staleness/mean" in line]
        for role in ("proposer", "solver")
    }
    return {
        "steps": len(games),
        "start": evals[0]["eval/accuracy_mean123"],
        "end": last and last["eval/accuracy_mean123"],
        **{f"hop{hop}": last and last[f"eval/accuracy_{hop}hop"] for hop in (1, 2, 3)},
        "train": last and last.get("eval/train/accuracy_mean123"),
        "valid": mean(line.get("game/valid_rate", 0.0) for line in games) if games else None,
        "junk": sum(bad for bad, _ in junk) / max(1.0, sum(all_ for _, all_ in junk)),
        "nosearch": last and last.get("eval/nosearch/accuracy"),
        **trends(games),
        **audits(games),
        "curve": {int(line["step"]): round(line["eval/accuracy_mean123"], 4) for line in evals},
        "curve3": {int(line["step"]): round(line["eval/accuracy_3hop"], 4) for line in evals},
        "game": {name: [round(line[name], 4) if name in line else None for line in games[4::5]] for name in CURVES},
        **batches(games, OmegaConf.load(folder / "config.yaml").solver.batch),
        "cpu": spent,
        **{role: round(sum(found) / len(found), 3) if found else None for role, found in stale.items()},
        **(json.loads(faults.read_text()) if faults.exists() else {}),
    }


def batches(games: Sequence[Mapping[str, Any]], size: int) -> dict[str, Any]:
    """The share of steps with `size` groups with spread, their mean number, that of further batches, and of the sampled
    tokens the sum by step."""
    groups, sums = [line.get("game/groups", 0.0) for line in games], accumulate(line["game/tokens"] for line in games)
    return {
        "full": mean(count >= size for count in groups),
        "groups": mean(groups),
        "refills": mean(line.get("game/refills", 0.0) for line in games),
        "tokens": {"0": 0.0, **{str(int(line["step"])): spent for line, spent in zip(games, sums, strict=True)}},
    }


def audits(games: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What the oracle says of the second half of the steps, as means. Empty where nothing was audited."""
    late = games[len(games) // 2 :]
    told = {name: [line[f"audit/{name}"] for line in late if f"audit/{name}" in line] for name in AUDIT}
    return {name: round(mean(values), 4) for name, values in told.items() if values}


def trends(games: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """How the game went: hops of accepted questions, last five rounds minus first five, and the solver's win rate as a
    mean of five rounds: the first, the lowest, the last. None of a run with fewer rounds."""
    hops, wins = ([line[name] for line in games if name in line] for name in ("game/hops_mean", "game/win_rate"))
    smooth = [mean(wins[i : i + 5]) for i in range(len(wins) - 4)]
    return {
        "hops_gain": mean(hops[-5:]) - mean(hops[:5]) if len(hops) > 4 else None,
        "win_first": smooth[0] if smooth else None,
        "win_min": min(smooth, default=None),
        "win_last": smooth[-1] if smooth else None,
    }


def main() -> int:
    """Play what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=sorted(file.stem for file in HERE.glob("*.yaml")))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="the first so many only")
    parser.add_argument("--cold", type=int, help="seeds of this cold start only")
    parser.add_argument("--arms", nargs="+")
    given = parser.parse_args()
    about = experiment(given.name)
    wanted = missing(given.name, about, given.seeds or about["seeds"], given.arms or list(about["arms"]))
    wanted = [one for one in wanted if given.cold in (None, one[1] % about["coldstarts"])]
    out = given.out.absolute()
    for cold in sorted({seed % about["coldstarts"] for _, seed in wanted} - {0}):
        teach(out, cold)
    with ThreadPoolExecutor(given.jobs) as pool:
        for job in [pool.submit(play, given.name, about, *one, out) for one in wanted]:
            job.result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
