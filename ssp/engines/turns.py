"""Turns under way: rows are added, all advance by one token together, each finishes by itself.

The decode batch is rows 0 .. n-1 of the cache, so that the hot loop reads views, never copies.
Promises exact log-probs of what was drawn, the version that drew each token, that a row which
finished leaves the batch as soon as moving it pays, and that the host waits for a GPU once a token:
what it must know of all rows comes in one transfer."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ssp.engines.base import Generation, Sampling, drawn_by
from ssp.engines.rows import Rows

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_COMPACT_SHARE = 0.25  # finished share of the decode batch from which moving rows pays
_COLUMNS = ("count", "limit", "place", "fed", "stop", "temperature", "numbers", "ids", "logprobs")


@dataclass
class Turn:
    """One slot's turn: ids to read first, how to sample, tokens that it may sample at most;
    `switches`: (tokens sampled before it, version) of each change of weights within."""

    slot: int
    pending: list[int]
    sampling: Sampling
    budget: int
    version: int
    switches: list[tuple[int, int]] = field(default_factory=list)


class Turns:
    """The decode batch over the first rows of `rows`. All tensors are by row."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._stops: dict[tuple[int, ...], int] = {}  # stop ids → row of the table
        self._device = rows.device
        self._table = torch.zeros(0, rows.shape.vocab, dtype=torch.bool, device=self._device)
        self.clear()

    def clear(self) -> None:
        """Drop all turns."""
        self._turns: list[Turn] = []
        zeros = partial(torch.zeros, device=self._device)
        none = zeros(0, dtype=torch.int64)
        self._go([])
        # tokens sampled, most of them, place of the next in the cache, token fed last, row of the
        # table of stop ids
        self._count = self._limit = self._place = self._fed = self._stop = none
        self._temperature = zeros(0)
        self._numbers = self._logprobs = zeros(0, 0)  # [n, width]
        self._ids = zeros(0, 0, dtype=torch.int64)
        self._hidden = zeros(0, self._rows.shape.hidden, dtype=self._rows.dtype)
        self._look()

    def __len__(self) -> int:
        """Turns that go on."""
        return sum(self._goes)

    def _go(self, goes: list[bool]) -> None:
        """Which rows go on, for the host and, as numbers to add, for the device."""
        self._goes = goes
        self._step = torch.tensor(goes, dtype=torch.int64, device=self._device)

    def _look(self) -> None:
        """What the turns of the batch want, once for all their tokens."""
        samplings = [turn.sampling for turn in self._turns]
        temperatures = {sampling.temperature for sampling in samplings}
        self._alike: float | None = temperatures.pop() if len(temperatures) == 1 else None
        self._has_words = any(sampling.stop_words is not None for sampling in samplings)

    @torch.inference_mode()
    def add(self, turns: list[Turn]) -> None:
        """Read what is pending, and sample from the next `advance` on."""
        rows = self._rows
        self._squeeze()
        was, n = len(self._turns), len(turns)
        here = slice(was, was + n)
        who = rows.gather([turn.slot for turn in turns], was, self._longest())
        turns = [turns[i] for i in who.tolist()]
        most = max(turn.budget for turn in turns)
        hidden, fed = rows.feed(was, [turn.pending for turn in turns], most)
        # a row that has finished writes beyond its last token
        width = max(turn.budget for turn in turns) + 1
        blank = torch.zeros(n, width)
        new = (
            torch.zeros(n, dtype=torch.int64),
            torch.tensor([turn.budget for turn in turns]),
            torch.from_numpy(rows.length[here].copy()),
            torch.tensor(fed),
            torch.tensor([self._stop_row(turn.sampling) for turn in turns]),
            torch.tensor([float(turn.sampling.temperature) for turn in turns]),
            uniforms(rows.seed[here], rows.drawn[here], width).t(),
            blank.long(),
            blank,
        )
        for name, column in zip(_COLUMNS, new, strict=True):
            setattr(self, f"_{name}", _stack(getattr(self, f"_{name}"), column.to(self._device)))
        self._turns = self._turns + turns
        self._go([True] * len(self._turns))
        self._hidden = torch.cat([self._hidden, hidden])
        self._look()

    def _stop_row(self, sampling: Sampling) -> int:
        if sampling.stop_ids not in self._stops:
            new = torch.zeros(1, self._rows.shape.vocab, dtype=torch.bool)
            # others are never drawn
            new[0, [id for id in sampling.stop_ids if id < new.shape[1]]] = True
            self._stops[sampling.stop_ids] = len(self._table)
            self._table = torch.cat([self._table, new.to(self._device)])
        return self._stops[sampling.stop_ids]

    def _longest(self) -> int:
        return int(self._place.max()) if len(self._place) else 0

    def advance(self) -> list[tuple[Turn, Generation]]:
        """One token for each turn; returns those that it ended, with log-probs that may not be
        numbers."""
        model, n = self._rows.model, len(self._turns)
        assert model is not None
        logits = model.logits(self._hidden)
        at = torch.arange(n, device=self._device) * self._ids.shape[1] + self._count
        temperature = self._temperature[:, None] if self._alike is None else self._alike
        drawn, logprobs = draw(logits, temperature, self._numbers.view(-1).index_select(0, at))
        self._ids.view(-1).index_copy_(0, at, drawn)
        self._logprobs.view(-1).index_copy_(0, at, logprobs)
        self._count = self._count + self._step
        ended = self._table.view(-1).index_select(0, self._stop * self._table.shape[1] + drawn)
        columns = (drawn, self._count, self._place, ended, self._limit <= self._count)
        last, counts, places, stopped, spent = torch.stack(
            [column.long() for column in columns]
        ).tolist()
        if self._has_words:
            stopped = [
                int(stop or self._said(row, last[row], counts[row]))
                for row, stop in enumerate(stopped)
            ]
        goes = [
            goes and not (stop or end)
            for goes, stop, end in zip(self._goes, stopped, spent, strict=True)
        ]
        rows = [row for row, went in enumerate(self._goes) if went and not goes[row]]
        done: list[tuple[Turn, Generation]] = []
        if rows:
            done = self._finish(rows, counts, stopped)
            self._go(goes)
            left = len(self)
            if not left:
                self.clear()
                return done
            if n - left >= _COMPACT_SHARE * n:
                order = self._compact(left)
                drawn, places = (
                    drawn[order.to(self._device)],
                    [places[row] for row in order.tolist()],
                )
        self._fed = drawn
        self._hidden = self._rows.decode(drawn, self._place, max(places) + 1)
        self._place = self._place + self._step
        return done

    def _said(self, row: int, last: int, count: int) -> bool:
        """Whether a turn that goes on has just completed a stop string with its `last` token, the
        `count`-th."""
        words = self._turns[row].sampling.stop_words
        if not self._goes[row] or words is None or not words.may_end(last):
            return False
        return words.hit(self._ids[row, max(0, count - words.window) : count].tolist())

    def _finish(
        self, rows: list[int], counts: list[int], stopped: list[int]
    ) -> list[tuple[Turn, Generation]]:
        """Cut each to what was sampled, and book it."""
        which = torch.tensor(rows, device=self._device)
        ids, logprobs = (
            column.index_select(0, which).tolist() for column in (self._ids, self._logprobs)
        )
        done = []
        for i, row in enumerate(rows):
            turn, count = self._turns[row], counts[row]
            self._rows.book(row, ids[i][:count])
            version, versions = drawn_by([(0, turn.version), *turn.switches], count)
            done.append(
                (
                    turn,
                    Generation(
                        ids[i][:count], logprobs[i][:count], version, bool(stopped[row]), versions
                    ),
                )
            )
        return done

    def _squeeze(self) -> None:
        """Bring every row that goes on to the front, the hidden states too."""
        left = len(self)
        if not left:
            self.clear()
        elif left < len(self._turns):
            self._hidden = self._hidden[self._compact(left).to(self._device)]

    def _compact(self, left: int) -> Tensor:
        """Bring the rows that go on to 0 .. left-1; returns the old place of each, int64 [left] on
        the host."""
        goes = np.array(self._goes)
        gaps, movers = np.flatnonzero(~goes[:left]), left + np.flatnonzero(goes[left:])
        self._rows.swap(gaps, movers, self._longest())
        order = torch.arange(left, device="cpu")
        order[torch.from_numpy(gaps)] = torch.from_numpy(movers)
        for name in _COLUMNS:
            setattr(self, f"_{name}", getattr(self, f"_{name}")[order.to(self._device)])
        self._turns = [self._turns[row] for row in order.tolist()]
        self._go([True] * left)
        self._look()
        return order

    @torch.inference_mode()
    def drop(self, slots: set[int]) -> None:
        """End the turns of these slots, which are closed next, without a result."""
        self._go(
            [
                goes and turn.slot not in slots
                for goes, turn in zip(self._goes, self._turns, strict=True)
            ]
        )
        self._squeeze()

    @torch.inference_mode()
    def switch(self, version: int) -> None:
        """The rows' model was replaced: every token from here on is drawn by `version`. What was
        fed last is fed again, so that the next token is drawn by the new weights alone, over the
        old keys."""
        self._squeeze()
        if not self._turns:
            return
        self._hidden = self._rows.decode(self._fed, self._place - 1, self._longest())
        for turn, count in zip(self._turns, self._count.tolist(), strict=True):
            turn.switches.append((count, version))


def _stack(above: Tensor, below: Tensor) -> Tensor:
    """Both, one above the other, matrices as wide as the wider one."""
    if above.dim() == 1:
        return torch.cat([above, below])
    width = max(above.shape[1], below.shape[1])
    return torch.cat([F.pad(x, (0, width - x.shape[1])) for x in (above, below)])


def _mix(z: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
    2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniforms(seeds: np.ndarray, starts: np.ndarray, count: int) -> Tensor:
    """Numbers `starts[i] .. starts[i]+count-1` of each seed's stream, in [0, 1): float32 [count,
    n], of 24 random bits. `seeds` uint64 [n], `starts` int64 [n]."""
    base = _mix(seeds + _GOLDEN)
    index = starts.astype(np.uint64)[None, :] + np.arange(1, count + 1, dtype=np.uint64)[:, None]
    bits = _mix(base[None, :] + index * _GOLDEN) >> np.uint64(40)
    return torch.from_numpy(bits.astype(np.float32) * np.float32(2.0**-24))


def draw(logits: Tensor, temperature: float | Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Ids int64 [n] and their log-probs float32 [n] from logits float32 [n, V] and uniforms [n].
    Temperature (one for all, or float32 [n, 1]) above 0: inverse CDF of softmax(logits /
    temperature). 0: argmax, log-prob at temperature 1."""
    if isinstance(temperature, Tensor):
        logits = logits / torch.where(temperature == 0.0, 1.0, temperature)
    elif temperature not in (0.0, 1.0):
        logits = logits / temperature
    top, best = logits.max(dim=-1, keepdim=True)
    weights = (logits - top).exp_()
    # One row alone is summed in blocks on CUDA, and the rounding at their borders would be tokens'
    # probability.
    alone = weights.is_cuda and len(weights) == 1
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64 if alone else torch.float32)
    total = cumulative[:, -1:]
    if not isinstance(temperature, Tensor) and temperature == 0.0:
        ids = best
    else:
        # strictly below the total, so that a token of weight 0 can never be hit, at the end of the
        # row either
        point = torch.minimum(
            uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total))
        )
        # clamped only for logits that are not numbers, which the log-prob then shows
        ids = torch.searchsorted(cumulative, point, right=True).clamp_(max=logits.shape[-1] - 1)
        if isinstance(temperature, Tensor):
            ids = torch.where(temperature == 0.0, best, ids)
    logprobs = logits.gather(1, ids) - top - total.log().float()
    return ids[:, 0], logprobs[:, 0]
