"""Make the start policies of the English world, which ssp/extras/english/starts ships as adapters of SmolLM2-135M-Instruct.

    bash launch/setup.sh english; ssp download smollm2-135m
    python tests/bench/english_starts.py solver --work DIR      # one core: ten minutes
    python tests/bench/english_starts.py teacher --work DIR     # two and a half hours; the same command goes on where it was stopped

Each is a warm start (`ssp warmup`) of low-rank adapters on the world's own traces, or two in turn. The solver learns each of its own
once, so that it knows the form and how often to search, and little else. The teacher learns those of all roles; then further
ones of the proposer, and again the verifier's, of which few are unsettled: after the first it answered "none" to most of what its
documents settle. What they changed is written as two factors for each weight, in bfloat16, with the share of the change that this loses. Prints the SHA-256 that
ssp/base/published.json names. `--ranks 2`, by which the teacher's second was made, needs DeepSpeed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from ssp.base import models  # noqa: E402
from ssp.base.files import digest  # noqa: E402
from ssp.engines.adapted import DOWN, UP  # noqa: E402
from ssp.game import protocols  # noqa: E402
from ssp.game.world import files  # noqa: E402

BASE = "smollm2-135m"
STARTS = ROOT / "ssp" / "extras" / "english" / "starts"


Row = dict[str, Any]


def scripted(rows: list[Row]) -> list[Row]:
    """All traces; a policy that plays all roles leaves those out that are the proposer's alone."""
    return rows


def answering(rows: list[Row]) -> list[Row]:
    """The solver's."""
    return [row for row in rows if row["role"] == "solver"]


def further(rows: list[Row]) -> list[Row]:
    """Proposals that the first warm start left out, and all of the verifier's but two thirds of the unsettled ones."""
    drawn = random.Random(0)
    alone = [{key: row[key] for key in row if key != "alone"} for row in rows if row.get("alone")]
    settled, unsettled = [], []
    for row in rows:
        if row["role"] == "quoting":
            (unsettled if "<answer> none" in row["turns"][0] else settled).append(row)
    drawn.shuffle(alone)
    drawn.shuffle(unsettled)
    mixed = alone[:350] + settled + unsettled[:22]
    drawn.shuffle(mixed)
    return mixed


@dataclass(frozen=True)
class Phase:
    """A warm start: what it learns, in one pass of `batch` traces an update, by adapters of this rank; as which role (all: a
    policy of all of them)."""

    traces: Callable[[list[Row]], list[Row]]
    rank: int
    lr: float
    role: str = "all"
    batch: int = 4


@dataclass(frozen=True)
class Start:
    """`rank`: of the adapter that is written."""

    rank: int
    phases: tuple[Phase, ...]


KINDS = {
    "teacher": Start(18, (Phase(scripted, 16, 1e-3), Phase(further, 16, 7e-4))),
    "solver": Start(8, (Phase(answering, 8, 1e-3, "solver", 2),)),
}


def taught(phase: Phase, base: str, out: Path, ranks: int) -> Path:
    """The folder of the policy `base` after this warm start, made where it is not whole yet."""
    lines = Path(files.resolve("world:english", "traces")).read_text(encoding="utf-8").splitlines()
    mine = phase.traces([json.loads(line) for line in lines])
    data = out.with_suffix(".jsonl")
    data.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in mine), encoding="utf-8")
    made = out.is_dir() and "warmup" not in json.loads((out / "ssp.json").read_text(encoding="utf-8"))
    if not made:
        settings = [f"{block}.model={base}" for block in ("defaults", "solver", "proposer")]
        settings += [
            f"defaults.learner.lora.rank={phase.rank}",
            f"warmup.data={data}",
            "warmup.epochs=1",
            f"warmup.batch={phase.batch}",
            f"warmup.lr={phase.lr}",
        ]
        if ranks > 1:
            settings += ["defaults.learner.kind=deepspeed", f"defaults.learner.ranks={ranks}"]
        role = [] if phase.role == "all" else ["--role", phase.role]
        command = [sys.executable, "-m", "launch.main", "warmup", "--config", "english", *settings, *role]
        subprocess.run([*command, "--out", str(out)], cwd=ROOT, check=True)
    return out


def factors(before: torch.Tensor, after: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The change of a weight as two factors, and the share of its norm that they lose."""
    change = after.float() - before.float()
    left, sizes, right = torch.linalg.svd(change, full_matrices=False)
    roots = sizes[:rank].sqrt()
    up = (left[:, :rank] * roots).bfloat16()
    down = (roots[:, None] * right[:rank]).bfloat16()
    lost = (up.float() @ down.float() - change).norm() / change.norm()
    return up, down, float(lost)


def main() -> None:
    """Teach, and write the adapter."""
    parser = argparse.ArgumentParser(description="Make a start policy of the English world.")
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--work", type=Path, required=True, help="a folder for the warm starts")
    parser.add_argument("--ranks", type=int, default=1, help="processes that train")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    start = KINDS[args.kind]
    base = BASE
    for number, phase in enumerate(start.phases, 1):
        base = str(taught(phase, base, args.work / f"{args.kind}-{number}", args.ranks))
    folder = Path(base)
    before = load_file(models.folder(BASE, "the base") / models.WEIGHTS)
    after = load_file(folder / models.WEIGHTS)
    matrices: dict[str, torch.Tensor] = {}
    worst = 0.0
    for name, weight in before.items():
        if torch.equal(weight.float(), after[name].float()):
            continue
        up, down, lost = factors(weight, after[name], start.rank)
        matrices[name + UP] = up.contiguous()
        matrices[name + DOWN] = down.contiguous()
        worst = max(worst, lost)
    STARTS.mkdir(exist_ok=True)
    path = STARTS / f"{args.kind}.safetensors"
    spoken = {name: str(value) for name, value in protocols.get("english").mark.items()}
    save_file(matrices, path, {"base": BASE, **spoken})
    size = path.stat().st_size / 1e6
    print(
        f"{path.name}: {size:.1f} MB, {len(matrices) // 2} weights, at most {worst:.2%} of a change lost; sha256 {digest(path)}"
    )


if __name__ == "__main__":
    main()
