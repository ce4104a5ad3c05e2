"""The torch engine against transformers: log-probs, greedy decoding, caches, seeds, versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from suite_models import STOP, VOCAB, arrays, logprobs, network
from transformers import PreTrainedModel

from ssp.base.errors import InputError
from ssp.engines import Sampling
from ssp.engines.torch_engine import TorchEngine

NAME = "qwen2-tied"


def engine_of(net: PreTrainedModel, version: int = 0, dtype: str = "float32") -> TorchEngine:
    engine = TorchEngine(net.config.to_dict(), dtype)
    engine.load(arrays(net), version)
    return engine


def close(net: PreTrainedModel, ids: list[int], found: list[float]) -> bool:
    """Whether these are the log-probs of the last ids."""
    return np.allclose(found, logprobs(net, ids)[-len(found) :], atol=2e-5, rtol=0)


def talk(engine: TorchEngine, seeds: list[int], turns: int, sampling: Sampling) -> list[tuple[list[int], list[float]]]:
    """Play `turns` turns with ragged prompts and observations: ids of each slot, and log-probs (NaN where not drawn)."""
    slots = engine.open(seeds)
    logs: list[tuple[list[int], list[float]]] = [([], []) for _ in seeds]
    for turn in range(turns):
        rng = [np.random.default_rng((seed, turn)) for seed in seeds]
        pending = [r.integers(8, VOCAB, r.integers(1, 40)).tolist() for r in rng]
        for (whole, found), ids, generation in zip(logs, pending, engine.step(slots, pending, sampling), strict=True):
            whole += ids + generation.ids
            found += [np.nan] * len(ids) + generation.logprobs
    engine.close(slots)
    return logs


def worst(net: PreTrainedModel, logs: list[tuple[list[int], list[float]]]) -> float:
    """Largest difference of what was drawn to one forward of transformers."""
    return max(float(np.nanmax(np.abs(np.array(found[1:]) - logprobs(net, ids)))) for ids, found in logs)


@pytest.mark.parametrize("changes", [{"num_key_value_heads": 4}, {"num_key_value_heads": 1, "num_hidden_layers": 3}])
def test_other_head_groupings(changes: dict[str, int]) -> None:
    net = network(NAME, 2, **changes)
    assert worst(net, talk(engine_of(net), [5, 6, 7], 3, Sampling(1.0, 9, (STOP,)))) < 2e-5


def test_loaded_weights_are_copied() -> None:
    net, sampling = network(NAME, 9), Sampling(1.0, 10, ())
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
    net, sampling = network(NAME, 10), Sampling(1.0, 12, (STOP,))
    one, two = (talk(engine_of(net), [1, 2, 3], 3, sampling) for _ in range(2))
    assert all(a[0] == b[0] and np.array_equal(a[1], b[1], equal_nan=True) for a, b in zip(one, two, strict=True))
    engine = engine_of(net)
    draws = engine.step(engine.open(list(range(30))), [[20]] * 30, sampling)
    assert len({tuple(generation.ids) for generation in draws}) > 25


def test_draws_follow_the_models_distribution() -> None:
    net = network(NAME, 11, initializer_range=0.05)
    engine = engine_of(net)
    draws = engine.step(engine.open(list(range(6000))), [[20, 9]] * 6000, Sampling(0.8, 1, ()))
    counts = np.bincount([generation.ids[0] for generation in draws], minlength=VOCAB)
    with torch.no_grad():
        expected = torch.softmax(net(torch.tensor([[20, 9]])).logits[0, -1] / 0.8, -1).numpy() * 6000
    assert ((counts - expected) ** 2 / expected).sum() < 156  # chi-square, 96 degrees of freedom: p < 1e-4


def test_the_context_ends_a_slot_without_a_stop() -> None:
    net = network(NAME, 12, max_position_embeddings=40)
    engine = engine_of(net)
    slots = engine.open([1, 2, 3])
    full, short, over = engine.step(slots, [[20] * 35, [21], [22] * 40], Sampling(1.0, 12, ()))
    assert (len(full.ids), full.stopped) == (5, False)
    assert (len(short.ids), short.stopped) == (12, False)
    assert (over.ids, over.stopped) == ([], False)
    assert close(net, [20] * 35 + full.ids, full.logprobs)


def test_the_cache_has_room_for_what_can_be_written() -> None:
    """Not for what was asked for; stop ids that the model has no row for are never drawn."""
    net = network(NAME, 12, max_position_embeddings=200)
    engine = engine_of(net)
    engine.step(engine.open([1]), [[20] * 150], Sampling(1.0, 100_000, (STOP, 10**6)))
    assert engine.rows.cache.length <= 256
    engine.step(engine.open([2]), [[20] * 190], Sampling(1.0, 100_000, (STOP,)))
    assert engine.rows.cache.length <= 256


def test_an_id_beyond_the_vocabulary_is_its_own_slots_error() -> None:
    net = network(NAME, 12)
    engine = engine_of(net)
    slots = engine.open([1, 2])
    bad, good = engine.claim(slots[0]), engine.claim(slots[1])
    engine.admit(slots[0], [net.config.vocab_size], Sampling(1.0, 4, ()), bad)
    engine.admit(slots[1], [20], Sampling(1.0, 4, ()), good)
    while engine.busy():
        engine.advance()
    assert len(good.result().ids) == 4
    with pytest.raises(InputError, match="below the vocabulary's size"):
        bad.result()


def test_bfloat16_is_close() -> None:
    net = network(NAME, 14)
    engine = engine_of(net, dtype="bfloat16")
    for ids, found in talk(engine, [1, 2, 3], 2, Sampling(1.0, 8, (STOP,))):
        assert np.nanmean(np.abs(np.array(found[1:]) - logprobs(net, ids))) < 0.03
    assert {tensor.dtype for tensor in (*engine.rows.cache.keys, *engine.rows.cache.values)} == {torch.bfloat16}


def test_bad_input_is_refused(tmp_path: Path) -> None:
    net = network(NAME, 15)
    config = net.config.to_dict()
    with pytest.raises(InputError, match="use_sliding_window"):
        TorchEngine(config | {"use_sliding_window": True})
    with pytest.raises(InputError, match="config.json"):
        TorchEngine(tmp_path)
    engine = TorchEngine(config)
    with pytest.raises(InputError, match="weights"):
        engine.step(engine.open([1]), [[20]], Sampling(1.0, 1, ()))
    with pytest.raises(InputError, match="at least one token"):
        (empty := engine_of(net)).step(empty.open([1]), [[]], Sampling(1.0, 1, ()))
    weights = arrays(net)
    with pytest.raises(InputError, match=r"model\.norm\.weight"):
        engine.load({name: array for name, array in weights.items() if name != "model.norm.weight"}, 1)
    (tmp_path / "config.json").write_text(net.config.to_json_string())
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match="safetensors"):
        TorchEngine(tmp_path)
