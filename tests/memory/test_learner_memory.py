"""What a learner needs, against what one has: bytes of its tensors, and of what its forward pass keeps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from ssp.base.shape import Shape
from ssp.capacity.memory import learner
from ssp.capacity.memory.needs import Need
from ssp.capacity.memory.shapes import PUBLIC, Model
from ssp.config.role import LearnerConfig, LoraConfig, RoleConfig
from ssp.learning import forward, lora
from ssp.learning.backends import make
from ssp.learning.backends.ranks import SOLO
from ssp.learning.packing import prepare
from ssp.learning.store import Policy

SMALL = {
    "vocab_size": 300, "hidden_size": 128, "intermediate_size": 448, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
FAMILIES: dict[str, Any] = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
}
TOLERANCE, TOLERANCE_OF_INPUTS = 0.03, 0.1
"""Of the activations; with checkpointing little is kept, of which a small model's ids and angles are much."""


def bytes_of(tensors: Iterable[Tensor | None]) -> int:
    """Of storages, each once."""
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t is not None}
    return sum(found.values())


def named(needs: Iterable[Need]) -> dict[str, int]:
    return {need.what: need.bytes for need in needs}


def model_of(module: Any) -> Model:
    """The size of a model, before adapters."""
    shape = Shape.of(module.config.to_dict())
    return Model("small", shape.parameters, shape)


def test_constants_are_those_of_the_modules_that_import_torch() -> None:
    from ssp.learning.backends import deepspeed_backend

    assert learner.CELLS == forward.CELLS and learner.BUCKET == deepspeed_backend.BUCKET


@pytest.mark.parametrize("rank", [0, 4])
def test_weights_gradients_and_moments_are_exact(rank: int) -> None:
    module = FAMILIES["qwen2"]()
    size = model_of(module)
    config = LearnerConfig(lora=LoraConfig(rank=rank))
    if rank:
        lora.put_on(module, config.lora)
    made = make(Policy(module), config, 1e-3, SOLO)
    ids = torch.randint(0, 300, (2, 16))
    made.zero()
    made.backward(-made(ids, torch.ones_like(ids).bool().index_fill_(1, torch.tensor([0]), False), 1.0)[0].sum(), True)
    parameters = list(module.parameters())
    found = named(learner.states(size.parameters, learner.trainable(size, config), config))
    assert found["weights"] == bytes_of(parameters)
    assert found["gradients"] == bytes_of(parameter.grad for parameter in parameters)
    made.step(1e-3)
    moments = [state[name] for state in made.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert found["moments"] == bytes_of(moments)
    assert (rank == 0) == (found["gradients"] == found["weights"])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "autocast", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_activations_are_as_planned(family: str, dtype: str, checkpointing: bool, packed: bool) -> None:
    """What autograd keeps of 4 x 128 tokens, other than weights, in each way in which learners compute."""
    module = FAMILIES[family]()
    stream, product = {"float32": (4, 4), "autocast": (4, 2), "bfloat16": (2, 2)}[dtype]
    if dtype == "bfloat16":
        module = module.to(torch.bfloat16)
    prepare(module, LearnerConfig(packing=packed, checkpointing=checkpointing))
    ids = torch.randint(0, 300, (4, 129))
    ids[:, 0] = torch.arange(4)  # rows that begin alike would share their prompt, and be laid out in another way
    mask = torch.ones_like(ids).bool()
    mask[:, 0] = False
    known = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    weights = {parameter.shape for parameter in module.parameters()}
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        copy = dtype == "autocast" and {tensor.shape, tensor.t().shape if tensor.dim() == 2 else tensor.shape} & weights
        if tensor.untyped_storage().data_ptr() not in known and not copy:
            kept.append(tensor)
        return tensor

    with (
        torch.autocast("cpu", torch.bfloat16, enabled=dtype == "autocast"),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        forward.states(module, ids, mask)
    shape = model_of(module).shape
    assert shape is not None
    way = learner.Way(stream, product, copies=packed)
    planned = learner.kept(shape, 4 * 128, way, checkpointing)
    if checkpointing:  # the layer that is computed again is not there yet
        planned -= 4 * 128 * learner.per_layer(shape, way)
    assert bytes_of(kept) == pytest.approx(planned, rel=TOLERANCE_OF_INPUTS if checkpointing else TOLERANCE)


def test_checkpointing_and_budget_cut_activations() -> None:
    block = replace(RoleConfig(model="Qwen/Qwen2.5-7B"), learner=LearnerConfig(token_budget=16_384))
    size = Model("Qwen2.5-7B", PUBLIC["Qwen2.5-7B"].parameters, PUBLIC["Qwen2.5-7B"])

    def took(**changed: Any) -> int:
        return named(learner.rank(size, [replace(block, learner=replace(block.learner, **changed))]))["activations"]

    assert took(token_budget=8192) * 2 == took() and took(checkpointing=True) < took() / 8
    assert took(token_budget=1) == took(token_budget=block.limits.total_tokens)  # an episode is never cut


def test_stages_ranks_and_offload_by_hand() -> None:
    """7,615,616,512 parameters in bfloat16 on 8 ranks: Rajbhandari et al. 2020, figure 1, with 2 + 2 + 12 bytes
    each."""
    count = PUBLIC["Qwen2.5-7B"].parameters

    def part(zero: int, offload: str = "none") -> dict[str, Need]:
        config = LearnerConfig(kind="deepspeed", ranks=8, dtype="bfloat16", zero=zero, offload=offload)
        return {need.what: need for need in learner.states(count, count, config)}

    for zero, weights, gradients in [(1, 1, 1), (2, 1, 8), (3, 8, 8)]:
        found = part(zero)
        assert found["weights"].bytes == 2 * count // weights and found["gradients"].bytes == 2 * count // gradients
        assert found["master weights"].bytes + found["moments"].bytes == 12 * count // 8
        assert not any(need.host for need in found.values())
    away = part(2, "optimizer")
    assert {name for name, need in away.items() if need.host} == {"master weights", "moments", "gradients in float32"}
    assert {name for name, need in part(3, "all").items() if not need.host} == {"buckets", "gathered weights"}


def test_reference_and_critic_by_hand() -> None:
    size = Model("Qwen2.5-3B", PUBLIC["Qwen2.5-3B"].parameters, PUBLIC["Qwen2.5-3B"])
    block = RoleConfig()
    block.kl.coef = 0.1
    assert named(learner.rank(size, [block]))["reference"] == 4 * size.parameters
    assert named(learner.rank(size, [block, block]))["reference"] == 4 * size.parameters  # one for both roles
    block.learner = LearnerConfig(kind="deepspeed", ranks=4, zero=3, dtype="bfloat16")
    assert named(learner.rank(size, [block]))["reference"] == -(-2 * size.parameters // 4)
    block.kl.ema_tau = 0.9  # a float32 master beside the bfloat16 model
    assert named(learner.rank(size, [block]))["reference"] == -(-6 * size.parameters // 4)
    block.learner.lora.rank = 32  # the base itself
    assert "reference" not in named(learner.rank(size, [block]))
    block = RoleConfig(algorithm="gae")
    assert named(learner.rank(size, [block]))["critic"] == 16 * (size.parameters + 2048 + 1)


MEASURE = Path(__file__).with_name("deepspeed_bytes.py")


@pytest.mark.ray
@pytest.mark.parametrize("asked", [(2, "bfloat16", "none"), (3, "bfloat16", "all")])
def test_deepspeed_holds_what_is_planned(asked: tuple[int, str, str]) -> None:
    """Two updates of a real engine of one rank, in a process of its own; every tensor that is left, summed."""
    zero, dtype, offload = asked
    done = subprocess.run(
        [sys.executable, MEASURE, str(zero), dtype, offload], capture_output=True, text=True, check=True, timeout=200
    )
    parameters, held = map(int, done.stdout.split()[-2:])
    config = LearnerConfig(kind="deepspeed", zero=zero, dtype=dtype, offload=offload)
    needs = learner.states(parameters, parameters, config)
    left = sum(need.bytes for need in needs if not need.turn)
    assert held == pytest.approx(left, rel=0.02)
