"""Does the memory plan hold? A learner and an engine of random weights, each in a process of its own, against the plan.

    OMP_NUM_THREADS=2 python tests/bench/process_memory.py [--models 134k 135M 0.5B] [--budget 2048] [--write]

The learner makes two updates, of 64 tokens and of two micro-batches of `--budget`, publishes and saves after each; the
engine takes new weights and plays `--episodes` episodes of full length. Measured is the most memory that no file backs
(RssAnon and RssShmem of /proc, looked at every 5 ms). `--write` keeps the figures in tests/memory/measured.json, to which a
test holds the plan.
Needs 20 GB of free memory for 0.5B.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
FILE = ROOT / "tests" / "memory" / "measured.json"
SHAPES: dict[str, dict[str, Any]] = {
    "134k": {"hidden": 64, "layers": 4, "heads": 4, "kv": 2, "mlp": 128, "vocab": 550, "family": "qwen2"},
    "135M": {"hidden": 576, "layers": 30, "heads": 9, "kv": 3, "mlp": 1536, "vocab": 49_152, "family": "llama"},
    "0.5B": {"hidden": 896, "layers": 24, "heads": 14, "kv": 2, "mlp": 4864, "vocab": 151_936, "family": "qwen2"},
}
WORKER = 30
"""MB of a Ray worker before our code, which a process here is not: in a quickstart an idle learner took 311, here 280."""


def main() -> int:
    """Print a line a process: measured, planned, their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument(
        "--kinds", nargs="+", choices=("learner", "engine", "vllm"), default=["learner", "engine", "vllm"]
    )
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--budget", type=int, default=2048)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(json.loads(options.child))
    kept = json.loads(FILE.read_text()) if options.write and FILE.is_file() else []
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            make(name, folder)
            for kind in options.kinds:
                for dtype in options.dtypes:
                    asked = {"kind": kind, "model": name, "dtype": dtype, **amount(kind, options)}
                    asked["measured"] = measure(asked, folder)
                    planned = plan(asked)
                    print(f"{json.dumps(asked)} planned {planned}, {planned / asked['measured']:.2f}", flush=True)
                    same = {key: value for key, value in asked.items() if key != "measured"}
                    kept = [row for row in kept if not same.items() <= row.items()] + [asked]
    if options.write:
        FILE.write_text("[\n" + ",\n".join(f"  {json.dumps(row)}" for row in kept) + "\n]\n")
    return 0


def amount(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """How much work the process gets."""
    if kind != "learner":
        return {"episodes": options.episodes, "tokens": 960}
    return {"tokens": options.budget, "checkpointing": options.checkpointing}


def shape(name: str) -> Any:
    """The planner's picture of a model here."""
    from ssp.base.shape import Shape

    one = SHAPES[name]
    return Shape(
        one["layers"], one["hidden"], one["heads"], one["kv"], one["hidden"] // one["heads"], one["mlp"], one["vocab"],
        tied=True, bias=one["family"] == "qwen2",
    )  # fmt: skip


def plan(asked: dict[str, Any]) -> int:
    """MB that the planner gives to such a process, the process itself included."""
    from ssp.capacity.memory import MB, Model, Process, engine, learner
    from ssp.capacity.memory.processes import base
    from ssp.config.role import RoleConfig

    size = shape(asked["model"])
    block, model = RoleConfig(), Model(asked["model"], size.parameters, size)
    if asked["kind"] != "learner":
        block.engine, block.limits.total_tokens = settings(asked), asked["tokens"]
        process = "vllm" if block.engine.kind == "vllm" else "policy"
        needs = (*base(process), *engine.engine(model, block, asked["episodes"]).needs)
    else:
        block.learner.dtype, block.learner.token_budget = asked["dtype"], asked["tokens"]
        block.learner.checkpointing = asked["checkpointing"]
        block.limits.total_tokens = min(asked["tokens"], 512)
        needs = (*base("learner"), *learner.rank(model, [block]))
    return round(Process("one", 1, 0, needs).on_host / MB) - WORKER


def settings(asked: dict[str, Any]) -> Any:
    """Of the engine: vLLM or the embedded one."""
    from ssp.config.role import EngineConfig

    kind = "vllm" if asked["kind"] == "vllm" else "torch"
    made = EngineConfig(kind=kind, dtype=asked["dtype"], sequences=asked["episodes"])
    made.longest = asked["tokens"]
    return made


def make(name: str, folder: str) -> None:
    """A model folder of random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    one = SHAPES[name]
    config, model = (Qwen2Config, Qwen2ForCausalLM) if one["family"] == "qwen2" else (LlamaConfig, LlamaForCausalLM)
    torch.manual_seed(0)
    made: Any = model(
        config(
            vocab_size=one["vocab"], hidden_size=one["hidden"], intermediate_size=one["mlp"],
            num_hidden_layers=one["layers"], num_attention_heads=one["heads"], num_key_value_heads=one["kv"],
            max_position_embeddings=8192, tie_word_embeddings=True,
        )
    )  # fmt: skip
    made.save_pretrained(folder)


def measure(asked: dict[str, Any], folder: str) -> int:
    """MB at the peak of such a process."""
    typed = json.dumps({**asked, "folder": folder})
    done = subprocess.run([sys.executable, __file__, "--child", typed], stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.split()[-1])


def child(asked: dict[str, Any]) -> int:
    """Do the work and print the peak, in MB."""
    import ray  # noqa: F401  as every actor does

    most = [0]

    def look() -> None:
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            most[0] = max(
                most[0], sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))
            )
            time.sleep(0.005)

    threading.Thread(target=look, daemon=True).start()
    learn(asked) if asked["kind"] == "learner" else play(asked)
    print(most[0] // 1024, flush=True)
    return 0


def learn(asked: dict[str, Any]) -> None:
    """Two updates, a publication and a checkpoint after each."""
    import torch

    from ssp.config.role import LearnerConfig, RoleConfig
    from ssp.learning.batch import Batch
    from ssp.learning.learner import PolicyLearner

    block = RoleConfig(loss="ppo_clip")
    block.learner = LearnerConfig(token_budget=asked["tokens"], checkpointing=asked["checkpointing"])
    block.learner.dtype = asked["dtype"]
    found = PolicyLearner(asked["folder"], {"solver": block}, "search-r1")
    for step, tokens in enumerate((64, 2 * asked["tokens"])):  # the first one makes the moments
        row = min(tokens // 2, 512)
        rows = tokens // row
        ids = torch.randint(0, SHAPES[asked["model"]]["vocab"], (rows, row))
        mask = torch.zeros_like(ids).bool()
        mask[:, row // 2 :] = True
        batch = Batch(
            ids, mask, torch.where(mask, -8.0, 0.0), torch.arange(rows) % 2.0, torch.ones(rows).bool(),
            torch.zeros(rows).long(),
        )  # fmt: skip
        found.update({"solver": batch})
        found.backend.zero()  # as the worker does
        published = found.weights()
        del published
        found.save(
            Path(asked["folder"]) / f"checkpoint-{time.time_ns()}",
            {"role": "solver", "version": step, "incarnation": 0},
        )


def play(asked: dict[str, Any]) -> None:
    """All episodes to their last token, under the second version."""
    import numpy as np

    from ssp.engines import create
    from ssp.engines.base import Sampling
    from ssp.engines.folder import ModelFolder

    engine: Any = create(settings(asked), asked["folder"])
    if asked["kind"] == "engine":  # vLLM has its weights already, and takes those that arrive one by one
        engine.load(ModelFolder(Path(asked["folder"])).weights(), 1)
    slots = engine.open(list(range(asked["episodes"])))
    half = asked["tokens"] // 2
    ids = np.random.default_rng(0).integers(0, 300, (len(slots), half)).tolist()
    engine.step(slots, ids, Sampling(1.0, 4, ()))
    more = np.random.default_rng(1).integers(0, 300, (len(slots), asked["tokens"] - half - 16)).tolist()
    engine.step(slots, more, Sampling(1.0, 8, ()))


if __name__ == "__main__":
    sys.exit(main())
