"""The free-running embedded engine: equal to the lock-step one, failures that reach who they hit, a thread that ends."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, wait

import numpy as np
import pytest
from suite_models import STOP, VOCAB, arrays, logprobs, network

from ssp.base.errors import Fault
from ssp.engines import Generation, Sampling
from ssp.engines.torch_engine import ContinuousEngine, TorchEngine

MODEL = "qwen2-tied"
NET = network(MODEL)


def made(version: int = 0) -> ContinuousEngine:
    engine = ContinuousEngine(NET.config.to_dict())
    engine.load(arrays(NET), version)
    return engine


def words(seed: int, turn: int) -> list[int]:
    rng = np.random.default_rng((seed, turn))
    return rng.integers(8, VOCAB, int(rng.integers(1, 30))).tolist()


def test_turns_that_come_and_go_equal_the_lock_step_engine() -> None:
    """60 slots of 1 to 4 turns, each asked for as soon as the one before is there; different samplings side by side."""
    n, engine, steady = 60, made(), TorchEngine(NET.config.to_dict())
    steady.load(arrays(NET), 0)
    samplings = [Sampling(1.0, 12, (STOP,)), Sampling(0.7, 5, (STOP, 9, 11)), Sampling(0.0, 17, ())]
    slots, found = engine.open(list(range(n))), dict[int, list[Generation]]((i, []) for i in range(n))
    flying: dict[Future[Generation], int] = {}

    def go(i: int) -> None:
        flying[engine.submit(slots[i], words(i // 2, len(found[i])), samplings[i % 3])] = i

    for i in range(n):
        go(i)
    while flying:
        for future in wait(flying, return_when=FIRST_COMPLETED).done:
            i = flying.pop(future)
            found[i].append(future.result())
            if len(found[i]) <= i % 4:
                go(i)
    for i in range(n):
        (slot,) = steady.open([i])
        for turn, generation in enumerate(found[i]):
            (expected,) = steady.step([slot], [words(i // 2, turn)], samplings[i % 3])
            assert (generation.ids, generation.stopped) == (expected.ids, expected.stopped)
            assert np.allclose(generation.logprobs, expected.logprobs, atol=2e-5, rtol=0)
    engine.stop()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_a_finished_row_writes_reaches_no_other(dtype: str) -> None:
    """It goes on writing behind its last token until the batch is moved together: no number of it may stay where another
    slot's row then lies, which grows past it."""
    weights = {name: array.copy() for name, array in arrays(NET).items()}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    weights["model.embed_tokens.weight"][50] = np.nan  # which no other slot draws
    engine = TorchEngine(NET.config.to_dict() | {"tie_word_embeddings": False}, dtype)
    engine.load(weights, 1)
    slots = engine.open(list(range(8)))
    prompts = [[1, 2, 3, 10 + i] for i in range(8)]
    prompts[0], prompts[2] = [5] * 18, [8] * 19 + [50]
    futures = [engine.claim(slot) for slot in slots]
    for i, (slot, ids, future) in enumerate(zip(slots, prompts, futures, strict=True)):
        engine.admit(slot, ids, Sampling(0.0, 5 if i == 2 else 15, ()), future)
    while engine.busy():
        engine.advance()
    assert [i for i, future in enumerate(futures) if future.exception()] == [2]


def test_a_turn_whose_numbers_are_none_is_a_fault_of_its_own() -> None:
    """Weights with a NaN in the embedding of one id: turns that read it fail, their neighbours never notice."""
    engine, weights = made(), {name: array.copy() for name, array in arrays(NET).items()}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    untied = ContinuousEngine(NET.config.to_dict() | {"tie_word_embeddings": False})
    weights["model.embed_tokens.weight"][50] = np.nan
    untied.load(weights, 1)
    slots = untied.open([1, 2, 3])
    sampling = Sampling(0.0, 12, ())
    futures = [untied.submit(slot, ids, sampling) for slot, ids in zip(slots, ([20], [21, 50], [22]), strict=True)]
    with pytest.raises(Fault, match="engine_nonfinite"):
        futures[1].result(60)
    fine = [futures[0].result(60), futures[2].result(60)]
    expected = engine.step(engine.open([1, 2]), [[20], [22]], sampling)
    assert all(50 not in generation.ids for generation in fine), "the greedy texts do not hold it either"
    assert [generation.ids for generation in fine] == [generation.ids for generation in expected]
    again = untied.step(untied.open([5]), [[20]], sampling)[0]
    assert again.ids == fine[0].ids, "the row that it had is clean"
    untied.stop()
    engine.stop()


def test_an_error_of_the_thread_reaches_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made()
    slots = engine.open([1, 2, 3])
    engine.step(slots, [[20]] * 3, Sampling(1.0, 2, ()))

    def broken(*args: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("ssp.engines.decoder.Decoder.decode", broken)
    futures = [engine.submit(slot, [21], Sampling(1.0, 9, ())) for slot in slots]
    for future in futures:
        with pytest.raises(RuntimeError, match="out of luck"):
            future.result(60)
    with pytest.raises(RuntimeError, match="out of luck"):
        engine.submit(slots[0], [21], Sampling(1.0, 9, ())).result(60)
    engine.stop()


def test_stop_aborts_and_ends_the_thread() -> None:
    before = threading.active_count()
    engine = made()
    future = engine.submit(engine.open([1])[0], [20], Sampling(1.0, 500, ()))
    engine.stop()
    with pytest.raises(Fault, match="aborted"):
        future.result(60)
    assert threading.active_count() == before


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each prefill call reads from now on."""
    from ssp.engines.decoder import Decoder

    read = list[int]()
    prefill = Decoder.prefill

    def counting(self: Decoder, cache: object, pieces: object) -> object:
        read.append(sum(len(piece.ids) for piece in pieces))  # type: ignore[attr-defined]
        return prefill(self, cache, pieces)  # type: ignore[arg-type]

    monkeypatch.setattr(Decoder, "prefill", counting)
    return read


def test_the_prompt_of_an_open_slot_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, read = made(), counted(monkeypatch)
    prompt, sampling = words(1, 1) + list(range(30, 70)), Sampling(1.0, 6, ())
    first = engine.step(engine.open([1, 2, 3]), [prompt] * 3, sampling)
    later = engine.step(engine.open([4, 1]), [prompt] * 2, sampling)
    assert sum(read) <= 3 * len(prompt) + 2, "a group that comes one by one may be admitted one by one"
    assert read[-1] <= 2, "of a prompt that an open slot holds only the last id is left"
    assert later[1].ids == first[0].ids
    for generation in (*first, *later):
        expected = logprobs(NET, prompt + generation.ids)[len(prompt) - 1 :]
        assert np.allclose(generation.logprobs, expected, atol=1e-4, rtol=0)
    engine.stop()


def test_what_slots_read_after_the_same_text_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts that search for the same are shown the same; one that was shown something else reads its own."""
    engine, read = made(), counted(monkeypatch)
    prompt, greedy = list(range(30, 60)), Sampling(0.0, 5, ())
    shown, other = [20 + place % 40 for place in range(80)], [21 + place % 40 for place in range(80)]
    slots = engine.open([1, 2, 3, 4])
    first = engine.step(slots, [prompt] * 4, greedy)
    del read[:]
    given = [shown, shown, other, shown]
    second = engine.step(slots, given, greedy)
    assert sum(read) <= 2 * (1 + len(shown)) + 2 * 2, "each observation once; who comes later reads its last id"
    late = engine.open([5])
    engine.step(late, [prompt], greedy)
    del read[:]
    third = engine.step(late, [shown], greedy)
    assert sum(read) <= 2, "what an open slot holds is copied"
    assert third[0].ids == second[0].ids
    for generation, ids in zip((*second, *third), (*given, shown), strict=True):
        whole = prompt + first[0].ids + ids + generation.ids
        assert np.allclose(generation.logprobs, logprobs(NET, whole)[-len(generation.ids) :], atol=1e-4, rtol=0)
    engine.stop()


@pytest.mark.parametrize("seed", range(3))
def test_slots_that_come_and_go_read_the_same_with_a_prefix_cache(seed: int) -> None:
    """Any order of opening, closing, turns and new weights: a slot's tokens are those that it has alone."""
    rng = np.random.default_rng(seed)
    texts = [[int(id_) for id_ in rng.integers(20, 60, size)] for size in (70, 64, 5)]
    weights, others = arrays(NET), arrays(network(MODEL, 1))
    found = []
    for on in (True, False):
        engine = ContinuousEngine(NET.config.to_dict(), prefix_cache=on)
        engine.load(weights, 0)
        draws, slots, told = np.random.default_rng(seed + 100), list[int](), list[float]()
        for version in range(1, 40):
            while len(slots) < 6:
                slots += engine.open([int(draws.integers(2))])
            given = [texts[draws.choice(3, p=[0.7, 0.2, 0.1])] for _ in slots]
            turns = engine.step(slots, given, Sampling(1.0, int(draws.integers(1, 6)), ()))
            for turn in turns:
                told += [*turn.ids, *turn.logprobs]
            leaving = [slot for slot in slots if draws.random() < 0.2]
            engine.close(leaving)
            slots = [slot for slot in slots if slot not in leaving]
            if draws.random() < 0.2:
                engine.load(others, version, keep=True)
        engine.stop()
        found.append(told)
    assert np.allclose(*found, atol=1e-4, rtol=0)


@pytest.mark.parametrize("how", ["finished", "closed", "loaded"])
def test_turns_under_weights_that_are_not_numbers_leave_nothing_behind(how: str) -> None:
    """However they end, and whenever: their rows are clean for the slots that get them next."""
    name, weights = "model.layers.0.input_layernorm.weight", arrays(NET)
    engine = TorchEngine(NET.config.to_dict())
    engine.load(weights | {name: np.full_like(weights[name], np.nan)}, 1)
    slots = engine.open(list(range(8)))
    futures = [engine.claim(slot) for slot in slots]
    for slot, future in zip(slots, futures, strict=True):
        engine.admit(slot, [20] * 40, Sampling(1.0, 2 if slot == slots[0] else 12, ()), future)
    engine.advance()
    while how == "finished" and engine.busy():
        engine.advance()
    if how == "closed":
        engine.close(slots)
    engine.load(weights, 2)
    for future in futures:
        with pytest.raises(Fault, match="engine_nonfinite" if how == "finished" else "aborted"):
            future.result(0)
    clean = engine.step(engine.open([1, 2]), [[20], [21] * 40], Sampling(1.0, 4, ()))
    assert all(len(generation.ids) == 4 for generation in clean)
