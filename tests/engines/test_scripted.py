"""The scripted engine keeps the engine interface."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError, InvariantError
from ssp.config.role import EngineConfig
from ssp.engines import Sampling, ScriptedEngine, create


def count_up(history: list[int], seed: int, turn: int) -> list[int]:
    return [history[-1] + 1, seed, 100 + turn, 9, 9]


def test_a_script_sees_history_seed_and_turn() -> None:
    engine = ScriptedEngine(count_up)
    engine.load({}, 5)
    slots = engine.open([40, 50])
    first = engine.step(slots, [[1, 2], [3]], Sampling(1.0, 10, (9,)))
    second = engine.step(slots[1:], [[7]], Sampling(1.0, 2, (9,)))
    assert [g.ids for g in first] == [[3, 40, 100, 9], [4, 50, 100, 9]]
    assert (second[0].ids, second[0].stopped) == ([8, 50], False)
    assert first[0].logprobs == [0.0] * 4
    assert (first[0].version, first[0].stopped) == (5, True)


def test_load_and_close_forget_slots() -> None:
    engine = ScriptedEngine(count_up)
    slots = engine.open([1, 2])
    engine.close(slots[:1])
    engine.close(slots[:1])
    with pytest.raises(InvariantError):
        engine.step(slots, [[1], [1]], Sampling(1.0, 1, ()))
    engine.load({}, 1)
    with pytest.raises(InvariantError):
        engine.step(slots[1:], [[1]], Sampling(1.0, 1, ()))


def test_steps_need_distinct_slots_and_one_pending_each() -> None:
    engine = ScriptedEngine(count_up)
    slot = engine.open([1])[0]
    for slots, pending in (([slot, slot], [[1], [1]]), ([slot], [])):
        with pytest.raises(InvariantError):
            engine.step(slots, pending, Sampling(1.0, 1, ()))


def test_create_names_the_known_kinds() -> None:
    with pytest.raises(InputError, match=r"engine\.kind=torch or vllm"):
        create(EngineConfig(kind="scripted"), "")
