"""The real vLLM engine on this machine's CPU: what is vLLM's own; tests/engines/test_engine_suite.py has what every engine owes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from suite_models import VOCAB, arrays, logprobs, save
from trainruns import REPO
from vllmfactory import engine, model, needs_vllm

from ssp.base.errors import Fault, InputError
from ssp.engines.base import LiveEngine, Sampling, once

pytestmark = [pytest.mark.ray, needs_vllm, pytest.mark.timeout(600)]

FIRST, SECOND = model(1), model(2)
PROMPT = np.random.default_rng(0).integers(8, VOCAB, 70).tolist()
"""More than two blocks of the prefix cache."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One engine of the tied model FIRST, for tests that leave it usable; in a process that has numba, as a judge does."""
    import numba  # noqa: F401

    with engine(save(FIRST, tmp_path_factory.mktemp("first"))) as living:
        yield living


def worst(living: Any, net: Any) -> float:
    """Largest difference of log-probs between one long turn of two slots and `net`."""
    slots = living.open([1, 2])
    turns = living.step(slots, [PROMPT, PROMPT[:50]], Sampling(1.0, 12))
    living.close(slots)
    return max(
        float(np.abs(np.array(turn.logprobs) - logprobs(net, ids + turn.ids)[-len(turn.ids) :]).max())
        for ids, turn in zip((PROMPT, PROMPT[:50]), turns, strict=True)
    )


def test_a_load_reaches_every_layer(made: Any) -> None:
    assert isinstance(made, LiveEngine)
    for version, net in enumerate((SECOND, FIRST, SECOND, FIRST), start=10):
        made.load(arrays(net), version)
        assert worst(made, net) < 1e-4


def test_equal_prompts_are_drawn_apart_by_their_seeds_and_the_same_again(made: Any) -> None:
    """As a verifier asks that answers several times."""

    def draws() -> list[list[int]]:
        turns = once(made, [1, 2, 3], [PROMPT] * 3, Sampling(1.0, 12))
        return [turn.ids for turn in turns if not isinstance(turn, Fault)]

    first = draws()
    assert len({tuple(ids) for ids in first}) == 3 and draws() == first


def test_either_guard_keeps_old_blocks_from_new_turns_and_one_is_needed(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reset, salted in ((True, False), (False, True), (False, False)):
        made.load(arrays(FIRST), 30)
        assert worst(made, FIRST) < 1e-4  # its blocks are in the cache now
        loads = made._loads
        with monkeypatch.context() as patch:
            if not reset:
                patch.setattr(made, "_empty_cache", lambda: None)
            made.load(arrays(SECOND), 31)
        if not salted:
            made._loads = loads
        stale = worst(made, SECOND)
        assert (stale < 1e-4) is (reset or salted), (reset, salted, stale)
        made._loads = loads + 1
    made.load(arrays(FIRST), 32)


def test_weights_that_are_not_this_models_are_refused_and_nothing_changes(made: Any) -> None:
    made.load(arrays(FIRST), 50)
    weights = arrays(SECOND)
    for bad in (
        {name: array for name, array in weights.items() if name != "model.norm.weight"},
        {**weights, "model.norm.weight": np.zeros(3, np.float32)},
        {**weights, "model.other.weight": np.zeros(3, np.float32)},
    ):
        with pytest.raises(InputError, match="weights hold"):
            made.load(bad, 51)
    assert made.version == 50 and worst(made, FIRST) < 1e-4


def test_numbers_that_are_none_void_the_turns_and_leave_no_trace(made: Any) -> None:
    made.load({**arrays(FIRST), "model.norm.weight": np.full(64, np.nan, np.float32)}, 60)
    for future in [made.submit(slot, PROMPT, Sampling(1.0, 4)) for slot in made.open([1, 2])]:
        with pytest.raises(Fault, match="engine_nonfinite: version 60"):
            future.result()
    made.load(arrays(FIRST), 61)
    assert worst(made, FIRST) < 1e-4


def test_asked_for_what_it_does_not_have(made: Any) -> None:
    (slot,) = made.open([1])
    with pytest.raises(InputError, match="stays awake"):
        made.sleep()
    with pytest.raises(InputError, match="vocabulary of 97"):  # which would end vLLM
        made.submit(slot, [5, VOCAB], Sampling(1.0, 4))
    assert len(made.step([slot], [PROMPT], Sampling(1.0, 4))[0].ids) == 4


def test_engines_live_side_by_side_and_a_dead_one_fails_everybody_loudly(made: Any, tmp_path: Path) -> None:
    """Also bfloat16, in the engine that dies."""
    made.load(arrays(FIRST), 70)
    with engine(save(SECOND, tmp_path), dtype="bfloat16") as other:
        assert 1e-4 < worst(other, SECOND) < 0.5
        slots = other.open([1, 2])
        flying = other.submit(slots[0], PROMPT, Sampling(1.0, 400))
        other._vllm.step = _broken
        with pytest.raises(Fault, match="engine_down: RuntimeError: no such kernel"):
            flying.result()
        with pytest.raises(Fault, match="engine_down"):
            other.submit(slots[1], PROMPT, Sampling(1.0, 4)).result()
        with pytest.raises(Fault, match="engine_down"):
            other.load(arrays(FIRST), 1)
    assert worst(made, FIRST) < 1e-4


def _broken() -> None:
    raise RuntimeError("no such kernel")


def test_models_that_vllm_cannot_run_are_refused_at_the_start(tmp_path: Path) -> None:
    from ssp.config.role import EngineConfig
    from ssp.engines.vllm.engine import VllmEngine

    narrow = save(model(3, head_dim=16), tmp_path / "narrow")
    with pytest.raises(InputError, match="heads are 32"):
        VllmEngine(narrow, EngineConfig(kind="vllm"))
    with pytest.raises(InputError, match="max_num_seqs"):
        VllmEngine(save(FIRST, tmp_path / "first"), EngineConfig(kind="vllm", sequences=4000))


PARALLEL = """
import sys
from suite_models import *
from vllmfactory import *
from pathlib import Path
import json
from ssp.engines.base import Sampling
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with engine(folder, tensor_parallel=2) as made:
        drawn = []
        for net in (model(1, num_key_value_heads=2), model(2, num_key_value_heads=2)):
            made.load(arrays(net), len(drawn) + 1)
            turn = made.step(made.open([1]), [json.loads(sys.argv[2])], Sampling(1.0, 8))[0]
            drawn.append((turn.ids, turn.logprobs))
        print(json.dumps({"drawn": drawn}), flush=True)
"""


@pytest.mark.long  # three processes that import vLLM
def test_two_ranks_have_a_head_of_the_tied_model_each(tmp_path: Path) -> None:
    nets = [model(seed, num_key_value_heads=2) for seed in (1, 2)]
    folder, script = save(nets[0], tmp_path / "model"), tmp_path / "parallel.py"
    script.write_text(PARALLEL)
    path = os.pathsep.join([str(REPO), str(REPO / "tests" / "engines")])
    typed = [sys.executable, str(script), str(folder), json.dumps(PROMPT)]
    done = subprocess.run(typed, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    for net, (ids, found) in zip(nets, told["drawn"], strict=True):
        assert np.abs(np.array(found) - logprobs(net, PROMPT + ids)[-8:]).max() < 1e-4
