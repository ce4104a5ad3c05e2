"""Adapters: a fresh one changes nothing, only it learns, it is published merged, its base is the reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from solo import SoloLearner, goes_on, gradients
from transformers import AutoModelForCausalLM

from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.learning import lora
from ssp.learning.forward import score
from ssp.selfplay.workers import learner as workers


@pytest.fixture
def adapted(role):
    role.learner.lora.rank, role.kl.coef, role.learner.lr = 4, 0.1, 1e-2
    return role


def test_a_fresh_adapter_is_the_model_and_only_it_learns(model_dir, make_batch, adapted):
    learner, batch = SoloLearner(model_dir, adapted), make_batch(8)
    start = learner.weights()
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    assert all(np.array_equal(start[name], p.detach().numpy()) for name, p in model.named_parameters())
    assert set(start) == {name for name, _ in model.named_parameters()}
    base = {name: p.detach().clone() for name, p in learner.model.named_parameters() if not lora.is_adapter(name)}
    first = learner.update(batch)
    assert first["kl/reference"] == pytest.approx(0, abs=1e-6) and first["grad_norm"] > 0
    assert learner.update(batch)["kl/reference"] > 1e-4
    for name, parameter in learner.model.named_parameters():
        if not lora.is_adapter(name):
            assert torch.equal(parameter, base[name]) and parameter.grad is None
    moved = {name for name, weight in learner.weights().items() if not np.array_equal(weight, start[name])}
    assert moved == {name for name in start if "_proj.weight" in name}


def test_what_is_published_computes_what_the_learner_computes(tmp_path, model_dir, make_batch, adapted):
    learner, batch = SoloLearner(model_dir, adapted), make_batch(8)
    learner.update(batch)
    learner.save(tmp_path / "v1", {"role": "solver"})
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "v1").eval()
    base = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    with torch.no_grad():
        ours = score(learner.model, batch.ids, batch.mask, 1.0)[0]
        torch.testing.assert_close(ours, score(merged, batch.ids, batch.mask, 1.0)[0], atol=1e-4, rtol=0)
        bare = score(lora.Bare(learner.model), batch.ids, batch.mask, 1.0)[0]
        assert torch.equal(bare, score(base, batch.ids, batch.mask, 1.0)[0]) and not torch.equal(bare, ours)
        peft = PeftModel.from_pretrained(base, tmp_path / "v1" / "adapter").eval()
        theirs = score(peft.base_model.model, batch.ids, batch.mask, 1.0)[0]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    assert load_file(tmp_path / "v1" / "adapter" / "adapter_model.safetensors")


def test_in_bfloat16_an_adapter_reads_what_its_layer_reads(model_dir, make_batch, adapted):
    adapted.learner.dtype, adapted.learner.packing = "bfloat16", True
    learner, read = SoloLearner(model_dir, adapted), []
    for name, part in learner.model.named_modules():
        if name.endswith(f"q_proj.lora_A.{lora.NAME}"):
            part.register_forward_pre_hook(lambda _, args: read.append(args[0].dtype))
    learner.update(make_batch(4))
    assert set(read) == {torch.bfloat16}


def test_players_on_a_shared_base_get_the_adapter_alone(model_dir, make_batch, adapted):
    """What a player adds to its base is what would be published merged."""
    cfg = Config(blocks={"solver": adapted})
    whole = workers.Learner(cfg, "solver", model_dir)
    cfg.placement.layout = "shared-base"
    learner = workers.Learner(cfg, "solver", model_dir)
    learner._inner.update({"solver": make_batch(8)})
    base, merged = whole.exported(), learner._inner.weights()
    found = learner.exported()
    for name in [name for name in merged if "_proj.weight" in name]:
        down, up = (found.pop(f"base_model.model.{name.removesuffix('.weight')}.lora_{half}.weight") for half in "AB")
        np.testing.assert_allclose(base[name] + up @ down, merged[name], atol=1e-6)
        assert not np.array_equal(base[name], merged[name])
    assert found == {}


@pytest.mark.covers("SR-14")
@pytest.mark.parametrize("checkpointing", [False, True])
def test_save_load_continue_is_bit_exact(tmp_path, model_dir, make_batch, adapted, checkpointing):
    adapted.learner.checkpointing = checkpointing
    goes_on(tmp_path / "v2", model_dir, adapted, make_batch)


@pytest.mark.covers("SR-10")
def test_packed_and_checkpointed_it_has_the_padded_gradient(model_dir, make_batch, adapted):
    adapted.entropy_coef, batch = 0.01, make_batch(12, noise=0.1)
    padded, _ = gradients(SoloLearner(model_dir, adapted), batch)
    adapted.learner.packing = adapted.learner.checkpointing = True
    packed, _ = gradients(SoloLearner(model_dir, adapted), batch)
    for name, grad in padded.items():
        torch.testing.assert_close(packed[name], grad, atol=1e-6, rtol=1e-5)


def test_targets_are_layers_that_there_are(model_dir, adapted):
    for targets in (["w_proj"], ["lm_head"]):
        adapted.learner.lora.targets = targets
        with pytest.raises(InputError, match="q_proj"):
            SoloLearner(model_dir, adapted)
