"""Decoding by CUDA graphs: the kernels of a token, recorded once for each size and then started
together.

A token of SmolLM2-135M is about 650 kernels, which a host starts in 12 ms and a GPU computes in a
fraction of that. Promises the hidden states of `Decoder.decode` for rows 0 .. n-1, and to write
nothing but their places in the cache and the first place of its last row, which is nobody's: a size
has more rows than are decoded."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from ssp.engines.base import most_rows
from ssp.engines.decoder import Cache, Decoder

Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]
"""Of a function without host work: what does it again, and the tensor that then has its result."""
_LENGTH = 128
"""A size has so many keys, or that many more."""
_recording = Lock()
"""One engine of a process records at a time; another one's thread may reach the same moment."""


def recorder() -> Record:
    """`Record` by CUDA graphs that share their memory, since one computes at a time and what it
    gives is copied at once. Other threads may use the GPU meanwhile."""
    pool = torch.cuda.graph_pool_handle()

    def recorded(compute: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        graph = torch.cuda.CUDAGraph()
        with _recording, torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            made = compute()
        return graph.replay, made

    return recorded


@dataclass
class _Size:
    ids: Tensor
    positions: Tensor
    rows: Tensor
    again: Callable[[], None]
    hidden: Tensor


class Graphs:
    """Graphs of one decoder, whose weights may change in place (`Decoder.become`), over one cache;
    `records`: makes what records those of one cache's memory."""

    def __init__(self, model: Decoder, records: Callable[[], Record] = recorder) -> None:
        self._model, self._records = model, records
        self._sizes: dict[tuple[int, int], _Size] = {}
        self._memory = -1

    def decode(self, cache: Cache, ids: Tensor, positions: Tensor, length: int) -> Tensor:
        """As `Decoder.decode`. No slot has the cache's last row."""
        n = len(ids)
        rows = most_rows(n)
        cache.reserve(rows, cache.length)
        if self._memory != cache.grown:
            self._sizes.clear()
            self._memory, self._record = cache.grown, self._records()
        length = min(-(-length // _LENGTH) * _LENGTH, cache.length)
        size = self._sizes.get((rows, length))
        if size is None:
            size = self._sizes[rows, length] = self._made(cache, ids.new_zeros(3, rows), length)
        spare = (0, 0, cache.rows - 1)
        given = (ids, positions, torch.arange(n, device=ids.device))
        for own, mine, others in zip(
            (size.ids, size.positions, size.rows), given, spare, strict=True
        ):
            own[:n], own[n:] = mine, others
        size.again()
        return size.hidden[:n].clone()

    def _made(self, cache: Cache, inputs: Tensor, length: int) -> _Size:
        ids, positions, rows = inputs
        rows.fill_(cache.rows - 1)

        def compute() -> Tensor:
            return self._model.decode(cache, ids, positions, length, rows)

        compute()  # what is set up once, and is no part of a graph
        return _Size(ids, positions, rows, *self._record(compute))
