"""The torch engine against transformers: log-probs, greedy decoding, caches, seeds, versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from ssp.base.errors import Fault, InputError
from ssp.config.role import EngineConfig
from ssp.engines import Sampling, create
from ssp.engines.torch_engine import TorchEngine

VOCAB, STOP = 61, 7


def model(seed: int = 0, tied: bool = True, **changes: object) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    sizes: dict[str, object] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": tied,
        "initializer_range": 0.25,
    }
    net = Qwen2ForCausalLM(Qwen2Config(**(sizes | changes))).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith(("norm.weight", "bias")):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def arrays(net: Qwen2ForCausalLM) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy() for name, parameter in net.named_parameters()}


def engine_of(net: Qwen2ForCausalLM, version: int = 0) -> TorchEngine:
    engine = TorchEngine(net.config.to_dict())
    engine.load(arrays(net), version)
    return engine


@torch.no_grad()
def full_logprobs(net: Qwen2ForCausalLM, ids: list[int], temperature: float = 1.0) -> torch.Tensor:
    logits = net(torch.tensor([ids])).logits[0, :-1] / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def talk(engine: TorchEngine, seeds: list[int], turns: int, sampling: Sampling) -> list[list[object]]:
    """Play `turns` turns with ragged prompts and observations; [ids, is_model, logprobs] of each slot."""
    slots = engine.open(seeds)
    logs: list[list[object]] = [[[], [], []] for _ in seeds]
    for turn in range(turns):
        rng = [np.random.default_rng((seed, turn)) for seed in seeds]
        pending = [r.integers(8, VOCAB, r.integers(1, 40)).tolist() for r in rng]
        for log, ids, generation in zip(logs, pending, engine.step(slots, pending, sampling), strict=True):
            log[0] += ids + generation.ids
            log[1] += [False] * len(ids) + [True] * len(generation.ids)
            log[2] += [0.0] * len(ids) + generation.logprobs
    engine.close(slots)
    return logs


@pytest.mark.parametrize("changes", [{"num_key_value_heads": 4}, {"num_key_value_heads": 1, "num_hidden_layers": 3}])
def test_other_head_groupings(changes: dict[str, object]) -> None:
    net = model(2, True, **changes)
    for ids, kinds, logprobs in talk(engine_of(net), [5, 6, 7], 3, Sampling(1.0, 9, (STOP,))):
        mask = torch.tensor(kinds[1:])
        assert torch.allclose(torch.tensor(logprobs[1:])[mask], full_logprobs(net, ids)[mask], atol=2e-5, rtol=0)


def test_long_prompts_are_prefilled_in_chunks() -> None:
    net = model(4)
    engine = engine_of(net)
    prompts = [np.random.default_rng(i).integers(8, VOCAB, n).tolist() for i, n in enumerate((300, 1, 128, 129))]
    for prompt, generation in zip(
        prompts, engine.step(engine.open([1, 2, 3, 4]), prompts, Sampling(1.0, 5, ())), strict=True
    ):
        expected = full_logprobs(net, prompt + generation.ids)[len(prompt) - 1 :]
        assert torch.allclose(torch.tensor(generation.logprobs), expected, atol=2e-5, rtol=0)


def test_a_slot_does_not_depend_on_its_neighbours() -> None:
    net, sampling = model(5), Sampling(1.0, 15, (STOP, 3, 11))
    alone = talk(engine_of(net), [42], 4, sampling)[0]
    engine = engine_of(net)
    talk(engine, [9, 8], 2, sampling)
    crowded = talk(engine, [*range(17), 42, *range(50, 60)], 4, sampling)[17]
    assert alone[0] == crowded[0]
    assert np.allclose(alone[2], crowded[2], atol=1e-5, rtol=0)


def test_any_subset_of_slots_may_step() -> None:
    net, sampling = model(6), Sampling(1.0, 6, (STOP,))
    engine = engine_of(net)
    slots = engine.open(list(range(6)))
    logs: dict[int, list[int]] = {slot: [] for slot in range(20)}
    for turn, chosen in enumerate(([0, 1, 2, 3, 4, 5], [3, 4, 5], [5, 0], [6, 4], [6, 5, 4, 3, 1, 0])):
        if turn == 3:
            engine.close([2])
            slots += engine.open([77])
        generations = engine.step([slots[i] for i in chosen], [[30 + turn]] * len(chosen), sampling)
        for i, generation in zip(chosen, generations, strict=True):
            logs[i] += [30 + turn, *generation.ids]
            expected = full_logprobs(net, logs[i])[-len(generation.ids) :]
            assert torch.allclose(torch.tensor(generation.logprobs), expected, atol=2e-5, rtol=0)


def test_loaded_weights_are_copied() -> None:
    net, sampling = model(9), Sampling(1.0, 10, ())
    weights = {name: array.copy() for name, array in arrays(net).items()}
    engine = TorchEngine(net.config.to_dict())
    engine.load(weights, 1)
    engine.step(
        engine.open([1]), [[20, 21]], sampling
    )  # makes the cache longer, which on some processors costs last bits
    expected = engine.step(engine.open([1]), [[20, 21]], sampling)
    for array in weights.values():
        array[...] = 0.0
    assert engine.step(engine.open([1]), [[20, 21]], sampling) == expected


def test_same_seed_same_draws_other_seed_other_draws() -> None:
    net, sampling = model(10), Sampling(1.0, 12, (STOP,))
    assert talk(engine_of(net), [1, 2, 3], 3, sampling) == talk(engine_of(net), [1, 2, 3], 3, sampling)
    engine = engine_of(net)
    draws = engine.step(engine.open(list(range(30))), [[20]] * 30, sampling)
    assert len({tuple(generation.ids) for generation in draws}) > 25


def test_draws_follow_the_models_distribution() -> None:
    net = model(11, initializer_range=0.05)
    engine = engine_of(net)
    draws = engine.step(engine.open(list(range(6000))), [[20, 9]] * 6000, Sampling(0.8, 1, ()))
    counts = np.bincount([generation.ids[0] for generation in draws], minlength=VOCAB)
    with torch.no_grad():
        expected = torch.softmax(net(torch.tensor([[20, 9]])).logits[0, -1] / 0.8, -1).numpy() * 6000
    assert ((counts - expected) ** 2 / expected).sum() < 110  # chi-square, 60 degrees of freedom: p < 1e-4


def test_the_context_ends_a_slot_without_a_stop() -> None:
    net = model(12, max_position_embeddings=40)
    engine = engine_of(net)
    slots = engine.open([1, 2, 3])
    full, short, over = engine.step(slots, [[20] * 35, [21], [22] * 40], Sampling(1.0, 12, ()))
    assert (len(full.ids), full.stopped) == (5, False)
    assert (len(short.ids), short.stopped) == (12, False)
    assert (over.ids, over.stopped) == ([], False)
    expected = full_logprobs(net, [20] * 35 + full.ids)[-5:]
    assert torch.allclose(torch.tensor(full.logprobs), expected, atol=2e-5, rtol=0)


def test_a_folder_is_read_like_transformers_reads_it(tmp_path: Path) -> None:
    net, sampling = model(13, False), Sampling(1.0, 8, ())
    net.save_pretrained(tmp_path)
    engine, same = create(EngineConfig(), tmp_path), engine_of(net)
    assert engine.step(engine.open([5]), [[20]], sampling) == same.step(same.open([5]), [[20]], sampling)


def test_bfloat16_is_close() -> None:
    net = model(14)
    engine = TorchEngine(net.config.to_dict(), dtype="bfloat16")
    engine.load(arrays(net), 0)
    for ids, kinds, logprobs in talk(engine, [1, 2, 3], 2, Sampling(1.0, 8, (STOP,))):
        mask = torch.tensor(kinds[1:])
        assert (torch.tensor(logprobs[1:])[mask] - full_logprobs(net, ids)[mask]).abs().mean() < 0.15


def test_bad_input_is_refused(tmp_path: Path) -> None:
    net = model(15)
    config = net.config.to_dict()
    for change in ({"model_type": "mistral"}, {"rope_parameters": {"rope_type": "yarn"}}, {"use_sliding_window": True}):
        with pytest.raises(InputError, match="Qwen2"):
            TorchEngine(config | change)
    with pytest.raises(InputError, match="config.json"):
        TorchEngine(tmp_path)
    with pytest.raises(InputError, match="dtype"):
        TorchEngine(config, dtype="int8")
    engine = TorchEngine(config)
    with pytest.raises(InputError, match="weights"):
        engine.step(engine.open([1]), [[20]], Sampling(1.0, 1, ()))
    weights = arrays(net)
    with pytest.raises(InputError, match=r"model\.norm\.weight"):
        engine.load({name: array for name, array in weights.items() if name != "model.norm.weight"}, 1)
    (tmp_path / "config.json").write_text(net.config.to_json_string())
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match="safetensors"):
        TorchEngine(tmp_path)


def test_weights_that_are_not_numbers_are_a_fault() -> None:
    net = model(16)
    weights = arrays(net) | {"model.norm.weight": np.full(32, np.nan, np.float32)}
    engine = TorchEngine(net.config.to_dict())
    engine.load(weights, 1)
    with pytest.raises(Fault, match="engine_nonfinite"):
        engine.step(engine.open([1, 2]), [[20], [21, 22]], Sampling(1.0, 4, ()))
    engine.load(arrays(net), 2)
    fresh = engine_of(net, 2)
    steps = [each.step(each.open([1]), [[20, 21]], Sampling(1.0, 4, ())) for each in (engine, fresh)]
    assert steps[0] == steps[1]


def test_a_step_of_no_slots_is_nothing() -> None:
    assert engine_of(model(18)).step([], [], Sampling(1.0, 4, ())) == []
