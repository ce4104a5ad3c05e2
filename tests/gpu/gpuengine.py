"""The embedded engine on a GPU: its text against the CPU's and transformers', and its speed against `generate`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from ssp.engines import Generation, Sampling
from ssp.engines.torch_engine import TorchEngine

PROMPT, TURNS, NEW, SHOWN = 128, 3, 32, 128
"""Tokens of an episode: its prompt, what each of its turns writes, and reads after that."""
CLOSE = 1e-3
"""Nats by which log-probs in float32 may differ between devices; two tokens that are nearer than that may change places."""


def greedy(folder: Path, dry: bool) -> dict[str, Any]:
    """64 prompts of random words, 48 tokens each: float32 and bfloat16 there against float32 on the CPU, and transformers'
    log-probs of the text."""
    place = "cpu" if dry else "cuda"
    engine = TorchEngine(folder, "float32", device="cpu")
    rng, vocab = np.random.default_rng(0), engine.rows.shape.vocab
    prompts = [rng.integers(0, vocab, size).tolist() for size in rng.integers(4, 40 if dry else 200, 4 if dry else 64)]

    def said(engine: TorchEngine) -> list[Generation]:
        return engine.step(
            engine.open(list(range(len(prompts)))), [[*p] for p in prompts], Sampling(0.0, 8 if dry else 48)
        )

    here = said(engine)
    row: dict[str, Any] = {"prompts": len(prompts), "missed": []}
    for kind in ("float32", "bfloat16"):
        there = said(TorchEngine(folder, kind, device=place))
        pairs = list(zip(here, there, strict=True))
        row[f"same_{kind}"] = sum(a.ids == b.ids for a, b in pairs)
        row[f"apart_{kind}"] = max(apart(a, b) for a, b in pairs)
        row[f"mean_apart_{kind}"] = float(np.mean([apart(a, b) for a, b in pairs]))
        if kind == "float32":
            row["transformers_apart"] = forward(folder, place, prompts, there)
    row["missed"] += [f"{name} <= {CLOSE}" for name in ("apart_float32", "transformers_apart") if row[name] > CLOSE]
    return row


def apart(one: Generation, other: Generation) -> float:
    """The largest difference of log-probs up to and with the first token that differs: there both took their best."""
    same = next((i for i, (a, b) in enumerate(zip(one.ids, other.ids, strict=False)) if a != b), len(one.ids) - 1)
    return float(np.abs(np.array(one.logprobs[: same + 1]) - np.array(other.logprobs[: same + 1])).max())


@torch.inference_mode()
def forward(folder: Path, place: str, prompts: list[list[int]], said: list[Generation]) -> float:
    """The largest difference to log-probs of a full forward of transformers."""
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(place).eval()
    worst = 0.0
    for prompt, one in zip(prompts, said, strict=True):
        logits = net(torch.tensor([prompt + one.ids], device=place)).logits[0, len(prompt) - 1 : -1].float()
        found = torch.log_softmax(logits, -1).gather(1, torch.tensor(one.ids, device=place)[:, None])[:, 0]
        worst = max(worst, float((found.cpu() - torch.tensor(one.logprobs)).abs().max()))
    return worst


def speed(folder: Path, dry: bool) -> dict[str, Any]:
    """Sampled tokens a second over episodes of three turns in bfloat16, of the engine and of transformers, which reads the
    whole history in each turn; and milliseconds of one of the engine's tokens, for all its rows."""
    place, row = "cpu" if dry else "cuda", dict[str, Any]()
    engine = TorchEngine(folder, "float32" if dry else "bfloat16", device=place)
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32 if dry else torch.bfloat16).to(place).eval()
    rng = np.random.default_rng(0)

    def words(rows: int, length: int) -> list[list[int]]:
        drawn: list[list[int]] = rng.integers(5, engine.rows.shape.vocab, (rows, length)).tolist()
        return drawn

    def ours(episodes: int) -> None:
        slots, pending = engine.open(list(range(episodes))), words(episodes, PROMPT)
        for _ in range(TURNS):
            engine.step(slots, pending, Sampling(1.0, NEW))
            pending = words(episodes, SHOWN)
        engine.close(slots)

    @torch.inference_mode()
    def theirs(episodes: int) -> None:
        ids = torch.tensor(words(episodes, PROMPT), device=place)
        more = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": True, "top_k": 0, "pad_token_id": 0}
        for _ in range(TURNS):
            ids = net.generate(ids, attention_mask=torch.ones_like(ids), **more)
            ids = torch.cat([ids, torch.tensor(words(episodes, SHOWN), device=place)], 1)

    for episodes in (2, 4) if dry else (32, 256):
        sampled, seconds = episodes * TURNS * NEW, best(ours, episodes)
        row[f"tokens_per_second_{episodes}"] = sampled / seconds
        row[f"ms_a_token_{episodes}"] = 1e3 * seconds / (TURNS * NEW)
        row[f"transformers_{episodes}"] = sampled / best(theirs, episodes)
    return {**row, "missed": []}


def best(play: Callable[[int], None], episodes: int) -> float:
    """Seconds, the best of two after one that warms up."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        play(episodes)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return min(taken[1:])
