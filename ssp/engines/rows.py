"""The rows of the embedded engine's cache: which slot has which, how far it is filled, what it
still owes.

Promises that a row's keys and values are its slot's ids and nothing else's, and that a prompt which
several slots share is read once by each version (`prefix`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp.engines.decoder import CPU, Architecture, Cache, Decoder, Piece
from ssp.engines.graphs import Graphs

# Tokens in one prefill call, about: large enough for the matrices, small enough for the cache.
# Tokens of one row in one product: longer ones waste work on keys that come later; shorter ones a
# GPU's time between two of them.
_PREFILL = {"cpu": (512, 128), "cuda": (4096, 1024)}


class Rows:
    """`config`: a model's configuration; `device`: where all tensors are, the books are the host's.
    InputError for another architecture."""

    def __init__(
        self, config: Mapping[str, Any], dtype: str, prefix: bool, device: torch.device = CPU
    ) -> None:
        self.shape = Architecture.of(config)
        self.dtype, self.prefix = getattr(torch, dtype), prefix
        self.device = device
        self._call, self._piece = _PREFILL.get(device.type, _PREFILL["cuda"])
        self.cache = Cache(self.shape, self.dtype, device)
        self.model: Decoder | None = None
        self._graphs: Graphs | None = None
        self.forget()

    def forget(self) -> None:
        """No slot is open any more. The cache keeps its memory: places beyond a row's length are
        never read."""
        self.row: dict[int, int] = {}  # slot → row
        # by row: slot (-1: free), positions filled, numbers drawn, token sampled but not yet fed
        # (-1: none), seed
        self.slot, self.length, self.drawn, self.owed = (np.zeros(0, np.int64) for _ in range(4))
        self.seed = np.zeros(0, np.uint64)
        # prompt → a slot that this version read it for
        self._holder: dict[tuple[int, ...], int] = {}
        self._prompt: dict[int, tuple[int, ...]] = {}

    def replace(self, model: Decoder, keep: bool) -> None:
        """Compute with `model`, which the caller gives away, from now on; `keep`: rows stay as they
        are, and no later slot reads them."""
        if self.model is None or self._graphs is None:
            self.model, self._graphs = model, Graphs(model) if self.device.type == "cuda" else None
        else:  # they know where its weights are
            self.model.become(model)
        if keep:
            self._holder, self._prompt = {}, {}
        else:
            self.forget()

    def decode(self, ids: Tensor, positions: Tensor, length: int) -> Tensor:
        """See `Decoder.decode`."""
        model = self._graphs or self.model
        assert model is not None
        return model.decode(self.cache, ids, positions, length)

    @torch.inference_mode()
    def blank(self, slot: int) -> None:
        """Close one slot whose keys or values are not numbers."""
        for tensor in (*self.cache.keys, *self.cache.values):
            tensor[self.row[slot]] = 0.0
        self.close([slot])

    def open(self, slots: list[int], seeds: list[int]) -> None:
        """A free row for each slot; seeds are taken modulo 2**64."""
        free = np.flatnonzero(self.slot < 0)
        extra = len(seeds) - len(free)
        if extra > 0:
            free = np.concatenate([free, np.arange(len(self.slot), len(self.slot) + extra)])
            for name in ("slot", "length", "seed", "drawn", "owed"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(extra, old.dtype)]))
        rows = free[: len(seeds)]
        self.slot[rows] = slots
        self.length[rows] = self.drawn[rows] = 0
        self.owed[rows] = -1
        self.seed[rows] = [seed % 2**64 for seed in seeds]
        self.row.update(zip(slots, rows.tolist(), strict=True))

    def close(self, slots: list[int]) -> None:
        """Forget slots; closed or forgotten ones are fine."""
        for slot in slots:
            row = self.row.pop(slot, None)
            if row is not None:
                self.slot[row] = -1
                if slot in self._prompt:
                    del self._holder[self._prompt.pop(slot)]

    def filled(self, slot: int) -> int:
        """Tokens that the slot has read and sampled."""
        row = self.row[slot]
        return int(self.length[row]) + int(self.owed[row] >= 0)

    def gather(self, slots: list[int], first: int, length: int = 0) -> np.ndarray:
        """Move the slots' rows, none of them lower, to `first` and up; returns which of `slots` is
        in each, int64 [n]. `length`: positions in use by rows that are not booked yet."""
        n = len(slots)
        rows = np.array([self.row[slot] for slot in slots])
        outside = rows[rows >= first + n]
        inside = np.setdiff1d(np.arange(first, first + n), rows[rows < first + n])
        self.swap(inside, outside, max(length, int(self.length.max())))
        index = {slot: i for i, slot in enumerate(slots)}
        return np.array([index[slot] for slot in self.slot[first : first + n].tolist()])

    def swap(self, here: np.ndarray, there: np.ndarray, length: int) -> None:
        """Exchange rows, cache (positions below `length`) and bookkeeping."""
        if not len(here):
            return
        both, other = np.concatenate([here, there]), np.concatenate([there, here])
        if length:
            self._reserve(length)
            self.cache.copy(torch.from_numpy(other), torch.from_numpy(both), length)
        for array in (self.slot, self.length, self.seed, self.drawn, self.owed):
            array[both] = array[other]
        for row in both.tolist():
            if self.slot[row] >= 0:
                self.row[int(self.slot[row])] = row

    def _reserve(self, length: int) -> None:
        """Room for all slots, and a row that is nobody's (graphs.py)."""
        self.cache.reserve(len(self.slot) + 1, length)

    def feed(self, first: int, pending: list[list[int]], most: int) -> tuple[Tensor, list[int]]:
        """Read ragged ids into the rows from `first` on, and make room for `most` more: hidden
        states of each row's last id, [n, hidden], and these ids."""
        # What a row sampled last comes in front: its keys are not in the cache yet.
        rows = range(first, first + len(pending))
        feeds = [
            ([int(self.owed[row])] if self.owed[row] >= 0 else []) + ids
            for row, ids in zip(rows, pending, strict=True)
        ]
        longest = int(self.length[first : first + len(feeds)].max()) + max(map(len, feeds))
        self._reserve(longest + most)
        sources = self._shared(first, feeds) if self.prefix else list(rows)
        read = [row for row, source in zip(rows, sources, strict=True) if row == source]
        hidden = self._prefill(read, [feeds[row - first] for row in read])
        if len(read) < len(feeds):
            copies = [row for row, source in zip(rows, sources, strict=True) if row != source]
            origins = [sources[row - first] for row in copies]
            length = max(len(feeds[row - first]) for row in copies)
            self.cache.copy(torch.tensor(origins), torch.tensor(copies), length)
            self.length[copies] = self.length[origins]
            place = {row: i for i, row in enumerate(read)}
            hidden = hidden.index_select(
                0, torch.tensor([place[source] for source in sources], device=self.device)
            )
        return hidden, [ids[-1] for ids in feeds]

    def _shared(self, first: int, feeds: list[list[int]]) -> list[int]:
        """For each row the row that reads its feed, itself or an earlier one with the same prompt.
        What an open slot of an earlier call holds is copied at once, and only the last id is left
        to feed."""
        sources, reader = [], dict[tuple[int, ...], int]()
        for row, ids in enumerate(feeds, first):
            source = row
            if self.length[row] == 0:
                prompt, slot = tuple(ids), int(self.slot[row])
                source = reader.setdefault(prompt, row)
                holder = self._holder.setdefault(prompt, slot)
                if holder == slot:
                    self._prompt[slot] = prompt
                elif source == row and len(ids) > 1:
                    self.cache.copy(
                        torch.tensor([self.row[holder]]), torch.tensor([row]), len(ids) - 1
                    )
                    self.length[row] = len(ids) - 1
                    feeds[row - first] = ids[-1:]
            sources.append(source)
        return sources

    def _prefill(self, rows: list[int], feeds: list[list[int]]) -> Tensor:
        """Feed ragged ids to `rows`; returns the hidden state of each row's last one, [n,
        hidden]."""
        assert self.model is not None
        hidden: list[Tensor] = []
        call: list[Piece] = []
        for row, ids in zip(rows, feeds, strict=True):
            start = int(self.length[row])
            for at in range(0, len(ids), self._piece):
                end = at + self._piece
                call.append(Piece(row, start + at, ids[at:end], end >= len(ids)))
                if sum(len(piece.ids) for piece in call) >= self._call:
                    hidden.append(self.model.prefill(self.cache, call))
                    call = []
        if call:
            hidden.append(self.model.prefill(self.cache, call))
        self.length[rows] += [len(ids) for ids in feeds]
        return torch.cat(hidden)

    def book(self, row: int, ids: list[int]) -> None:
        """A turn in `row` sampled `ids`: all but the last are in the cache."""
        self.length[row] += len(ids) - 1
        self.drawn[row] += len(ids)
        self.owed[row] = ids[-1]
