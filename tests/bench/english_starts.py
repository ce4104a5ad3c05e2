"""Make the start policies of `configs/english.yaml`, which ssp/extras/english/starts ships as adapters of SmolLM2-135M-Instruct.

    bash launch/setup.sh english; ssp download smollm2-135m
    python tests/bench/english_starts.py solver --work DIR      # one core, float32: ten minutes
    python tests/bench/english_starts.py teacher --work DIR     # about an hour and a half; the same command goes on where it was stopped

Each is a warm start (`ssp warmup`) of low-rank adapters on the world's own traces: the teacher on those of all roles, the
solver on a few of its own, so that it knows the form and little else. What they changed is written as two factors for each weight,
in bfloat16, with the share of the change that this loses. Prints the SHA-256 that ssp/base/published.json names.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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
LR = 1e-3


@dataclass(frozen=True)
class Start:
    """How one is taught: rank of its adapters, the role whose traces it learns, how many of them (0: all), passes, and traces an
    update."""

    rank: int
    role: str
    traces: int
    epochs: int
    batch: int


KINDS = {"teacher": Start(16, "all", 0, 1, 4), "solver": Start(8, "solver", 128, 1, 4)}


def taught(start: Start, name: str, work: Path) -> Path:
    """The folder of the policy after its warm start, made where it is not whole yet."""
    rows = Path(files.resolve("world:english", "traces")).read_text(encoding="utf-8").splitlines()
    mine = [row for row in rows if start.role in ("all", json.loads(row)["role"])]
    data = work / f"{name}.jsonl"
    data.write_text("\n".join(mine[: start.traces or None]) + "\n", encoding="utf-8")
    out = work / name
    made = out.is_dir() and "warmup" not in json.loads((out / "ssp.json").read_text(encoding="utf-8"))
    if not made:
        settings = [
            f"defaults.model={BASE}",
            f"solver.model={BASE}",
            f"proposer.model={BASE}",
            f"defaults.learner.lora.rank={start.rank}",
            f"warmup.data={data}",
            f"warmup.epochs={start.epochs}",
            f"warmup.batch={start.batch}",
            f"warmup.lr={LR}",
        ]
        role = [] if start.role == "all" else ["--role", start.role]
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
    parser.add_argument("--work", type=Path, required=True, help="a folder for the warm start")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    start = KINDS[args.kind]
    folder = taught(start, args.kind, args.work)
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
