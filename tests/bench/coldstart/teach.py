"""Teaches the embedded policy: a small Qwen2 from random weights, on mediocre traces (`mediocre.py`), written as a model folder.

    python tests/bench/coldstart/teach.py --seed 0 --out FOLDER

Seed 0 gives the one that is shipped (`ssp/learning/coldstart/artefact`), after two minutes; experiments start from others too.
First the easy traces, then the mix, with Muon and AdamW, until it plays well enough; names are permuted anew for every sample,
since without that the model memorises its worlds. The gate is measured by playing in a world that it never trained in. One
seed gives the same weights each time, on one torch thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPO))

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from ssp.base.episode import SOLVER, Task  # noqa: E402
from ssp.base.seeds import derive, generator  # noqa: E402
from ssp.config.role import LimitsConfig  # noqa: E402
from ssp.engines.torch_engine import TorchEngine  # noqa: E402
from ssp.game import protocols  # noqa: E402
from ssp.game.protocols.renderer import Renderer  # noqa: E402
from ssp.game.rollout import Settings, rollout  # noqa: E402
from ssp.game.world import World, tokenizer  # noqa: E402
from ssp.game.world.vocabulary import END, FIRST_NAME_ID, NAME_COUNT, PAD, VOCABULARY  # noqa: E402
from ssp.learning.tiny.policy import random_model  # noqa: E402
from ssp.record.manifest import seal  # noqa: E402
from ssp.search.shard import in_memory  # noqa: E402
from tests.bench.coldstart import mediocre  # noqa: E402
from tests.bench.coldstart.mediocre import Trace  # noqa: E402
from tests.localsearch import local  # noqa: E402

PROTOCOL = "mini"
GATES = {"accuracy_1hop": 0.88, "accuracy_2hop": 0.30, "accuracy_3hop": 0.10}
"""Held-out accuracies at temperature 1 from which on training may end."""
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 64, 2, 4, 2, 32, 128
ROPE_BASE, INIT_STD = 10_000.0, 0.05
OFFSETS = (1, 2, 3)
"""Heads 0, 1, 2 of layer 0 start out reading the token this many places back."""
PAIRS = 6
AMPLITUDE = 3.0 * HEAD_DIM**0.25
"""Of the bias in each used pair: the logit at distance D is then 9 · Σ cos(f · (D - offset))."""
CONTENT_SCALE = 0.1

STEPS = 1200
"""Length of the schedule; the gate may end it early."""
CURRICULUM_STEPS = 150
WARMUP, FLOOR = 50, 0.1
BATCH_TOKENS = 4096
WINDOW = 512
"""Samples that are sorted by length together; batches are cut from a window, then shuffled."""
CURRICULUM_TRACES, MIX_TRACES = 3000, 9500
MUON_LR, MUON_MOMENTUM, ADAMW_LR, CLIP = 0.02, 0.95, 4e-3, 1.0
GATE_FROM, GATE_EVERY, GATE_QUESTIONS = 800, 50, 200
COOL_DOWN = 150
"""Steps from the first pass of the gate to the end, over which the rate falls to the floor."""
CORPUS, TOPK = "exam", 3

_IDS = {word: i for i, word in enumerate(VOCABULARY)}

Sample = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]
"""Ids [T] and mask [T], true where a policy wrote."""


def build(seed: int) -> Qwen2ForCausalLM:
    """A model (2 layers, hidden 64, 134 k parameters) with weights drawn from `seed`, whose heads of layer 0 attend to
    fixed offsets from the first step; without that the two-layer look-up circuit does not form in time.

    With b_k = u and b_q = R(-offset) u, R the RoPE rotation, the query at place m meets the key at n with
    u · R(m - offset - n) u, largest at n = m - offset.
    """
    config = Qwen2Config(
        vocab_size=len(VOCABULARY),
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=VOCABULARY.index(END),
        pad_token_id=VOCABULARY.index(PAD),
        dtype="float32",
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        use_sliding_window=False,
    )
    config.head_dim = HEAD_DIM  # which it does not declare, though the model reads it
    model = random_model(config, INIT_STD, (seed, "init"))
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
        self.renderer = Renderer(protocols.get(PROTOCOL), tokenizer.build())
        self._search = local(CORPUS, in_memory(world.documents()))

    def accuracy(self, model: torch.nn.Module, questions: int) -> dict[str, float]:
        """`accuracy_<k>hop` of `model`: share of right answers among `questions` questions of k hops, one attempt
        each."""
        weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
        self.engine.load(weights, self.engine.version + 1)
        return {f"accuracy_{k}hop": self._share(k, questions) for k in (1, 2, 3)}

    def _share(self, k: int, questions: int) -> float:
        asked = self.world.questions(k, questions, derive(self.seed, "exam"))
        tasks = [
            Task(
                f"exam{i}", "exam", SOLVER, 0, derive(self.seed, "exam", SOLVER, i), {"question": question.text}, CORPUS
            )
            for i, question in enumerate(asked)
        ]
        episodes, _ = rollout(self.engine, self.renderer, self._search, tasks, Settings(LimitsConfig(), 1.0, TOPK))
        right = [episode.final == question.answer for episode, question in zip(episodes, asked, strict=True)]
        return float(np.mean(right))


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


def nll(model: Qwen2ForCausalLM, ids: Tensor, mask: Tensor) -> Tensor:
    """Mean -log pi, nats, of the tokens of `ids` [N, T] where `mask` [N, T] is true.

    Padding is on the right, so the causal mask is enough.
    """
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    return cross_entropy(model.lm_head(hidden[:, :-1][mask[:, 1:]]), ids[:, 1:][mask[:, 1:]])


def train(seed: int) -> tuple[Qwen2ForCausalLM, dict[str, Any]]:
    """Train from first weights to the gates, or to the end of the schedule. The model, and what is recorded of it:
    `held_out`, by `Examiner.accuracy`; `gate_passed`, whether an exam passed."""
    torch.set_num_threads(1)  # faster at this size, and the same weights every time
    makers = mediocre.makers(seed)
    easy, mix = mediocre.curriculum(makers, CURRICULUM_TRACES), mediocre.mixture(makers, MIX_TRACES)
    streams = [
        batches([sample_of(trace) for trace in made], generator(seed, "coldstart", name))
        for name, made in (("easy", easy), ("mix", mix))
    ]
    model = build(derive(seed, "coldstart", "model"))
    hidden = [w for name, w in model.named_parameters() if w.ndim == 2 and "embed" not in name]
    rest = [w for name, w in model.named_parameters() if w.ndim != 2 or "embed" in name]
    optimizers = [
        torch.optim.Muon(hidden, lr=MUON_LR, momentum=MUON_MOMENTUM, weight_decay=0.0),
        torch.optim.AdamW(rest, lr=ADAMW_LR, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = [(group, group["lr"]) for optimizer in optimizers for group in optimizer.param_groups]
    examiner = Examiner(model.config.to_dict(), World(derive(seed, "coldstart", "gate")), seed)
    step, last, cooling = 0, STEPS, None
    while step < last:
        loss = nll(model, *next(streams[step >= CURRICULUM_STEPS]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group, peak in peaks:
            group["lr"] = peak * rate(step, last, cooling)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 100 == 0:
            print(f"step {step} of {last}: loss {loss.item():.3f}", flush=True)
        due = cooling is None and step >= GATE_FROM and step % GATE_EVERY == 0
        if due and passes(examiner.accuracy(model, GATE_QUESTIONS)):
            cooling, last = step, min(step + COOL_DOWN, STEPS)
    accuracy = examiner.accuracy(model, GATE_QUESTIONS)
    record = {"seed": seed, "steps": step, "gate_passed": cooling is not None or passes(accuracy)}
    return model, {**record, "held_out": accuracy}


def passes(accuracy: Mapping[str, float]) -> bool:
    """Whether it plays well enough."""
    return all(accuracy[name] >= least for name, least in GATES.items())


def main() -> int:
    """Teach one, and write its folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    model, record = train(given.seed)
    model.save_pretrained(given.out)
    tokenizer.save(tokenizer.build(), given.out)
    seal(given.out, {"protocol": PROTOCOL, **record})
    print(f"{given.out}: {record}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
