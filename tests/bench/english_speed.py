"""The embedded engine against transformers.generate and vLLM's CPU build on SmolLM2-135M: 32 concurrent three-turn episodes.

    ssp download smollm2-135m; python tests/bench/english_speed.py

Work of one round: --groups prompts of 144 tokens, --episodes episodes in all, each three turns of 32 new tokens with 128
observation tokens between two turns, at temperature 1; the same prompts and lengths for all. Each arm is a process of one
thread; they take turns (A B C A B C ...), so that all meet the same machine. transformers keeps its KV cache from turn to turn,
as do the others (vLLM finds it as a prefix, in 1 GB instead of the 256 MB that ours takes on a CPU); a prompt that several
episodes share is read once by ours and vLLM. ours and vLLM give log-probs as well.

Prints one line `RESULT {json}`: CPU seconds and tokens a CPU second by arm (median, lowest, highest), and what each takes of the
time of ours, by pair.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

ARMS = ("ours", "transformers", "vllm")
PROMPT, TURNS, NEW, SHOWN = 144, 3, 32, 128
Ids = list[list[int]]
Play = Callable[[Ids, list[Ids], int], None]
"""Plays the prompts, with what is shown after each turn but the last, from a seed."""


def embedded(folder: Path, dtype: str) -> Play:
    from ssp.engines.torch_engine import TorchEngine

    return stepped(TorchEngine(folder, dtype))


def vllm(folder: Path, dtype: str) -> Play:
    from ssp.config.role import EngineConfig
    from ssp.engines.vllm.engine import VllmEngine

    return stepped(VllmEngine(folder, EngineConfig(kind="vllm", dtype=dtype)))


def stepped(engine: Any) -> Play:
    """By our interface of engines."""
    from ssp.engines import Sampling

    def play(pending: Ids, shown: list[Ids], seed: int) -> None:
        slots = engine.open([seed * len(pending) + i for i in range(len(pending))])
        for following in [*shown, None]:
            turns = engine.step(slots, pending, Sampling(1.0, NEW, ()))
            assert all(len(turn.ids) == NEW for turn in turns)
            pending = following or []
        engine.close(slots)

    return play


def transformers(folder: Path, dtype: str) -> Play:
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    net = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    net.generation_config.eos_token_id = None

    def play(pending: Ids, shown: list[Ids], seed: int) -> None:
        torch.manual_seed(seed)
        ids, cache = torch.tensor(pending), DynamicCache(config=net.config)
        given = {"max_new_tokens": NEW, "do_sample": True, "top_k": 0, "pad_token_id": 0, "past_key_values": cache}
        for following in [*shown, None]:
            before = ids.shape[1]
            ids = net.generate(ids, attention_mask=torch.ones_like(ids), **given)
            assert ids.shape[1] == before + NEW
            if following is not None:
                ids = torch.cat([ids, torch.tensor(following)], 1)

    return play


def serve(arm: str, folder: Path, dtype: str, episodes: int, groups: int) -> None:
    """Play a round for each seed that comes in, and tell its seconds."""
    import torch

    torch.set_num_threads(1)
    play = {"ours": embedded, "transformers": transformers, "vllm": vllm}[arm](folder, dtype)
    print("ready", flush=True)
    for line in sys.stdin:
        rng = np.random.default_rng(int(line))
        drawn: Ids = rng.integers(20, 49000, (groups, PROMPT)).tolist()
        prompts = [drawn[i * groups // episodes] for i in range(episodes)]
        shown: list[Ids] = rng.integers(20, 49000, (TURNS - 1, episodes, SHOWN)).tolist()
        wall, cpu = time.perf_counter(), time.process_time()
        play(prompts, shown, int(line))
        print("TOOK", time.perf_counter() - wall, time.process_time() - cpu, flush=True)


class Arm:
    """A process that plays rounds."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, __file__, "--serve", name, *words]
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._read("ready")

    def _read(self, word: str) -> list[float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return [float(part) for part in line.split()[1:]]
        raise SystemExit(f"the process of {self._process.args} ended ({self._process.wait()})")

    def round(self, seed: int) -> tuple[float, float]:
        """Wall and CPU seconds."""
        assert self._process.stdin is not None
        print(seed, file=self._process.stdin, flush=True)
        wall, cpu = self._read("TOOK")
        return wall, cpu

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def spread(values: Sequence[float]) -> list[float]:
    return [round(x, 2) for x in (statistics.median(values), min(values), max(values))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a downloaded model's name")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=ARMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    from ssp.base import models

    folder = models.folder(args.model, "--model").absolute()
    if args.serve:
        return serve(args.serve, folder, args.dtype, args.episodes, args.groups)
    words = ["--model", str(folder), "--dtype", args.dtype]
    words += ["--episodes", str(args.episodes), "--groups", str(args.groups)]
    arms = {name: Arm(name, words) for name in args.arms}
    try:
        took = []
        for seed in range(args.rounds + 1):
            took.append({name: arm.round(seed) for name, arm in arms.items()})
            print(seed, took[-1], file=sys.stderr, flush=True)
    finally:
        for arm in arms.values():
            arm.end()
    del took[0]  # the first round is for getting warm
    tokens, first = args.episodes * TURNS * NEW, args.arms[0]
    figures: dict[str, Any] = {**vars(args), "model": folder.name, "tokens": tokens}
    del figures["serve"]
    for name in args.arms:
        cpu = [pair[name][1] for pair in took]
        figures[name] = {
            "wall_s": spread([pair[name][0] for pair in took]),
            "cpu_s": spread(cpu),
            "tokens_per_cpu_s": spread([tokens / seconds for seconds in cpu]),
            f"cpu_of_{first}": spread([pair[name][1] / pair[first][1] for pair in took]),
        }
    print("RESULT " + json.dumps(figures))


if __name__ == "__main__":
    main()
