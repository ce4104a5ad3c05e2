"""What models, learners and engines need, against what one has: bytes of tensors, of files, and of processes that were measured."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import Tensor
from transformers import (
    AutoConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ssp.base.errors import InputError
from ssp.base.products import Matrix
from ssp.base.shape import Shape, context
from ssp.capacity.memory import engine, learner
from ssp.capacity.memory.needs import Need
from ssp.capacity.memory.processes import notes
from ssp.capacity.memory.shapes import PUBLIC, Model, find
from ssp.config.role import LearnerConfig, LoraConfig, RehearsalConfig, RoleConfig, StageConfig
from ssp.engines.torch_engine import TorchEngine
from ssp.learning import attention, batch, forward, lora
from ssp.learning.backends import make
from ssp.learning.backends.ranks import SOLO
from ssp.learning.packing import prepare
from ssp.learning.store import Policy
from ssp.selfplay.settings import load
from tests.blocks import made

SMALL = {
    "vocab_size": 300, "hidden_size": 128, "intermediate_size": 448, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
WIDE = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
FAMILIES: dict[str, Any] = {
    "qwen2": lambda **more: Qwen2ForCausalLM(Qwen2Config(**SMALL | more)),
    "qwen3": lambda **more: Qwen3ForCausalLM(Qwen3Config(**SMALL | more)),
    "llama": lambda **more: LlamaForCausalLM(LlamaConfig(**SMALL | more)),
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
    assert learner.SEEN == batch.SEEN
    for name in ("WIDE", "QUERIES", "SCORES"):
        assert getattr(learner, name) == getattr(attention, name)


@pytest.mark.parametrize("rank", [0, 4])
def test_weights_gradients_and_moments_are_exact(rank: int) -> None:
    module = FAMILIES["qwen2"]()
    size = model_of(module)
    config = LearnerConfig(lora=LoraConfig(rank=rank))
    made = make(Policy(module, config), config, 1e-3, SOLO)
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


@pytest.mark.parametrize("packed, heads", [(False, {}), (True, {}), (True, WIDE)], ids=["padded", "packed", "wide"])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "autocast", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_activations_are_as_planned(
    family: str, dtype: str, checkpointing: bool, packed: bool, heads: dict[str, int]
) -> None:
    """What autograd keeps of 512 tokens, other than weights, in each way in which learners compute; those of wide heads are
    of rows that take several blocks of queries."""
    module = FAMILIES[family](**heads)
    stream, product = {"float32": (4, 4), "autocast": (4, 2), "bfloat16": (2, 2)}[dtype]
    if dtype == "bfloat16":
        module = module.to(torch.bfloat16)
    prepare(module, LearnerConfig(packing=packed, checkpointing=checkpointing))
    rows = 2 if heads else 4
    ids = torch.randint(0, 300, (rows, 512 // rows + 1))
    ids[:, 0] = torch.arange(rows)  # rows that begin alike would share their prompt, and be laid out in another way
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
    copies = packed and not (heads and product == 2)
    way = learner.Way(stream, product, packed=packed, copies=copies, lean=packed and stream == 4)
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


def test_a_longer_stage_counts() -> None:
    model, block = find("Qwen/Qwen2.5-7B-Instruct"), load("gpu8").solver
    longer = replace(block, limits=replace(block.limits, stages=(StageConfig(5, 0, 65_536),)))
    here, there = (sum(need.bytes for need in learner._activations(model, [one], True)) for one in (block, longer))
    assert there > 2 * here


def test_stages_ranks_and_offload_by_hand() -> None:
    """7,615,616,512 parameters in bfloat16 on 8 ranks: Rajbhandari et al. 2020, figure 1, with 2 + 2 + 12 bytes
    each."""
    count = PUBLIC["Qwen2.5-7B"].parameters

    def part(zero: int, offload: str = "none") -> dict[str, Need]:
        config = made(LearnerConfig, kind="deepspeed", ranks=8, dtype="bfloat16", zero=zero, offload=offload)
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
    block.learner = made(LearnerConfig, kind="deepspeed", ranks=4, zero=3, dtype="bfloat16")
    assert named(learner.rank(size, [block]))["reference"] == -(-2 * size.parameters // 4)
    block.kl.ema_tau = 0.9  # a float32 master beside the bfloat16 model
    assert named(learner.rank(size, [block]))["reference"] == -(-6 * size.parameters // 4)
    block.learner.lora.rank = 32  # the base itself
    assert "reference" not in named(learner.rank(size, [block]))
    block = RoleConfig(algorithm="gae")
    assert named(learner.rank(size, [block]))["critic"] == 16 * (size.parameters + 2048 + 1)


MEASURE = Path(__file__).with_name("deepspeed_bytes.py")


@pytest.mark.ray
@pytest.mark.parametrize(
    "asked", [(3, "bfloat16", "all"), pytest.param((2, "bfloat16", "none"), marks=pytest.mark.nightly)]
)
def test_deepspeed_holds_what_is_planned(asked: tuple[int, str, str]) -> None:
    """Two updates of a real engine of one rank, in a process of its own; every tensor that is left, summed."""
    zero, dtype, offload = asked
    done = subprocess.run(
        [sys.executable, MEASURE, str(zero), dtype, offload], capture_output=True, text=True, check=True, timeout=200
    )
    parameters, held = map(int, done.stdout.split()[-2:])
    config = made(LearnerConfig, kind="deepspeed", zero=zero, dtype=dtype, offload=offload)
    needs = learner.states(parameters, parameters, config)
    left = sum(need.bytes for need in needs if not need.turn)
    assert held == pytest.approx(left, rel=0.02)


PUBLISHED = {
    "Qwen2.5-0.5B": 494_032_768, "Qwen2.5-1.5B": 1_543_714_304, "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512, "Qwen2.5-14B": 14_770_033_664, "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648, "Qwen3-0.6B": 596_049_920, "Qwen3-1.7B": 1_720_574_976, "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360, "Qwen3-14B": 14_768_307_200, "Qwen3-32B": 32_762_123_264, "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496, "Llama-3.2-1B": 1_235_814_400, "Llama-3.2-3B": 3_212_749_824,
}  # fmt: skip
"""Numbers in the published safetensors files; a tied output matrix is stored once."""


def test_published_models_have_their_published_size() -> None:
    assert {name: shape.parameters for name, shape in PUBLIC.items()} == PUBLISHED


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_shape_counts_what_transformers_makes(family: str, tied: bool) -> None:
    made = FAMILIES[family](tie_word_embeddings=tied)
    shape = Shape.of(made.config.to_dict())
    assert shape.parameters == sum(parameter.numel() for parameter in made.parameters())
    lora.put_on(made, LoraConfig(rank=3))
    adapters = sum(parameter.numel() for parameter in made.parameters() if parameter.requires_grad)
    assert shape.adapter(3) == adapters


def test_the_cache_of_a_token() -> None:
    assert PUBLIC["Qwen2.5-7B"].kv_numbers * 2 == 57_344  # bytes in bfloat16: 2 x 28 layers x 4 heads x 128
    assert PUBLIC["Llama-3.1-8B"].kv_numbers * 2 == 131_072


@pytest.mark.parametrize(
    ("name", "public"),
    [("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"), ("meta-llama/Meta-Llama-3.1-8B", "Llama-3.1-8B")],
)
def test_public_models_are_known_by_name(name: str, public: str) -> None:
    found = find(name)
    assert found.shape == PUBLIC[public] and found.parameters == PUBLISHED[public] and "published" in found.note


def test_of_other_models_nothing_is_guessed() -> None:
    secret = find("Org/Secret-7B")
    assert (secret.parameters, secret.shape) == (0, None) and "its size not known" in secret.note


def test_a_folder_counts_its_files(tmp_path: Path) -> None:
    config = Qwen2Config(**SMALL).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(config))
    by_config = find(str(tmp_path))
    assert by_config.parameters == Shape.of(config).parameters and by_config.note == ""
    weights = {name: np.zeros(size, np.float16) for name, size in Shape.of(config).tensors().items()}
    save_file(weights, tmp_path / "model.safetensors")
    save_file({"copy": np.zeros(5, np.float16)}, tmp_path / "copy.safetensors")
    assert replace(find(str(tmp_path)), narrow=False) == by_config and find(str(tmp_path)).narrow
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"readable config\.json"):
        find(str(tmp_path))


@pytest.mark.parametrize("family", ["gemma2", "olmo2", "mistral"])
def test_a_family_that_is_not_known_is_not_planned_as_a_llama(tmp_path: Path, family: str) -> None:
    """Their sizes have the same names, and their layers have other norms, scales and windows."""
    described = AutoConfig.for_model(family, **SMALL).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(described))
    cfg = load("quickstart", [f"defaults.model={tmp_path}"])
    assert (find(str(tmp_path)).parameters, find(str(tmp_path)).shape) == (0, None)
    assert "its memory comes on top" in " ".join(notes(cfg))
    save_file({"model.norm.weight": np.zeros(7, np.float32)}, tmp_path / "model.safetensors")
    assert (find(str(tmp_path)).parameters, find(str(tmp_path)).shape) == (7, None)
    assert "its cache and activations come on top" in " ".join(notes(cfg))
    assert context(described | {"max_position_embeddings": None}) == 0, "and its context is not guessed"


def test_our_own_policy_is_the_packaged_one() -> None:
    own = find("coldstart")
    assert own.shape is not None and own.parameters == own.shape.parameters > 100_000


BENCH = Path(__file__).parents[1] / "bench" / "process_memory.py"
ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("measured.json").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['kind']}-{row['model']}-{row['dtype']}")
def test_processes_take_what_is_planned(row: dict[str, Any]) -> None:
    spec = importlib.util.spec_from_file_location("process_memory", BENCH)
    assert spec is not None and spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    assert bench.plan(row) == pytest.approx(row["measured"], rel=0.15)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_an_embedded_engine_holds_what_is_planned(dtype: str, kind: str, tied: bool) -> None:
    """Weights to the biases, which are few; the cache to the byte, as wide as the weights."""
    config = {
        "model_type": kind, "architectures": [f"{kind.capitalize()}ForCausalLM"], "num_attention_heads": 4,
        "num_key_value_heads": 2, "hidden_size": 64, "head_dim": 16, "num_hidden_layers": 3, "intermediate_size": 176,
        "vocab_size": 300, "tie_word_embeddings": tied, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "hidden_act": "silu",
    }  # fmt: skip
    made, shape = TorchEngine(config, dtype), Shape.of(config)
    made.load({name: np.zeros(size, np.float32) for name, size in shape.tensors().items()}, 1)
    held, cache = made.rows.model, made.rows.cache
    assert held is not None
    layers = [part for layer in held.layers for part in vars(layer).values()]
    parts = [
        part for one in (held.head, *layers) for part in (vars(one).values() if isinstance(one, Matrix) else [one])
    ]
    tensors = [held.embed, *(part for part in parts if isinstance(part, torch.Tensor))]
    block = RoleConfig()
    block.engine.dtype = dtype
    needs = {n.what: n.bytes for n in engine.engine(Model("m", shape.parameters, shape), block, 5).needs}
    assert sum(t.nbytes for t in tensors) == pytest.approx(needs["weights"], rel=0.02)
    cache.reserve(5, block.limits.longest)
    assert cache.length == block.limits.longest and cache.keys[0].dtype is getattr(torch, dtype)
    assert sum(t.nbytes for t in (*cache.keys, *cache.values)) == needs["KV cache"]


def test_traces_that_are_rehearsed_lie_in_the_memory_of_each_rank(tmp_path: Path) -> None:
    """By the size of their file, on the host; nothing without a share, and nothing is known of what is not here."""
    (tmp_path / "traces.jsonl").write_bytes(b"x" * 1000)
    model = Model("m", 1000, None)
    counted = {}
    for name in ("traces.jsonl", "nowhere.jsonl", "world:english"):
        data = name if name.startswith("world:") else str(tmp_path / name)
        for share in (0.0, 0.2):
            block = RoleConfig(rehearsal=RehearsalConfig(share=share))
            block.rehearsal.data = data
            needs = [need for need in learner.rank(model, [block, block]) if need.what == "traces"]
            assert all(need.host and not need.turn for need in needs)
            counted[name, share] = sum(need.bytes for need in needs)
    assert counted.pop(("traces.jsonl", 0.2)) == 2 * 1000 * learner.TRACES
    assert not any(counted.values())
