"""The cold start's training: curriculum, then the mix, with Muon and AdamW, until the gate.

Owns batches, the schedule, the gate and the loop. Promises the same weights for the same seed on one thread, a loss on
policy-written tokens only, and names permuted anew for every sample (without it the model memorises its worlds).
Refuses to know files and caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt
import torch
from transformers import Qwen2ForCausalLM

from ssp.base.seeds import derive, generator
from ssp.config.schema import ColdStartConfig
from ssp.game.world import World
from ssp.game.world.vocabulary import FIRST_NAME_ID, NAME_COUNT, VOCABULARY
from ssp.learning.coldstart import model as policy
from ssp.learning.coldstart import traces
from ssp.learning.coldstart.gate import Examiner
from ssp.learning.coldstart.traces import Trace
from ssp.learning.supervised import fit, nll

STEPS = 1200
"""Length of the schedule; the gate may end it early, the cap in CPU seconds too."""
CURRICULUM_STEPS = 150
WARMUP = 50
FLOOR = 0.1
BATCH_TOKENS = 4096
WINDOW = 512
"""Samples that are sorted by length together; batches are cut from a window, then shuffled."""
CURRICULUM_TRACES, MIX_TRACES = 3000, 9500
MUON_LR, MUON_MOMENTUM = 0.02, 0.95
ADAMW_LR = 4e-3
GATE_FROM, GATE_EVERY, GATE_QUESTIONS = 800, 50, 200
COOL_DOWN = 150
"""Steps from the first pass of the gate to the end, over which the rate falls to the floor."""
CAP_SHARE = 0.85
"""Share of the time cap after which the end is begun, gate or not; the rest of the time is for the falling rate."""

_IDS = {word: i for i, word in enumerate(VOCABULARY)}

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Sample:
    """`ids [T]` and `mask [T]`, true where a policy wrote."""

    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Trained:
    """`accuracy`: held-out, by `Examiner.accuracy`. `capped`: the time cap began its end. `passed`: an exam passed."""

    model: Qwen2ForCausalLM
    steps: int
    seconds: float
    accuracy: dict[str, float]
    capped: bool
    passed: bool


def sample_of(trace: Trace) -> Sample:
    """Ids and mask of a trace; each word is one token."""
    words = [(_IDS[word], wrote) for text, wrote in trace.pieces for word in text.split()]
    return Sample(np.array([i for i, _ in words]), np.array([wrote for _, wrote in words]))


def batches(samples: Sequence[Sample], rng: np.random.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless (ids [N, T], mask [N, T]), at most BATCH_TOKENS padded tokens each, names permuted a sample."""
    while True:
        order = rng.permutation(len(samples))
        for first in range(0, len(order), WINDOW):
            window = sorted(order[first : first + WINDOW], key=lambda i: len(samples[i].ids))
            groups = _cut([samples[i] for i in window])
            for i in rng.permutation(len(groups)):
                yield _pad(groups[i], rng)


def _cut(samples: Sequence[Sample]) -> list[list[Sample]]:
    groups: list[list[Sample]] = [[]]
    for sample in samples:  # ascending length: the newest is the longest
        if groups[-1] and (len(groups[-1]) + 1) * len(sample.ids) > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(sample)
    return groups


def _pad(group: Sequence[Sample], rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(sample.ids) for sample in group)
    ids = np.zeros((len(group), longest), dtype=np.int64)
    mask = np.zeros((len(group), longest), dtype=bool)
    fixed = np.arange(FIRST_NAME_ID)
    for row, sample in enumerate(group):
        renamed = np.concatenate([fixed, FIRST_NAME_ID + rng.permutation(NAME_COUNT)])
        ids[row, : len(sample.ids)] = renamed[sample.ids]
        mask[row, : len(sample.ids)] = sample.mask
    return torch.from_numpy(ids), torch.from_numpy(mask)


def optimizers(model: Qwen2ForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices; AdamW for the rest."""
    hidden = [w for name, w in model.named_parameters() if w.ndim == 2 and "embed" not in name]
    rest = [w for name, w in model.named_parameters() if w.ndim != 2 or "embed" in name]
    muon = torch.optim.Muon(hidden, lr=MUON_LR, momentum=MUON_MOMENTUM, weight_decay=0.0)
    adamw = torch.optim.AdamW(rest, lr=ADAMW_LR, betas=(0.9, 0.95), weight_decay=0.0)
    return [muon, adamw]


def rate(step: int, last: int, from_step: int | None) -> float:
    """Share of the full learning rate: warm-up, linear decay to FLOOR at STEPS, or at `last` from `from_step` on."""
    decay = 1.0 - (1.0 - FLOOR) * step / STEPS
    if from_step is not None and last > from_step:
        start = 1.0 - (1.0 - FLOOR) * from_step / STEPS
        decay = start + (FLOOR - start) * (step - from_step) / (last - from_step)
    return min((step + 1) / WARMUP, 1.0) * max(decay, FLOOR)


def train(cfg: ColdStartConfig, gates: Mapping[str, float], progress: Progress | None = None) -> Trained:
    """Train from first weights to the `gates` (accuracies by hops), the end of the schedule or about `cfg.max_seconds`.

    Runs on one torch thread, whatever the process has set: faster at this size, and the same weights every time.
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
    streams = _streams(cfg.seed)
    model = policy.build(derive(cfg.seed, "coldstart", "model"))
    examiner = Examiner(model.config.to_dict(), World(derive(cfg.seed, "coldstart", "gate")), cfg.seed)
    last, cooling, capped = STEPS, None, False
    work = ([nll(model, *next(streams[step >= CURRICULUM_STEPS]))] for step in count())
    losses = fit(model, optimizers(model), work, lambda peak, step: peak * rate(step, last, cooling))
    for step, loss in enumerate(losses, 1):
        if cooling is None and step >= GATE_FROM and step % GATE_EVERY == 0 and _passes(_exam(examiner, model), gates):
            cooling, last = step, min(step + COOL_DOWN, STEPS)
        spent = time.process_time() - began
        if cooling is None and spent > CAP_SHARE * cfg.max_seconds:
            cooling, last, capped = step, min(step + int(step * (1 - CAP_SHARE)), STEPS), True
        if step % 10 == 0:
            tell(min(max(step / last, spent / cfg.max_seconds), 1.0), f"cold start: step {step}, loss {loss:.3f}")
        if step >= last:
            break
    accuracy = _exam(examiner, model)
    passed = _passes(accuracy, gates) or (cooling is not None and not capped)
    return Trained(model, step, time.process_time() - began, accuracy, capped, passed)


def _streams(seed: int) -> tuple[Iterator[tuple[torch.Tensor, torch.Tensor]], ...]:
    """Batches of the curriculum and of the mix."""
    makers = traces.makers(seed)
    easy = [sample_of(trace) for trace in traces.curriculum(makers, CURRICULUM_TRACES)]
    mixed = [sample_of(trace) for trace in traces.mixture(makers, MIX_TRACES)]
    return tuple(
        batches(samples, generator(seed, "coldstart", name)) for name, samples in (("easy", easy), ("mix", mixed))
    )


def _exam(examiner: Examiner, model: Qwen2ForCausalLM) -> dict[str, float]:
    examiner.load({name: weight.detach().numpy() for name, weight in model.named_parameters()})
    return examiner.accuracy(GATE_QUESTIONS)


def _passes(accuracy: dict[str, float], gates: Mapping[str, float]) -> bool:
    return all(accuracy[f"accuracy_{hops}"] >= gate for hops, gate in gates.items())
