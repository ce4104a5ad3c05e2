"""The duel in English on one GPU, in slices: as many steps as fit, and what the last policy answers."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

RECIPE, SAVING = "english-gpu1", 75.0
"""Seconds that a game may take to end and save."""
SMALL = (
    "steps=2 defaults.model=tiny defaults.engine.device=cpu defaults.engine.dtype=float32 placement.engine_gpus=0 placement.learner_gpus=0"
    " solver.model=tiny proposer.model=tiny referee.model='' proposer.rehearsal.share=0 solver.rehearsal.share=0"
    " warmup.data='' referee.verifier=none referee.evidence=none proposer.batch=4 solver.batch=2 game.attempts=2 save.every=1"
    " eval.final_questions_per_hop=2 defaults.limits.prompt_tokens=512 defaults.limits.total_tokens=2048"
).split()
"""The same game without a pretrained model: it is wrong about everything, and goes through every stage."""


def machine(folder: Path, dry: bool, seconds: float) -> dict[str, Any]:
    """What it is, and its rate of matrix products."""
    from ssp.learning.figures import matrix_rate

    row: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    if not dry:
        about = torch.cuda.get_device_properties(0)
        row |= {"gpu": about.name, "gb": about.total_memory / 2**30}
        row |= {"bf16_tflops": matrix_rate("cuda", torch.bfloat16) / 1e12}
    return {**row, "missed": []}


def play(folder: Path, dry: bool, seconds: float) -> dict[str, Any]:
    """A slice of the run: from its start, or where the last slice stopped it."""
    run, began, sofar = folder / "runs" / "english", time.monotonic(), folder / "rows" / "english.json"
    before = json.loads(sofar.read_text())["seconds_so_far"] if sofar.is_file() else 0.0
    typed = [f"run.dir={run}", "resume=auto", *(SMALL if dry else [])]
    for name in () if dry else ("english-solver", "english-teacher"):
        subprocess.run([sys.executable, "-m", "launch.download", name], check=True, stdin=subprocess.DEVNULL)
    game = subprocess.Popen(
        [sys.executable, "-m", "launch.train", "--config", RECIPE, *typed], stdin=subprocess.DEVNULL
    )
    try:
        code: int | None = game.wait(max(seconds - SAVING, 20.0))
    except subprocess.TimeoutExpired:
        game.send_signal(signal.SIGINT)
        code = game.wait(SAVING)
    if code not in (0, 130):
        raise RuntimeError(f"ssp train ended with {code}")
    figures = run / "metrics.jsonl"  # there is none before the warm start has ended
    rows = [json.loads(line) for line in figures.read_text().splitlines()] if figures.is_file() else []
    steps = [row for row in rows if row["role"] == "solver"]
    last = steps[-5:]
    found: dict[str, Any] = {"seconds_so_far": before + time.monotonic() - began, "steps": len(steps)}
    if last:
        found["win_rate"] = sum(row["reward/mean"] for row in last) / len(last)
        found["mfu"] = sum(row.get("mfu", 0.0) for row in last) / len(last)
    games = [row for row in rows if row["role"] == "game" and "time/step" in row][-5:]
    if games:
        found["seconds_a_step"] = sum(row["time/step"] for row in games) / len(games)
        found["valid_rate"] = sum(row["game/valid_rate"] for row in games) / len(games)
    tested = [row for row in rows if row["role"] == "eval"]
    if tested:
        found |= {f"before_{key.removeprefix('eval/')}": tested[0][key] for key in tested[0] if accuracy(key)}
    return {**found, "unfinished": code == 130 and found["seconds_so_far"] < (0 if dry else 600), "missed": []}


def accuracy(key: str) -> bool:
    """Whether it is one of those that a table shows."""
    return key.startswith("eval/") and "accuracy" in key and "stderr" not in key


def after(folder: Path, dry: bool, seconds: float) -> dict[str, Any]:
    """The newest checkpoint's answers to the held-out questions, with search and without."""
    run, summary = folder / "runs" / "english", folder / "after.json"
    command = [sys.executable, "-m", "launch.eval", "--policy", str(run), "--summary", str(summary)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    lines = json.loads(summary.read_text())
    return {**{f"em_{label}": line["em"]["mean"] for label, line in lines.items() if "em" in line}, "missed": []}
