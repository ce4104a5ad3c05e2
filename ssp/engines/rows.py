"""The rows of the embedded engine's cache: which slot has which, how far it is filled, what it
still owes.

Promises that a row's keys and values are its slot's ids and nothing else's, and that what several
slots read after the same text, a prompt or what a search found, is read once by each version
(`prefix`)."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssp.engines.architecture import CPU, Architecture
from ssp.engines.attention import Piece
from ssp.engines.decoder import Cache, Decoder
from ssp.engines.graphs import Graphs

_PREFILL = {"cpu": (512, 128), "cuda": (4096, 1024)}
"""By device: tokens in one prefill call, about, large enough for the matrices and small enough for
the processor's cache; and tokens of one row in one product. Longer ones waste work on keys that
come later, shorter ones a GPU's time between two of them."""
_WORTH = 64
"""From so many tokens on, what follows an earlier text is copied from a slot that has read it."""
_BOOK = np.dtype(
    [
        ("slot", np.int64),  # -1: free
        ("length", np.int64),  # positions filled
        ("drawn", np.int64),  # random numbers used
        ("owed", np.int64),  # the token that was sampled but not fed yet; -1: none
        ("seed", np.uint64),
    ]
)


class Rows:
    """`config`: a model's configuration; `device`: where all tensors are, while the books are the
    host's. InputError for another architecture."""

    def __init__(
        self, config: Mapping[str, Any], dtype: str, prefix: bool, device: torch.device = CPU
    ) -> None:
        self.shape = Architecture.of(config)
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.prefix = prefix
        self.device = device
        self._call, self._piece = _PREFILL.get(device.type, _PREFILL["cuda"])
        self.cache = Cache(self.shape, self.dtype, device)
        self.model: Decoder | None = None
        self._graphs: Graphs | None = None
        self.forget()

    def forget(self) -> None:
        """Close all slots. The cache keeps its memory: places beyond a row's length are never
        read."""
        self.row: dict[int, int] = {}  # slot → row
        self.books = np.zeros(0, _BOOK)
        self._forget_texts()

    def _forget_texts(self) -> None:
        """Have no slot read what another holds now."""
        # Texts have numbers; 0 is the empty one. (text, what follows it) → the longer text
        self._texts: dict[tuple[int, tuple[int, ...]], int] = {}
        self._numbers = count(1)
        # slot → all that it has read and sampled; nobody else's is like that of one that is open
        self._text = dict(zip(self.row, self._numbers, strict=False))
        # slot → the longer texts that it came to first
        self._first: dict[int, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
        # text → the slot that came to it first, by reading
        self._holder: dict[int, int] = {}

    def replace(self, model: Decoder, keep: bool) -> None:
        """Compute with `model`, which the caller gives away, from now on. `keep`: rows stay as they
        are, and no later slot reads them."""
        if self.model is not None and self._graphs is not None:
            self.model.become(model)  # the graphs know where its weights are
        else:
            self.model = model
            self._graphs = Graphs(model) if self.device.type == "cuda" else None
        if keep:
            self._forget_texts()
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
        """Give each slot a free row; seeds are taken modulo 2**64."""
        missing = len(slots) - int((self.books["slot"] < 0).sum())
        if missing > 0:
            more = np.zeros(missing, _BOOK)
            more["slot"] = -1
            self.books = np.concatenate([self.books, more])
        rows = np.flatnonzero(self.books["slot"] < 0)[: len(slots)]
        pairs = zip(slots, seeds, strict=True)
        self.books[rows] = [(slot, 0, 0, -1, seed % 2**64) for slot, seed in pairs]
        self.row.update(zip(slots, rows.tolist(), strict=True))

    def close(self, slots: list[int]) -> None:
        """Forget slots; closed or forgotten ones are fine."""
        for slot in slots:
            row = self.row.pop(slot, None)
            if row is None:
                continue
            self.books["slot"][row] = -1
            self._text.pop(slot, None)
            for key in self._first.pop(slot, ()):
                self._holder.pop(self._texts.pop(key), None)

    def filled(self, slot: int) -> int:
        """The number of tokens that the slot has read and sampled."""
        book = self.books[self.row[slot]]
        return int(book["length"]) + int(book["owed"] >= 0)

    def gather(self, slots: list[int], first: int, length: int = 0) -> np.ndarray:
        """Move the slots' rows, none of them lower, to `first` and up; returns which of `slots` is
        in each, int64 [n]. `length`: positions in use by rows that are not booked yet."""
        end = first + len(slots)
        rows = np.array([self.row[slot] for slot in slots])
        outside = rows[rows >= end]
        inside = np.setdiff1d(np.arange(first, end), rows[rows < end])
        self.swap(inside, outside, max(length, int(self.books["length"].max())))
        index = {slot: i for i, slot in enumerate(slots)}
        return np.array([index[slot] for slot in self.books["slot"][first:end].tolist()])

    def swap(self, here: np.ndarray, there: np.ndarray, length: int) -> None:
        """Exchange rows, cache (positions below `length`) and books."""
        if not len(here):
            return
        both = np.concatenate([here, there])
        other = np.concatenate([there, here])
        if length:
            self._reserve(length)
            self.cache.copy(torch.from_numpy(other), torch.from_numpy(both), length)
        self.books[both] = self.books[other]
        for row, slot in zip(both.tolist(), self.books["slot"][both].tolist(), strict=True):
            if slot >= 0:
                self.row[slot] = row

    def _reserve(self, length: int) -> None:
        """Make room for all slots, and for a row that no slot has (graphs.py)."""
        self.cache.reserve(len(self.books) + 1, length)

    def feed(self, first: int, pending: list[list[int]], most: int) -> tuple[Tensor, list[int]]:
        """Read ragged ids into the rows from `first` on, and make room for `most` more: hidden
        states of each row's last id, [n, hidden], and these ids."""
        rows = range(first, first + len(pending))
        books = self.books[first : rows.stop]
        feeds = []
        for owed, ids in zip(books["owed"].tolist(), pending, strict=True):
            # what a row sampled last comes in front: its keys are not in the cache yet
            feeds.append(ids if owed < 0 else [owed, *ids])
        self._reserve(int(books["length"].max()) + max(map(len, feeds)) + most)

        sources = self._shared(first, feeds) if self.prefix else list(rows)
        readers = [row for row in rows if sources[row - first] == row]
        hidden = self._prefill(readers, [feeds[row - first] for row in readers])
        copies = [row for row in rows if sources[row - first] != row]
        if copies:
            origins = [sources[row - first] for row in copies]
            lengths = self.books["length"]
            lengths[copies] = lengths[origins]
            longest = int(lengths[copies].max())
            self.cache.copy(torch.tensor(origins), torch.tensor(copies), longest)
            place = {row: i for i, row in enumerate(readers)}
            order = torch.tensor([place[source] for source in sources], device=self.device)
            hidden = hidden.index_select(0, order)
        return hidden, [ids[-1] for ids in feeds]

    def _shared(self, first: int, feeds: list[list[int]]) -> list[int]:
        """For each row the row that reads its feed, itself or an earlier one with the same text.
        What an open slot of an earlier call holds is copied at once, and only the last id is left
        to feed."""
        sources = list[int]()
        reader = dict[int, int]()
        for row, ids in enumerate(feeds, first):
            book = self.books[row]
            slot = int(book["slot"])
            # What is owed was sampled, so it is part of the text.
            text = self._longer(slot, ids[1:] if book["owed"] >= 0 else ids)
            filled = int(book["length"])
            if filled and len(ids) < _WORTH:
                sources.append(row)
                continue
            source = reader.setdefault(text, row)
            sources.append(source)
            holder = self._holder.setdefault(text, slot)
            if holder != slot and source == row and len(ids) > 1:
                read = filled + len(ids) - 1
                origin = torch.tensor([self.row[holder]])
                self.cache.copy(origin, torch.tensor([row]), read)
                book["length"] = read
                feeds[row - first] = ids[-1:]
        return sources

    def _longer(self, slot: int, ids: list[int]) -> int:
        """The number of the slot's text with `ids` behind it, which is its text now."""
        key = self._text.get(slot, 0), tuple(ids)
        if key not in self._texts:
            self._texts[key] = next(self._numbers)
            self._first[slot].append(key)
        self._text[slot] = self._texts[key]
        return self._text[slot]

    def _prefill(self, rows: list[int], feeds: list[list[int]]) -> Tensor:
        """Feed ragged ids to `rows`; returns the hidden state of each row's last id, [n,
        hidden]."""
        assert self.model is not None
        hidden = []
        call = []
        for row, ids in zip(rows, feeds, strict=True):
            start = int(self.books["length"][row])
            for at in range(0, len(ids), self._piece):
                end = at + self._piece
                call.append(Piece(row, start + at, ids[at:end], end >= len(ids)))
                if sum(len(piece.ids) for piece in call) >= self._call:
                    hidden.append(self.model.prefill(self.cache, call))
                    call = []
        if call:
            hidden.append(self.model.prefill(self.cache, call))
        self.books["length"][rows] += [len(ids) for ids in feeds]
        return torch.cat(hidden)

    def book(self, row: int, ids: list[int]) -> None:
        """Note that a turn in `row` sampled `ids`: all but the last are in the cache."""
        book = self.books[row]
        book["length"] += len(ids) - 1
        book["drawn"] += len(ids)
        book["owed"] = ids[-1]
        if self.prefix:
            self._longer(int(book["slot"]), ids)
