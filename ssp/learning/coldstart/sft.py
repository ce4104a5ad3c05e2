"""The cold start's training: a small Qwen2, curriculum, then the mix, with Muon and AdamW, until it plays well enough.

The same weights for the same seed on one thread, a loss on policy-written tokens only, and names permuted anew for
every sample (without it the model memorises its worlds). The gate is measured by playing, in a world that it never
trained in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from ssp.base.episode import SOLVER, Episode, Task
from ssp.base.seeds import derive, generator
from ssp.config.role import LimitsConfig
from ssp.config.schema import ColdStartConfig
from ssp.engines.torch_engine import TorchEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, rollout
from ssp.game.world import World, tokenizer
from ssp.game.world.vocabulary import END, FIRST_NAME_ID, NAME_COUNT, PAD, VOCABULARY
from ssp.learning.coldstart import traces
from ssp.learning.coldstart.traces import Trace
from ssp.learning.supervised import fit, nll, small_model
from ssp.search import in_memory, local

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 64, 2, 4, 2, 32, 128
ROPE_BASE, INIT_STD = 10_000.0, 0.05
OFFSETS = (1, 2, 3)
"""Heads 0, 1, 2 of layer 0 start out reading the token this many places back."""
PAIRS = 6
AMPLITUDE = 3.0 * HEAD_DIM**0.25
"""Of the bias in each used pair: the logit at distance D is then 9 · Σ cos(f · (D - offset))."""
CONTENT_SCALE = 0.1

STEPS = 1200
"""Length of the schedule; the gate may end it early, the cap in CPU seconds too."""
CURRICULUM_STEPS = 150
WARMUP, FLOOR = 50, 0.1
BATCH_TOKENS = 4096
WINDOW = 512
"""Samples that are sorted by length together; batches are cut from a window, then shuffled."""
CURRICULUM_TRACES, MIX_TRACES = 3000, 9500
MUON_LR, MUON_MOMENTUM, ADAMW_LR = 0.02, 0.95, 4e-3
GATE_FROM, GATE_EVERY, GATE_QUESTIONS = 800, 50, 200
COOL_DOWN = 150
"""Steps from the first pass of the gate to the end, over which the rate falls to the floor."""
CAP_SHARE = 0.85
"""Share of the time cap after which the end is begun, gate or not; the rest of the time is for the falling rate."""
CORPUS, TOPK = "exam", 3

_IDS = {word: i for i, word in enumerate(VOCABULARY)}

Progress = Callable[[float, str], None]
Trained = tuple[Qwen2ForCausalLM, dict[str, Any]]
Sample = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]
"""Ids [T] and mask [T], true where a policy wrote."""


def build(seed: int) -> Qwen2ForCausalLM:
    """A model (2 layers, hidden 64, 134 k parameters) with weights drawn from `seed`, whose heads of layer 0 attend to
    fixed offsets from the first step; without that the two-layer look-up circuit does not form in time.

    With b_k = u and b_q = R(-offset) u, R the RoPE rotation, the query at place m meets the key at n with
    u · R(m - offset - n) u, largest at n = m - offset.
    """
    model = small_model(
        len(VOCABULARY),
        VOCABULARY.index(END),
        INIT_STD,
        (seed, "init"),
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        use_sliding_window=False,
        pad_token_id=VOCABULARY.index(PAD),
    )
    attention, half = model.model.layers[0].self_attn, HEAD_DIM // 2
    frequencies = ROPE_BASE ** (-torch.arange(PAIRS, dtype=torch.float64) * 2 / HEAD_DIM)
    with torch.no_grad():
        for head, offset in enumerate(OFFSETS):
            rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
            attention.q_proj.weight[rows] *= CONTENT_SCALE
            bias = attention.q_proj.bias[rows]
            bias[:PAIRS] = (AMPLITUDE * torch.cos(-offset * frequencies)).float()
            bias[half : half + PAIRS] = (AMPLITUDE * torch.sin(-offset * frequencies)).float()
        for kv in sorted({head * KV_HEADS // HEADS for head in range(len(OFFSETS))}):
            attention.k_proj.weight[kv * HEAD_DIM : (kv + 1) * HEAD_DIM] *= CONTENT_SCALE
            attention.k_proj.bias[kv * HEAD_DIM : kv * HEAD_DIM + PAIRS] = AMPLITUDE
    return model


class Examiner:
    """Plays in `world` with one set of weights after another. `config`: the model's HF configuration."""

    def __init__(self, config: Mapping[str, Any], world: World, seed: int) -> None:
        self.world, self.seed, self.engine = world, seed, TorchEngine(config)
        self.renderer = Renderer(protocols.get("mini"), tokenizer.build())
        self._search = local(CORPUS, in_memory(world.documents()))

    def accuracy(self, model: torch.nn.Module, questions: int) -> dict[str, float]:
        """`accuracy_<k>hop` of `model`: share of right answers among `questions` questions of k hops, one attempt
        each."""
        weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
        self.engine.load(weights, self.engine.version + 1)
        result: dict[str, float] = {}
        for k in (1, 2, 3):
            asked = self.world.questions(k, questions, derive(self.seed, "exam"))
            episodes = self.play(SOLVER, [{"question": question.text} for question in asked])
            right = [episode.final == question.answer for episode, question in zip(episodes, asked, strict=True)]
            result[f"accuracy_{k}hop"] = float(np.mean(right))
        return result

    def play(self, role: str, fields: list[dict[str, str]]) -> list[Episode]:
        """One episode of `role` for each prompt's fields."""
        tasks = [
            Task(f"exam/{role}/{i}", f"exam/{role}/{i}", role, 0, derive(self.seed, "exam", role, i), field, CORPUS)
            for i, field in enumerate(fields)
        ]
        return rollout(self.engine, self.renderer, self._search, tasks, Settings(LimitsConfig(), 1.0, TOPK))[0]


def sample_of(trace: Trace) -> Sample:
    """Ids and mask of a trace; each word is one token."""
    words = [(_IDS[word], wrote) for text, wrote in trace.pieces for word in text.split()]
    return np.array([i for i, _ in words]), np.array([wrote for _, wrote in words])


def batches(samples: Sequence[Sample], rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (ids [N, T], mask [N, T]), at most BATCH_TOKENS padded tokens each, names permuted a sample."""
    while True:
        order = rng.permutation(len(samples))
        for first in range(0, len(order), WINDOW):
            groups: list[list[Sample]] = [[]]
            window = order[first : first + WINDOW]
            for i in sorted(window, key=lambda i: len(samples[i][0])):  # the newest is the longest
                if groups[-1] and (len(groups[-1]) + 1) * len(samples[i][0]) > BATCH_TOKENS:
                    groups.append([])
                groups[-1].append(samples[i])
            for i in rng.permutation(len(groups)):
                yield _pad(groups[i], rng)


def _pad(group: Sequence[Sample], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    shape = len(group), max(len(ids) for ids, _ in group)
    out, masks = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    for row, (ids, mask) in enumerate(group):
        renamed = np.concatenate([np.arange(FIRST_NAME_ID), FIRST_NAME_ID + rng.permutation(NAME_COUNT)])
        out[row, : len(ids)], masks[row, : len(ids)] = renamed[ids], mask
    return torch.from_numpy(out), torch.from_numpy(masks)


def rate(step: int, last: int, from_step: int | None) -> float:
    """Share of the full learning rate: warm-up, linear decay to FLOOR at STEPS, or at `last` from `from_step` on."""
    decay = 1.0 - (1.0 - FLOOR) * step / STEPS
    if from_step is not None and last > from_step:
        start = 1.0 - (1.0 - FLOOR) * from_step / STEPS
        decay = start + (FLOOR - start) * (step - from_step) / (last - from_step)
    return min((step + 1) / WARMUP, 1.0) * max(decay, FLOOR)


def train(cfg: ColdStartConfig, gates: Mapping[str, float], progress: Progress | None = None) -> Trained:
    """Train from first weights to the `gates` (accuracies by hops), the end of the schedule or about `cfg.max_seconds`.

    The model, and what is recorded of it: `held_out`, by `Examiner.accuracy`; `capped`, whether the time cap began its
    end; `gate_passed`, whether an exam passed. Runs on one torch thread, whatever the process has set: faster at this
    size, and the same weights every time.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _train(cfg, gates, progress or (lambda done, message: None))
    finally:
        torch.set_num_threads(threads)


def _train(cfg: ColdStartConfig, gates: Mapping[str, float], tell: Progress) -> Trained:
    began = time.process_time()
    tell(0.0, "cold start: making traces")
    makers = traces.makers(cfg.seed)
    easy = traces.curriculum(makers, CURRICULUM_TRACES)
    streams = [
        batches([sample_of(trace) for trace in made], generator(cfg.seed, "coldstart", name))
        for name, made in (("easy", easy), ("mix", traces.mixture(makers, MIX_TRACES)))
    ]
    model = build(derive(cfg.seed, "coldstart", "model"))
    hidden = [w for name, w in model.named_parameters() if w.ndim == 2 and "embed" not in name]
    rest = [w for name, w in model.named_parameters() if w.ndim != 2 or "embed" in name]
    optimizers = [
        torch.optim.Muon(hidden, lr=MUON_LR, momentum=MUON_MOMENTUM, weight_decay=0.0),
        torch.optim.AdamW(rest, lr=ADAMW_LR, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    examiner = Examiner(model.config.to_dict(), World(derive(cfg.seed, "coldstart", "gate")), cfg.seed)

    def passes(accuracy: dict[str, float]) -> bool:
        return all(accuracy[f"accuracy_{hops}"] >= gate for hops, gate in gates.items())

    last, cooling, capped = STEPS, None, False
    work = ([nll(model, *next(streams[step >= CURRICULUM_STEPS]))] for step in count())
    losses = fit(model, optimizers, work, lambda peak, step: peak * rate(step, last, cooling))
    for step, loss in enumerate(losses, 1):
        due = cooling is None and step >= GATE_FROM and step % GATE_EVERY == 0
        if due and passes(examiner.accuracy(model, GATE_QUESTIONS)):
            cooling, last = step, min(step + COOL_DOWN, STEPS)
        spent = time.process_time() - began
        if cooling is None and spent > CAP_SHARE * cfg.max_seconds:
            cooling, last, capped = step, min(step + int(step * (1 - CAP_SHARE)), STEPS), True
        if step % 10 == 0:
            tell(min(max(step / last, spent / cfg.max_seconds), 1.0), f"cold start: step {step}, loss {loss:.3f}")
        if step >= last:
            break
    accuracy = examiner.accuracy(model, GATE_QUESTIONS)
    passed, spent = passes(accuracy) or (cooling is not None and not capped), time.process_time() - began
    record = {"steps": step, "cpu_seconds": round(spent, 1), "capped": capped, "gate_passed": passed}
    return model, {**record, "held_out": accuracy}
