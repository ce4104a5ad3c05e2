"""What every engine of ours must do, against transformers: the same tests for all of them (`KINDS`)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from suite_models import STOP, VOCAB, after_switch, arrays, greedy, logprobs, network, save
from vllmfactory import needs_vllm

from ssp.base.errors import Fault, InputError, InvariantError
from ssp.base.shape import FAMILIES
from ssp.config.role import EngineConfig
from ssp.engines import Engine, Generation, Sampling, StopWords
from ssp.engines.base import LiveEngine
from ssp.engines.torch_engine import ContinuousEngine, TorchEngine

MODEL = "qwen2-tied"  # tied: an engine that packs its output head apart must pack it again
CLOSE = 1e-4
COLD = 1e-5
KINDS = {"torch": TorchEngine, "continuous": ContinuousEngine, "vllm": None}
"""By name; vLLM's, which is imported where it is made, always has a prefix cache."""
_VLLM = (pytest.mark.ray, needs_vllm)
EACH = [pytest.param(name, marks=_VLLM if name == "vllm" else ()) for name in KINDS]
LIVE = EACH[1:]


class Garage:
    """Engines by kind, model and setting, made when first asked for; their weights are those of `network(model)` again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._engines: dict[tuple[str, str, bool, int], Engine] = {}
        self._version = 0

    def take(self, kind: str, model: str = MODEL, prefix_cache: bool = True) -> Engine:
        """An engine that others may have used, without any slots."""
        engine = self._made(kind, model, prefix_cache, 0)
        self._version += 1
        engine.load(arrays(network(model)), self._version)
        return engine

    def live(self, kind: str) -> LiveEngine:
        """The same, of a live kind."""
        engine = self.take(kind)
        assert isinstance(engine, LiveEngine)
        return engine

    def cold(self, kind: str, seed: int) -> Engine:
        """An engine that never had other weights than `network(MODEL, seed)`."""
        return self._made(kind, MODEL, True, seed)

    def _made(self, kind: str, model: str, prefix_cache: bool, seed: int) -> Engine:
        key = (kind, model, prefix_cache, seed)
        if key not in self._engines:
            folder = self._folder / f"{model}-{seed}"
            if not folder.exists():
                save(network(model, seed), folder)
            if (embedded := KINDS[kind]) is None:
                from ssp.engines.vllm.engine import VllmEngine

                self._engines[key] = VllmEngine(folder, EngineConfig(kind="vllm", sequences=64))
            else:
                self._engines[key] = embedded(folder, prefix_cache=prefix_cache)
        return self._engines[key]

    def stop(self) -> None:
        for engine in self._engines.values():
            if isinstance(engine, LiveEngine):
                engine.stop()


@pytest.fixture(scope="module")
def garage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garage]:
    made = Garage(tmp_path_factory.mktemp("models"))
    yield made
    made.stop()


def prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(8, VOCAB, length).tolist()


def close_to(found: Sequence[float], expected: Sequence[float], tolerance: float = CLOSE) -> bool:
    return len(found) == len(expected) and np.allclose(found, expected, atol=tolerance, rtol=0)


def fresh(engine: Engine, ids: list[int], sampling: Sampling) -> Generation:
    """One turn of a new slot, which is closed again."""
    slots = engine.open([3])
    (generation,) = engine.step(slots, [ids], sampling)
    engine.close(slots)
    return generation


class Progress:
    """Stop words that never stop: they hear of every token, and tell when a turn has `enough` of them.

    A token takes a while from then on, so that who hears of it comes in time.
    """

    def __init__(self, enough: int = 24) -> None:
        self._left = enough
        self.reached = threading.Event()
        self.words = StopWords(["\x00"], self._heard)

    def _heard(self, ids: Sequence[int]) -> str:
        self._left -= 1
        if self._left <= 0:
            self.reached.set()
            time.sleep(0.004)
        return "\ufffd"  # part of a character: no engine may rule it out by the token alone


@pytest.mark.covers("SR-11")
@pytest.mark.parametrize("model", [f"{family}-{head}" for family in FAMILIES for head in ("tied", "own")])
@pytest.mark.parametrize("kind", EACH)
def test_greedy_text_is_that_of_transformers(garage: Garage, kind: str, model: str) -> None:
    if kind == "vllm" and model.endswith("own"):
        pytest.skip("one head a family is enough for an engine that takes seconds to start")
    net, engine = network(model), garage.take(kind, model)
    prompts = [prompt(i, 3 + 37 * i) for i in range(5)]
    sampling = Sampling(0.0, 24, (STOP,))
    runs = [engine.step(engine.open([0] * 5), prompts, sampling) for _ in range(2)]
    for ids, first, second in zip(prompts, *runs, strict=True):
        assert first.ids == second.ids == greedy(net, ids, 24)
        assert first.stopped == (first.ids[-1] == STOP)
        assert close_to(first.logprobs, logprobs(net, ids + first.ids)[len(ids) - 1 :])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", EACH)
def test_log_probs_over_turns_and_observations(garage: Garage, kind: str, temperature: float) -> None:
    net, engine = network(MODEL), garage.take(kind)
    slots = engine.open(list(range(12)))
    logs: list[tuple[list[int], list[int], list[float]]] = [([], [], []) for _ in slots]
    for turn in range(3):
        pending = [prompt(100 * turn + slot, 1 + (slot * 7) % 30) for slot in range(12)]
        generations = engine.step(slots, pending, Sampling(temperature, 10, (STOP, 9)))
        for (ids, places, found), new, generation in zip(logs, pending, generations, strict=True):
            ids += new
            places += range(len(ids), len(ids) + len(generation.ids))
            ids += generation.ids
            found += generation.logprobs
    assert any(len(places) < 30 for _, places, _ in logs), "some must stop early"
    for ids, places, found in logs:
        expected = logprobs(net, ids, temperature)
        assert close_to(found, [expected[place - 1] for place in places])


@pytest.mark.covers("SR-27")
@pytest.mark.parametrize("kind", EACH)
def test_stop_strings_over_the_borders_of_tokens(garage: Garage, kind: str) -> None:
    net, engine = network(MODEL), garage.take(kind)
    texts = [("ab", "b<", "<", "/", "/a", "a>", ">", "> b", "é<")[id % 9] for id in range(VOCAB)]

    def decode(ids: Sequence[int]) -> str:
        return "".join(texts[id] for id in ids)

    words, n = ("</", "/a>"), 40
    prompts = [prompt(i, 5) for i in range(n)]
    generations = engine.step(
        engine.open(list(range(n))), prompts, Sampling(1.0, 12, (STOP,), StopWords(words, decode))
    )
    over = 0
    for ids, generation in zip(prompts, generations, strict=True):
        *before, last = generation.ids
        text = decode(generation.ids)
        assert not any(word in decode(before) for word in words) and STOP not in before
        hit = any(word in text for word in words)
        assert generation.stopped == (hit or last == STOP)
        assert generation.stopped or len(generation.ids) == 12
        assert close_to(generation.logprobs, logprobs(net, ids + generation.ids)[len(ids) - 1 :])
        over += hit and not any(text.endswith(word) for word in words)
    assert over, "what was sampled stays whole where a token goes on after the stop string"


@pytest.mark.parametrize("kind", EACH)
def test_after_a_sync_an_engine_is_like_a_cold_one(garage: Garage, kind: str) -> None:
    engine, cold = garage.take(kind), garage.cold(kind, 1)
    ids, sampling = prompt(0, 200), Sampling(0.0, 30, ())  # longer than a block of any prefix cache
    slots = engine.open([1, 2])
    before = engine.step(slots, [ids, ids[:150]], sampling)
    engine.load(arrays(network(MODEL, 1)), 1000)
    with pytest.raises(InvariantError, match="load"):
        engine.step(slots, [[22], [22]], sampling)
    engine.close(slots)
    after, expected = fresh(engine, ids, sampling), fresh(cold, ids, sampling)
    assert after.version == 1000 and after.versions is None
    assert after.ids == expected.ids != before[0].ids
    assert close_to(after.logprobs, expected.logprobs, COLD)
    assert close_to(after.logprobs, logprobs(network(MODEL, 1), ids + after.ids)[199:])


@pytest.mark.parametrize("kind", EACH)
def test_weights_that_lack_a_tensor_are_refused_and_the_old_ones_stay(garage: Garage, kind: str) -> None:
    """Or have one of another shape. No slot is forgotten, and no token is drawn by the refused version."""
    engine, whole = garage.take(kind), arrays(network(MODEL, 1))
    ids, version, sampling = prompt(4, 60), engine.version, Sampling(0.0, 12, ())
    slots = engine.open([1])
    (before,) = engine.step(slots, [ids], sampling)
    for keep in (False, True) if isinstance(engine, LiveEngine) else (False,):
        for name, array in whole.items():
            for wrong in ({}, {name: array[..., :-1]}):
                rest = {other: whole[other] for other in whole if other != name}
                with pytest.raises(InputError, match=re.escape(name)):
                    engine.load(rest | wrong, version + 1, keep)
    assert engine.version == version
    (after,) = engine.step(slots, [[20, 21]], sampling)
    assert before.version == after.version == version and after.versions is None
    read = ids + before.ids + [20, 21] + after.ids
    assert close_to(after.logprobs, logprobs(network(MODEL), read)[-len(after.ids) :])


@pytest.mark.parametrize("kind", EACH)
def test_a_shared_prompt_changes_nothing(garage: Garage, kind: str) -> None:
    ids, other = prompt(1, 180), prompt(2, 128)  # one piece of a prefill, to the token, and more
    found = []
    for on in (True, False):
        engine = garage.take(kind, prefix_cache=on)
        fresh(engine, ids, Sampling(0.0, 4, ()))
        pending = [ids, other, ids, ids, other, ids[:-1] + [9]]
        slots = engine.open(list(range(6)))
        first = engine.step(slots[:4], pending[:4], Sampling(0.0, 8, ()))
        rest = engine.step(slots[4:], pending[4:], Sampling(0.0, 8, ()))
        again = engine.step(slots, [[11, 12]] * 6, Sampling(0.0, 8, ()))
        found.append([first + rest, again])
    net = network(MODEL)
    for shared, alone in zip(*(turns[0] + turns[1] for turns in found), strict=True):
        assert shared.ids == alone.ids
        assert close_to(shared.logprobs, alone.logprobs, COLD)
    for given, one, two in zip(pending, *found[0], strict=True):
        whole = given + one.ids + [11, 12] + two.ids
        assert close_to(two.logprobs, logprobs(net, whole)[-8:])


@pytest.mark.parametrize("kind", LIVE)
def test_new_weights_in_the_middle_of_a_turn(garage: Garage, kind: str) -> None:
    engine, old, new = garage.live(kind), network(MODEL), network(MODEL, 1)
    ids, first = prompt(3, 200), engine.version
    waiting, running = engine.open([1, 2])
    engine.step([waiting], [ids], Sampling(0.0, 1, ()))
    progress = Progress()
    future = engine.submit(running, ids, Sampling(1.0, 200, (), progress.words))
    assert progress.reached.wait(60)
    engine.load(arrays(new), first + 1, keep=True)
    turn = future.result(60)
    assert turn.versions is not None and len(turn.versions) == len(turn.ids) == 200
    switch = turn.versions.index(first + 1)
    assert turn.versions == [first] * switch + [first + 1] * (200 - switch)
    assert 5 <= switch < 200 and turn.version == first + 1
    assert close_to(turn.logprobs[:switch], logprobs(old, ids + turn.ids)[199:][:switch])
    expected = after_switch(old, new, ids + turn.ids, 200 + switch)
    assert close_to(turn.logprobs[switch:], expected)
    # A slot that opens now reads no key of the old version, although an open slot has the same prompt.
    sampling = Sampling(0.0, 20, ())
    late, cold = fresh(engine, ids, sampling), fresh(garage.cold(kind, 1), ids, sampling)
    assert late.ids == cold.ids and late.versions is None and late.version == first + 1
    assert close_to(late.logprobs, cold.logprobs, COLD)
    (more,) = engine.step([running], [[20, 21]], sampling)
    assert len(more.ids) == 20 and more.version == first + 1, "slots go on"


@pytest.mark.parametrize("kind", LIVE)
def test_a_plain_load_aborts_what_is_under_way(garage: Garage, kind: str) -> None:
    engine, progress = garage.live(kind), Progress()
    slots = engine.open([1])
    future = engine.submit(slots[0], [20, 21], Sampling(1.0, 300, (), progress.words))
    assert progress.reached.wait(60)
    engine.load(arrays(network(MODEL, 1)), engine.version + 1)
    with pytest.raises(Fault, match="aborted"):
        future.result(60)
    with pytest.raises(InvariantError, match="load"):
        engine.submit(slots[0], [22], Sampling(1.0, 3, ()))


@pytest.mark.parametrize("kind", LIVE)
def test_a_slot_that_closes_ends_its_turn(garage: Garage, kind: str) -> None:
    engine, progress = garage.live(kind), Progress()
    slots = engine.open([1, 2])
    future = engine.submit(slots[0], [20, 21], Sampling(1.0, 300, (), progress.words))
    with pytest.raises(InvariantError, match="under way"):
        engine.submit(slots[0], [20], Sampling(1.0, 3, ()))
    assert progress.reached.wait(60)
    engine.close(slots[:1])
    with pytest.raises(Fault, match="aborted"):
        future.result(60)
    assert len(engine.step(slots[1:], [[20, 21]], Sampling(1.0, 5, ()))[0].ids) == 5
