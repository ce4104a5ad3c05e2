"""The model's start, the batches, the loss mask, the loop's determinism and its end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ssp.config.schema import ColdStartConfig
from ssp.game.world.vocabulary import FIRST_NAME_ID, VOCABULARY
from ssp.learning.coldstart import sft, traces
from ssp.learning.coldstart.store import GATES
from ssp.learning.supervised import nll
from tests.blocks import made


def small(monkeypatch: pytest.MonkeyPatch, steps: int = 6) -> None:
    for name, value in (("STEPS", steps), ("CURRICULUM_STEPS", 2), ("CURRICULUM_TRACES", 40), ("MIX_TRACES", 100)):
        monkeypatch.setattr(sft, name, value)
    monkeypatch.setattr(sft, "BATCH_TOKENS", 1024)
    monkeypatch.setattr(sft, "GATE_QUESTIONS", 4)


def test_first_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = sft.build(3).state_dict()
    torch.manual_seed(2)
    again, other = sft.build(3).state_dict(), sft.build(4).state_dict()
    assert sum(w.numel() for w in sft.build(3).parameters()) == 134_336
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_three_heads_start_out_reading_one_two_three_places_back() -> None:
    model = sft.build(0)
    model.set_attn_implementation("eager")
    ids = torch.randint(0, len(VOCABULARY), (2, 60), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        weights = model(ids, output_attentions=True).attentions[0]
    for head, offset in enumerate(sft.OFFSETS):
        back = torch.diagonal(weights[:, head], -offset, dim1=1, dim2=2)[:, 5:]
        assert float(back.mean()) > 0.95


def test_batches_fit_and_rename_consistently() -> None:
    samples = [sft.sample_of(trace) for trace in traces.mixture(traces.makers(0), 60)]
    plain = {tuple(own.clip(max=FIRST_NAME_ID)) for own, _ in samples}
    stream = sft.batches(samples, np.random.default_rng(0))
    for _ in range(20):
        ids, mask = next(stream)
        assert ids.numel() <= sft.BATCH_TOKENS and ids.shape == mask.shape
        for row in ids.numpy():
            assert tuple(np.trim_zeros(row, "b").clip(max=FIRST_NAME_ID)) in plain
    a, b = (next(sft.batches([samples[0]], np.random.default_rng(seed)))[0].numpy()[0] for seed in (1, 2))
    names = samples[0][0] >= FIRST_NAME_ID
    assert (a[names] != b[names]).any() and (a[~names] == b[~names]).all()
    assert len(set(zip(samples[0][0], a, strict=True))) == len(set(samples[0][0])) == len(set(a))


def test_what_is_learned_is_the_marked_tokens() -> None:
    model = sft.build(0)
    ids = torch.randint(0, len(VOCABULARY), (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[0, 3], mask[1, 8] = True, True
    with torch.inference_mode():
        full = model(ids).logits.log_softmax(-1)
        found = nll(model, ids, mask)
    wanted = torch.stack([full[0, 2, ids[0, 3]], full[1, 7, ids[1, 8]]])
    assert torch.allclose(found, -wanted.mean(), atol=1e-5)


def test_training_is_deterministic_and_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, steps=12)
    told: list[float] = []
    cfg, never = ColdStartConfig(), {"1hop": 2.0}
    first, record = sft.train(cfg, never, lambda done, message: told.append(done))
    again, _ = sft.train(cfg, never)
    assert (record["steps"], record["gate_passed"], record["capped"]) == (12, False, False)
    assert told and all(0 <= done <= 1 for done in told)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name


def test_the_gate_and_the_cap_begin_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, steps=40)
    monkeypatch.setattr(sft, "GATE_FROM", 4)
    monkeypatch.setattr(sft, "GATE_EVERY", 2)
    monkeypatch.setattr(sft, "COOL_DOWN", 3)
    _, record = sft.train(ColdStartConfig(), dict.fromkeys(GATES, 0.0))
    assert (record["steps"], record["gate_passed"], record["capped"]) == (7, True, False)
    _, record = sft.train(made(ColdStartConfig, max_seconds=0.01), {"1hop": 2.0})
    assert record["capped"] and record["steps"] < 40
