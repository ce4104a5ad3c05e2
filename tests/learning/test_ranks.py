"""Learners of two ranks, by DeepSpeed: the update of one process, killed and gone on with; the deal of rows."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch
from rankruns import ALONE, JOBS, NIGHTLY, role, spawn
from transformers import AutoModelForCausalLM

from ssp.base.errors import InputError
from ssp.config.role import LearnerConfig
from ssp.learning.backends.ranks import SOLO, Ranks, deal
from ssp.learning.figures import Figures
from ssp.learning.learner import PolicyLearner
from ssp.learning.memory import Job, gradient, pieces


@pytest.fixture(scope="module")
def out(tmp_path_factory, model_dir):
    """Job -> folder of what it left: alone and with two ranks up to their death, and gone on with; by layer."""

    @cache
    def run(layer):
        folder = tmp_path_factory.mktemp("ranks")
        spawn(model_dir, folder, "first", layer)
        spawn(model_dir, folder, "again", layer)
        return folder

    return lambda job: run("nightly" if job in NIGHTLY else "ray")


def left(folder, name, phase="first"):
    return torch.load(folder / f"{name}-{phase}.pt", weights_only=False)


def each(names):
    """`names` of jobs as parameters, some of the nightly layer."""
    return [pytest.param(name, marks=pytest.mark.nightly if name in NIGHTLY else ()) for name in names]


@pytest.mark.ray
@pytest.mark.covers("SR-10", "SR-06")
@pytest.mark.parametrize("name", each(name for name, (alone, _) in JOBS.items() if alone))
def test_two_ranks_make_the_update_of_one_process(out, name):
    ours, alone = left(out(name), name), left(out(name), JOBS[name][0])
    for key, weight in alone["weights"].items():
        np.testing.assert_allclose(ours["weights"][key], weight, atol=1e-5, rtol=0, err_msg=key)
    for key in set(alone["figures"]) - {"seconds", "mfu"}:
        assert ours["figures"][key] == pytest.approx(alone["figures"][key], rel=1e-3, abs=1e-5), key
    elsewhere, predicting = ours["gradient"]
    assert elsewhere == 0.0 < predicting


@pytest.mark.ray
@pytest.mark.covers("SR-14")
@pytest.mark.parametrize("name", each(JOBS))
def test_killed_and_loaded_is_bit_for_bit_the_uninterrupted_run(out, name):
    whole, resumed = left(out(name), name), left(out(name), name, "again")
    assert whole["weights"].keys() == resumed["weights"].keys()
    assert all(np.array_equal(whole["weights"][key], resumed["weights"][key]) for key in whole["weights"])
    for key in set(whole["figures"]) - {"seconds", "mfu"}:
        assert whole["figures"][key] == resumed["figures"][key], key


@pytest.mark.ray
def test_bfloat16_learns_about_the_same_and_keeps_a_float32_anchor(out):
    out = out("zero2-bf16")
    ours, alone = left(out, "zero2-bf16"), left(out, "ema")
    assert ours["figures"]["loss"] == pytest.approx(alone["figures"]["loss"], abs=0.02)
    assert 0 < ours["figures"]["logprob_mismatch/max"] < 0.5
    anchor = AutoModelForCausalLM.from_pretrained(out / "zero2-bf16-saved" / "anchor", dtype=torch.float32)
    assert any((p.bfloat16().float() != p).any() for p in anchor.parameters())


@pytest.mark.ray
@pytest.mark.covers("SR-14")
@pytest.mark.parametrize("name", each(["zero1", "zero3", "zero2-lora"]))
def test_the_checkpoint_is_a_model_folder(out, name):
    out = out(name)
    model = AutoModelForCausalLM.from_pretrained(out / f"{name}-saved", dtype=torch.float32)
    assert not list(out.glob("*.tmp-*"))
    record = json.loads((out / f"{name}-saved" / "ssp.json").read_text())
    assert record["step"] == 2 and record["sha256"]
    block = role({})
    again = PolicyLearner(out / f"{name}-saved", {"solver": block}).weights()
    assert set(again) == {key for key, _ in model.named_parameters()}


@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("zero2", {}, "'kind': 'torch'}"),
        ("lora", {}, "'lora': "),
        ("lora", {"learner.lora.rank": 8}, r"'lora': \[8"),
        ("whole", {"learner.lora.rank": 8}, r"'lora': \[8"),
    ],
)
def test_what_another_learner_wrote_is_refused(out, model_dir, tmp_path, name, settings, message):
    if name in ALONE:
        PolicyLearner(model_dir, {"solver": role(ALONE[name])}).save(tmp_path / f"{name}-saved", {"role": "solver"})
        written = tmp_path
    else:
        written = out(name)
    learner = PolicyLearner(model_dir, {"solver": role(settings)})
    before = learner.weights()
    with pytest.raises(InputError, match=message):
        learner.load(written / f"{name}-saved")
    assert all(np.array_equal(before[key], weight) for key, weight in learner.weights().items()) and learner.step == 0


def test_rows_are_dealt_by_tokens():
    row_lengths = torch.tensor([10, 1, 9, 2, 8, 3, 0])
    rows = torch.arange(6)
    first, second = deal(row_lengths, rows, 2)
    assert sorted([*first.tolist(), *second.tolist()]) == rows.tolist()
    assert abs(int(row_lengths[first].sum()) - int(row_lengths[second].sum())) <= 3
    assert torch.equal(deal(row_lengths, rows, 1)[0], rows)


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("world", [2, 3, 8])
def test_every_rank_has_as_many_pieces_and_every_row_counts_once(world, packing):
    row_lengths, config = torch.tensor([30, 5, 9, 12, 30, 7]), LearnerConfig(token_budget=32, packing=packing)
    ids = torch.randint(0, 50, (6, 30), generator=torch.Generator().manual_seed(0))
    ids[5, :6] = ids[2, :6]
    found = [pieces(ids, row_lengths, torch.arange(6), config, Ranks(rank, world)) for rank in range(world)]
    assert len({len(parts) for parts in found}) == 1
    counted = [row for parts in found for rows, counts in parts if counts for row in rows.tolist()]
    assert sorted(counted) == list(range(6))
    assert all(rows.tolist() == [1] for parts in found for rows, counts in parts if not counts)
    assert all(counts for _, counts in pieces(ids, row_lengths, torch.arange(6), config, SOLO))


class Quiet(Ranks):
    """One rank of several whose sums nobody answers: what it gives is its own share."""

    def total(self, values):
        return list(values)


class Summing:
    """A backend of one number, whose gradient is what was given back."""

    def __init__(self, config, ranks):
        self.config, self.ranks, self.given, self.calls = config, ranks, 0.0, 0
        self.weight = torch.ones(1, requires_grad=True)

    def zero(self):
        self.given = 0.0

    def backward(self, loss, last):
        self.given += float(torch.autograd.grad(loss, self.weight)[0])
        self.calls += 1


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_a_row_that_is_computed_to_fill_a_rank_up_adds_nothing(world):
    """Neither to the gradient nor to the loss; all ranks give back equally often, as their collectives must match."""
    ends = torch.tensor([30, 5, 9, 12, 30, 7])
    ids = torch.zeros(6, 30, dtype=torch.long)
    config, gradients, losses, calls = LearnerConfig(token_budget=32), 0.0, 0.0, set()
    for rank in range(world):
        backend = Summing(config, Quiet(rank, world))

        def loss(rows, figures, backend=backend):
            return backend.weight.sum() * float(ends[rows].sum())

        losses += sum(gradient([Job(ids, ends, torch.arange(6), loss, Figures())], backend))
        gradients += backend.given
        calls.add(backend.calls)
    assert gradients == losses == float(ends.sum()) and len(calls) == 1
