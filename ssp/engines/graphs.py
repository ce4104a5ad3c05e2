"""Decoding by CUDA graphs: the kernels of a token, recorded once for each size and then started
together.

A token of SmolLM2-135M is about 650 kernels, which a host starts in 12 ms and a GPU computes in a
fraction of that. Promises the hidden states of `Decoder.decode` for rows 0 .. n-1, and to write
nothing but their places in the cache and the first place of its last row, which no slot has: a size
has more rows than are decoded."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock

import torch
from torch import Tensor

from ssp.engines.base import most_rows
from ssp.engines.decoder import Cache, Decoder

Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]
"""Takes a function without host work; returns what does it again, and the tensor that then has the
result."""
_LENGTH = 128
"""The number of keys of a size is a multiple of it."""
_recording = Lock()
"""One engine of a process records at a time: other engines have threads of their own."""


def recorder() -> Record:
    """A `Record` by CUDA graphs. They share their memory, since one computes at a time and its
    result is copied at once. Other threads may use the GPU meanwhile."""
    pool = torch.cuda.graph_pool_handle()

    def recorded(compute: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        graph = torch.cuda.CUDAGraph()
        with _recording, torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            made = compute()
        return graph.replay, made

    return recorded


@dataclass
class _Size:
    """What was recorded for one number of rows and one length."""

    inputs: Tensor  # int64 [3, rows]: ids, positions, rows of the cache
    again: Callable[[], None]
    hidden: Tensor


class Graphs:
    """Graphs of one decoder, whose weights may change in place (`Decoder.become`), over one cache.

    `records` makes the recorder for one cache's memory."""

    def __init__(self, model: Decoder, records: Callable[[], Record] = recorder) -> None:
        self._model = model
        self._records = records
        self._sizes: dict[tuple[int, int], _Size] = {}
        self._memory = -1

    def decode(self, cache: Cache, ids: Tensor, positions: Tensor, length: int) -> Tensor:
        """As `Decoder.decode`. No slot has the cache's last row."""
        n = len(ids)
        rows = most_rows(n)
        cache.reserve(rows, cache.length)
        if self._memory != cache.grown:
            self._sizes.clear()
            self._memory = cache.grown
            self._record = self._records()
        length = min(-(-length // _LENGTH) * _LENGTH, cache.length)
        spare = cache.rows - 1
        if (rows, length) not in self._sizes:
            inputs = ids.new_zeros(3, rows)
            inputs[2] = spare
            own_ids, places, own_rows = inputs
            compute = partial(self._model.decode, cache, own_ids, places, length, own_rows)
            compute()  # what is set up once, and is no part of a graph
            self._sizes[rows, length] = _Size(inputs, *self._record(compute))
        size = self._sizes[rows, length]
        size.inputs[:2, :n] = torch.stack([ids, positions])
        size.inputs[:2, n:] = 0
        size.inputs[2, :n] = torch.arange(n, device=ids.device)
        size.inputs[2, n:] = spare
        size.again()
        return size.hidden[:n].clone()
