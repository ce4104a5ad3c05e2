"""What only a GPU can show, in one command: speed, memory, DeepSpeed and weight transfer on one CUDA machine.

python tests/gpu/check.py            # a GPU of 80 GB, 64 GB of host memory, 30 GB of disk, 16 GB of /dev/shm
python tests/gpu/check.py --dry     # the same parts with a tiny model on a CPU: tests this script, measures nothing

**Not yet run on a GPU.** Models have the shapes of Qwen2.5-0.5B and 3B and random weights. Parts, each in a process of
its own, so that the failure of one is a row and not the end:

learner-0.5B, learner-3B   torch, bfloat16, packing, checkpointing, micro-batches of 8k tokens: tokens/s, MFU (the
operations of `ssp.learning.figures` against the matrix rate measured here; recomputation does not count) and peak
memory against the memory planner's zero-1, zero-3             DeepSpeed alone on the GPU: one update, against torch's
vllm                       tokens/s of the vLLM engine, where vLLM is installed (the embedded engine is for CPUs)
object_store               seconds from the learner's arrays to tensors in another process, against plain copies

Prints a line of JSON a part, then a table. Exits 1 when a part failed or a target was missed, and says which.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

PARTS = ("learner-0.5B", "learner-3B", "zero-1", "zero-3", "vllm", "object_store")
SECONDS = 1200
MARK = "ROW "


def main() -> int:
    """Run the parts, print their rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dry", action="store_true", help="a tiny model, on a CPU, without targets")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", type=Path, help="where models are made and kept (default: a temporary folder)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        import gpuparts

        print(MARK + json.dumps(gpuparts.run(options.part, options.folder, options.dry)), flush=True)
        return 0
    if not options.dry:
        import torch

        if not torch.cuda.is_available():
            print("no CUDA GPU here; --dry runs the same parts with a tiny model on a CPU", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory(prefix="ssp-gpu-") as made:
        folder = options.folder or Path(made)
        rows = []
        for part in options.parts:
            rows.append({"part": part, **apart(part, folder, options.dry)})
            print(json.dumps(rows[-1]), flush=True)
    return table(rows)


def apart(part: str, folder: Path, dry: bool) -> dict[str, Any]:
    """One part in a process group of its own, which is gone afterwards."""
    if part == "vllm" and importlib.util.find_spec("vllm") is None:
        return {"not_run": "vllm is not installed"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"CUDA_VISIBLE_DEVICES": ""} if dry else {})}
    command = [sys.executable, __file__, "--part", part, "--folder", str(folder), *(["--dry"] if dry else [])]
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = child.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {SECONDS} s"}
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
    found = [line.removeprefix(MARK) for line in said.splitlines() if line.startswith(MARK)]
    if found:
        row: dict[str, Any] = json.loads(found[-1])
        return row
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return {"failed": lines[-1][:200] if lines else f"exit code {child.returncode}"}


def table(rows: list[dict[str, Any]]) -> int:
    """Print one line a part; 1 when one failed or missed its target."""
    print(f"\n{'part':14} {'verdict':8} figures")
    for row in rows:
        verdict = next((name for name in ("failed", "not_run", "missed") if row.get(name)), "ok")
        hidden = ("part", "missed", "failed", "not_run")
        figures = [f"{name} {shown(value)}" for name, value in row.items() if name not in hidden]
        said = row.get(verdict) or ""
        text = "; ".join(said) if isinstance(said, list) else said
        print(f"{row['part']:14} {verdict:8} {', '.join([*([text] if text else []), *figures])}")
    bad = [row["part"] for row in rows if row.get("failed") or row.get("missed")]
    if bad:
        print(f"failed, or missed a target: {', '.join(bad)}")
    return 1 if bad else 0


def shown(value: Any) -> str:
    """A figure, short."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
