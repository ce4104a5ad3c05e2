"""Decoding by CUDA graphs: the kernels of a token, recorded once for each size and then started together.

A token of SmolLM2-135M is about 650 kernels, which a host starts in 12 ms and a GPU computes in a fraction of that.
Promises the hidden states of `Decoder.decode` for rows 0 .. n-1, and to write nothing but their places in the cache and the
last place of other rows, which is nobody's.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ssp.engines.decoder import Cache, Decoder

Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]
"""Of a function without host work: what does it again, and the tensor that then has its result."""
_ROWS, _LENGTH = 16, 128
"""A size has at least so many rows, twice as many as the one before it; and so many keys, or that many more."""


def recorded(compute: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """`compute` as a CUDA graph. Other threads may use the GPU meanwhile."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        made = compute()
    return graph.replay, made


@dataclass
class _Size:
    ids: Tensor
    positions: Tensor
    again: Callable[[], None]
    hidden: Tensor


class Graphs:
    """Graphs of one decoder, whose weights may change in place (`Decoder.become`), over one cache."""

    def __init__(self, model: Decoder, record: Record = recorded) -> None:
        self._model, self._record = model, record
        self._sizes: dict[tuple[int, int], _Size] = {}
        self._memory = -1

    def decode(self, cache: Cache, ids: Tensor, positions: Tensor, length: int) -> Tensor:
        """As `Decoder.decode`; no row uses the cache's last place."""
        n = len(ids)
        rows = max(_ROWS, 1 << (n - 1).bit_length())
        cache.reserve(rows, cache.length)
        if self._memory != cache.grown:
            self._sizes.clear()
            self._memory = cache.grown
        length = min(-(-length // _LENGTH) * _LENGTH, cache.length)
        size = self._sizes.get((rows, length))
        if size is None:
            size = self._sizes[rows, length] = self._made(cache, ids, positions, rows, length)
        size.ids[:n] = ids
        size.positions[:n] = positions
        size.positions[n:] = cache.length - 1
        size.again()
        return size.hidden[:n].clone()

    def _made(self, cache: Cache, ids: Tensor, positions: Tensor, rows: int, length: int) -> _Size:
        own, places = ids.new_zeros(rows), positions.new_full((rows,), cache.length - 1)
        own[: len(ids)], places[: len(ids)] = ids, positions

        def compute() -> Tensor:
            return self._model.decode(cache, own, places, length)

        compute()  # what is set up once, and is no part of a graph
        return _Size(own, places, *self._record(compute))
