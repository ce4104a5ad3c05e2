"""Decoding by graphs, which here compute anew each time: the same text, in the same places of the cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from suite_models import STOP, arrays, network
from torch import Tensor

from ssp.engines import Generation, Sampling
from ssp.engines.graphs import Graphs, recorder
from ssp.engines.torch_engine import TorchEngine


class Recorder:
    """Records functions; `times`: how many."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, compute: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.times += 1
        made = compute()

        def again() -> None:
            made.copy_(compute())

        return again, made


def talk(graphs: Recorder | None) -> list[Generation]:
    """Two turns of slots that end one by one, others that wait meanwhile, and new weights between them."""
    net, other = network("llama-own"), network("llama-own", 1)
    engine = TorchEngine(net.config.to_dict())
    engine.load(arrays(net), 1)
    if graphs is not None:
        assert engine.rows.model is not None
        engine.rows._graphs = Graphs(engine.rows.model, lambda: graphs)
    slots = engine.open(list(range(20)))
    found = engine.step(slots, [[10 + i] * (1 + 9 * i % 70) for i in range(20)], Sampling(1.0, 30, (STOP,)))
    found += engine.step(slots[:3], [[20, 21], [22], []], Sampling(0.7, 40))
    found += engine.step(slots[3:], [[30 + i] * (i % 5 + 1) for i in range(17)], Sampling(0.7, 25, (STOP,)))
    engine.load(arrays(other), 2)
    return found + engine.step(engine.open([1, 2]), [[11, 12], [13]], Sampling(0.0, 20))


def test_the_same_text_and_few_recordings() -> None:
    plain, recorder = talk(None), Recorder()
    for one, other in zip(plain, talk(recorder), strict=True):
        assert replace(other, logprobs=one.logprobs) == one
        assert other.logprobs == pytest.approx(one.logprobs, abs=1e-5)
    assert recorder.times <= 6, "one for 16 rows and one for 32, each time that the cache has grown"


@pytest.mark.parametrize("broken", [False, True])
def test_rows_that_wait_keep_what_they_have_read(broken: bool) -> None:
    """Also when the weights are no numbers: a masked number that is none still counts."""
    net = network("llama-own")
    engine = TorchEngine(net.config.to_dict())
    engine.load(arrays(net), 1)
    engine.step(engine.open([1, 2, 3]), [[10] * 5, [11] * 40, [12] * 64], Sampling(0.0, 1))
    rows = engine.rows
    assert rows.model is not None
    graphs = Graphs(rows.model, Recorder)
    rows.cache.reserve(16, rows.cache.length)  # as the first call does
    before = [tensor.clone() for tensor in (*rows.cache.keys, *rows.cache.values)]
    if broken:
        rows.model.become(engine.decoder({name: array * np.nan for name, array in arrays(net).items()}))
    with torch.inference_mode():
        for _ in range(2):
            graphs.decode(rows.cache, torch.tensor([7]), torch.tensor([5]), 6)
    for old, new in zip(before, (*rows.cache.keys, *rows.cache.values), strict=True):
        assert torch.equal(old[1:-1], new[1:-1]) and not torch.equal(old[0, :, 5], new[0, :, 5])
        assert torch.equal(old[0, :, :5], new[0, :, :5]) and torch.equal(old[-1, :, 1:], new[-1, :, 1:])


def test_two_engines_of_a_process_record_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's allocator knows one recording at a time; each engine has a thread of its own."""
    under_way, most = [0], [0]

    @contextmanager
    def recording(graph: object, pool: object, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        time.sleep(0.05)
        yield
        under_way[0] -= 1

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Mock)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    with ThreadPoolExecutor(4) as pool:
        made = [job.result() for job in [pool.submit(recorder(), lambda: torch.ones(1)) for _ in range(4)]]
    assert most[0] == 1 and [found.tolist() for _, found in made] == [[1.0]] * 4
