"""The embedded engine against transformers.generate on multi-turn episodes, paired in one process, one thread.

    python tests/bench/engine_speed.py --engine torch --dtype float32

Work of one round: --groups prompts of 64 tokens, --episodes episodes in all, each three turns of 32 new tokens with 64
observation tokens between two turns; a random Qwen2 of 0.9 million weights. transformers plays it as trainers do: each turn
is one `generate` over all rows and their whole history. The two take turns (A B A B ...), so that both meet the same machine.

Prints one line `RESULT {json}`: medians of tokens and rollouts a second, by wall clock and by CPU time; the ratio of each
pair (median, lowest, highest); and the share of the machine's matrix rate, measured in between, that the engine's useful
work (each token through the weights once, no attention) comes to.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ssp.engines import Engine, Sampling  # noqa: E402
from ssp.engines.torch_engine import (
    ContinuousEngine,  # noqa: E402
    TorchEngine,  # noqa: E402
)

VOCAB, PROMPT, TURNS, NEW, SHOWN = 1024, 64, 3, 32, 64


@dataclass(frozen=True)
class Time:
    """Seconds of one round."""

    wall: float
    cpu: float


def network() -> PreTrainedModel:
    """0.9 million weights beside the embedding."""
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048}
    config = Qwen2Config(
        **sizes, **heads, tie_word_embeddings=True, eos_token_id=None, bos_token_id=None, pad_token_id=0
    )
    return Qwen2ForCausalLM(config).eval()


def words(rng: np.random.Generator, rows: int, length: int) -> list[list[int]]:
    drawn: list[list[int]] = rng.integers(10, VOCAB, (rows, length)).tolist()
    return drawn


def prompts(rng: np.random.Generator, episodes: int, groups: int) -> list[list[int]]:
    drawn = words(rng, groups, PROMPT)
    return [drawn[i * groups // episodes] for i in range(episodes)]


def ours(engine: Engine, episodes: int, groups: int, seed: int) -> None:
    """One round by the engine: keys and values stay from turn to turn."""
    rng = np.random.default_rng(seed)
    slots = engine.open(list(range(seed * episodes, (seed + 1) * episodes)))
    pending = prompts(rng, episodes, groups)
    for turn in range(TURNS):
        generations = engine.step(slots, pending, Sampling(1.0, NEW, ()))
        assert all(len(generation.ids) == NEW for generation in generations)
        if turn < TURNS - 1:
            pending = words(rng, episodes, SHOWN)
    engine.close(slots)


def theirs(net: PreTrainedModel, episodes: int, groups: int, seed: int) -> None:
    """The same round by `generate`, with the log-probs that training needs."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    ids = torch.tensor(prompts(rng, episodes, groups))
    for turn in range(TURNS):
        mask = torch.ones_like(ids)
        ids = net.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=True, top_k=0, pad_token_id=0)
        if turn < TURNS - 1:
            ids = torch.cat([ids, torch.tensor(words(rng, episodes, SHOWN))], 1)


def timed(play: Callable[[], None]) -> Time:
    wall, cpu = time.perf_counter(), time.process_time()
    play()
    return Time(time.perf_counter() - wall, time.process_time() - cpu)


def matrix_rate(dtype: torch.dtype) -> float:
    """FLOP a second of CPU time of a product of two square matrices, the best of five."""
    a, b = (torch.randn(1024, 1024).to(dtype) for _ in range(2))
    return 2 * 1024**3 / min(timed(lambda: torch.mm(a, b)).cpu for _ in range(5))


def useful(net: PreTrainedModel, episodes: int, groups: int) -> float:
    """FLOP of one round: each token once through the layers, each sampled one through the output matrix, a shared prompt
    once a group."""
    layers = sum(p.numel() for name, p in net.named_parameters() if "layers" in name and p.dim() == 2)
    head = net.get_output_embeddings().weight.numel()
    tokens = groups * PROMPT + episodes * (TURNS * NEW + (TURNS - 1) * SHOWN)
    return 2.0 * (layers * tokens + head * episodes * TURNS * NEW)


def spread(values: Sequence[float]) -> list[float]:
    return [round(x, 2) for x in (statistics.median(values), min(values), max(values))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("torch", "continuous"), default="torch")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--groups", type=int, default=32)
    parser.add_argument("--no-prefix-cache", action="store_true")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)

    net = network()
    kind = TorchEngine if args.engine == "torch" else ContinuousEngine
    with tempfile.TemporaryDirectory() as folder:
        net.save_pretrained(folder)
        engine = kind(folder, args.dtype, prefix_cache=not args.no_prefix_cache)
    theirs(net, 16, 2, 0)
    ours(engine, args.episodes, args.groups, 0)
    mine, other, rates = [], [], []
    for seed in range(1, args.pairs + 1):
        mine.append(timed(lambda seed=seed: ours(engine, args.episodes, args.groups, seed)))
        rates.append(matrix_rate(torch.float32 if args.dtype == "float32" else torch.bfloat16))
        other.append(timed(lambda seed=seed: theirs(net, args.episodes, args.groups, seed)))
    tokens, work = args.episodes * TURNS * NEW, useful(net, args.episodes, args.groups)
    figures = {
        "engine": args.engine, "dtype": args.dtype, "episodes": args.episodes, "groups": args.groups,
        "prefix_cache": not args.no_prefix_cache, "pairs": args.pairs,
        "tokens_per_s": spread([tokens / one.wall for one in mine]),
        "rollouts_per_s": spread([args.episodes / one.wall for one in mine]),
        "tokens_per_cpu_s": spread([tokens / one.cpu for one in mine]),
        "cpu_s": spread([one.cpu for one in mine]),
        "transformers_tokens_per_s": spread([tokens / one.wall for one in other]),
        "transformers_cpu_s": spread([one.cpu for one in other]),
        "ratio": spread([b.wall / a.wall for a, b in zip(mine, other, strict=True)]),
        "ratio_cpu": spread([b.cpu / a.cpu for a, b in zip(mine, other, strict=True)]),
        "matrix_gflops": round(statistics.median(rates) / 1e9, 1),
        "matrix_share": spread([work / one.cpu / rate for one, rate in zip(mine, rates, strict=True)]),
    }  # fmt: skip
    print("RESULT " + json.dumps(figures))


if __name__ == "__main__":
    main()
