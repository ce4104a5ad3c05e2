"""Turns under way: rows are added, all advance by one token together, each finishes by itself.

The decode batch is rows 0 .. n-1 of the cache, so that the hot loop reads views, never copies.
Promises exact log-probs of what was drawn, the version that drew each token, that a row which
finished leaves the batch as soon as moving it pays, and that the host waits for a GPU once a token:
what it must know of all rows comes in one transfer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ssp.engines.base import Generation, Sampling, StopWords, drawn_by
from ssp.engines.rows import Rows

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_COMPACT_SHARE = 0.25  # finished share of the decode batch from which moving rows pays


@dataclass
class Turn:
    """One slot's turn: the ids to read first, how to sample, the most tokens to sample.

    `switches`: (tokens sampled before it, version) of each change of weights within the turn."""

    slot: int
    pending: list[int]
    sampling: Sampling
    budget: int
    version: int
    switches: list[tuple[int, int]] = field(default_factory=list)


@dataclass(eq=False)
class _Columns:
    """The state of the decode batch on the device, by row."""

    count: Tensor  # int64 [n]: tokens sampled so far
    limit: Tensor  # int64 [n]: the most tokens
    place: Tensor  # int64 [n]: where in the cache the next token goes
    fed: Tensor  # int64 [n]: the token that was fed last
    stop: Tensor  # int64 [n]: the row of the table of stop ids
    temperature: Tensor  # float32 [n]
    numbers: Tensor  # float32 [n, width]: the uniform number of each draw
    ids: Tensor  # int64 [n, width]
    logprobs: Tensor  # float32 [n, width]
    hidden: Tensor  # [n, hidden]: the state that the next token is drawn from

    def joined(self, below: _Columns) -> _Columns:
        """These rows, and those of `below` behind them."""
        columns = {}
        for name, column in vars(self).items():
            both = [column, vars(below)[name].to(column.device)]
            if column.dim() == 2:
                width = max(part.shape[1] for part in both)
                both = [F.pad(part, (0, width - part.shape[1])) for part in both]
            columns[name] = torch.cat(both)
        return _Columns(**columns)

    def take(self, rows: list[int]) -> _Columns:
        """These rows alone, in this order."""
        order = torch.tensor(rows, device=self.count.device)
        return _Columns(**{name: column[order] for name, column in vars(self).items()})


class Turns:
    """The decode batch over the first rows of `rows`."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._stops: dict[tuple[int, ...], int] = {}  # stop ids → row of the table
        self._device = rows.device
        self._table = torch.zeros(0, rows.shape.vocab, dtype=torch.bool, device=self._device)
        self.clear()

    def clear(self) -> None:
        """Drop all turns."""
        whole = torch.zeros(0, dtype=torch.int64, device=self._device)
        real = torch.zeros(0, device=self._device)
        self._columns = _Columns(
            count=whole,
            limit=whole,
            place=whole,
            fed=whole,
            stop=whole,
            temperature=real,
            numbers=real[:, None],
            ids=whole[:, None],
            logprobs=real[:, None],
            hidden=real.new_zeros(0, self._rows.shape.hidden, dtype=self._rows.dtype),
        )
        self._set_turns([])

    def _set_turns(self, turns: list[Turn]) -> None:
        """Take `turns` for those of the batch, all of which go on, and note once what they want."""
        self._turns = turns
        self._set_going([True] * len(turns))
        temperatures = {turn.sampling.temperature for turn in turns}
        self._alike: float | None = temperatures.pop() if len(temperatures) == 1 else None
        self._words: dict[int, StopWords] = {}
        for row, turn in enumerate(turns):
            if turn.sampling.stop_words is not None:
                self._words[row] = turn.sampling.stop_words

    def _set_going(self, going: list[bool]) -> None:
        """Note which rows go on, for the host and, as numbers to add, for the device."""
        self._going = going
        self._step = torch.tensor(going, dtype=torch.int64, device=self._device)

    def __len__(self) -> int:
        """The number of turns that go on."""
        return sum(self._going)

    @torch.inference_mode()
    def add(self, turns: list[Turn]) -> None:
        """Read what is pending, and sample from the next `advance` on."""
        rows = self._rows
        self._squeeze()
        first = len(self._turns)
        n = len(turns)
        order = rows.gather([turn.slot for turn in turns], first, self._longest())
        turns = [turns[i] for i in order.tolist()]
        budgets = [turn.budget for turn in turns]
        hidden, fed = rows.feed(first, [turn.pending for turn in turns], max(budgets))
        # a row that has finished writes beyond its last token
        width = max(budgets) + 1
        books = rows.books[first : first + n]
        places = torch.from_numpy(books["length"].copy())
        numbers = uniforms(books["seed"], books["drawn"], width).t()
        stops = [self._stop_row(turn.sampling.stop_ids) for turn in turns]
        temperatures = [float(turn.sampling.temperature) for turn in turns]
        logprobs = torch.zeros(n, width)
        new = _Columns(
            count=torch.zeros(n, dtype=torch.int64),
            limit=torch.tensor(budgets),
            place=places,
            fed=torch.tensor(fed),
            stop=torch.tensor(stops),
            temperature=torch.tensor(temperatures),
            numbers=numbers,
            ids=logprobs.long(),
            logprobs=logprobs,
            hidden=hidden,
        )
        self._columns = self._columns.joined(new)
        self._set_turns(self._turns + turns)

    def _stop_row(self, stop_ids: tuple[int, ...]) -> int:
        """The row of the table that says which ids end a turn."""
        if stop_ids not in self._stops:
            ends = torch.zeros(1, self._rows.shape.vocab, dtype=torch.bool)
            # ids beyond the vocabulary are never drawn
            ends[0, [id for id in stop_ids if id < ends.shape[1]]] = True
            self._stops[stop_ids] = len(self._table)
            self._table = torch.cat([self._table, ends.to(self._device)])
        return self._stops[stop_ids]

    def _longest(self) -> int:
        """The most positions that a row of the batch may have written. A row that has finished
        goes on writing at its place, which may be no numbers, and these must stay with its slot:
        the mask of another row would not hide them."""
        places = self._columns.place
        return int(places.max()) + 1 if len(places) else 0

    def advance(self) -> list[tuple[Turn, Generation]]:
        """Sample one token for each turn; returns those that it ended, with log-probs that may not
        be numbers."""
        columns = self._columns
        n = len(self._turns)
        model = self._rows.model
        assert model is not None
        logits = model.logits(columns.hidden)
        starts = torch.arange(n, device=self._device) * columns.ids.shape[1]
        at = starts + columns.count
        temperature = columns.temperature[:, None] if self._alike is None else self._alike
        numbers = columns.numbers.view(-1).index_select(0, at)
        drawn, logprobs = draw(logits, temperature, numbers)
        columns.ids.view(-1).index_copy_(0, at, drawn)
        columns.logprobs.view(-1).index_copy_(0, at, logprobs)
        columns.fed = drawn
        columns.count = columns.count + self._step

        in_table = columns.stop * self._table.shape[1] + drawn
        ended = self._table.view(-1).index_select(0, in_table)
        spent = columns.limit <= columns.count
        facts = torch.stack([drawn, columns.count, columns.place, ended.long(), spent.long()])
        ids, counts, places, stopped, full = facts.tolist()  # the one transfer
        self._mark_words(ids, counts, stopped)

        done: list[tuple[Turn, Generation]] = []
        states = zip(self._going, stopped, full, strict=True)
        going = [goes and not (stop or spent) for goes, stop, spent in states]
        if going != self._going:
            done = self._finish(going, counts, stopped)
            self._set_going(going)
            left = len(self)
            if not left:
                self.clear()
                return done
            if n - left >= _COMPACT_SHARE * n:
                places = [places[row] for row in self._compact()]

        columns = self._columns
        columns.hidden = self._rows.decode(columns.fed, columns.place, max(places) + 1)
        columns.place = columns.place + self._step
        return done

    def _mark_words(self, ids: list[int], counts: list[int], stopped: list[int]) -> None:
        """Set `stopped` of rows that go on and have just completed a stop string. `ids`: the newest
        of each row, its `counts`-th."""
        for row, words in self._words.items():
            if self._going[row] and not stopped[row] and words.may_end(ids[row]):
                end = counts[row]
                window = self._columns.ids[row, max(0, end - words.window) : end]
                stopped[row] = int(words.hit(window.tolist()))

    def _finish(
        self, going: list[bool], counts: list[int], stopped: list[int]
    ) -> list[tuple[Turn, Generation]]:
        """Book the rows that go on until now, but not in `going`; returns what each sampled."""
        rows = [row for row, goes in enumerate(self._going) if goes and not going[row]]
        which = torch.tensor(rows, device=self._device)
        all_ids = self._columns.ids.index_select(0, which).tolist()
        all_logprobs = self._columns.logprobs.index_select(0, which).tolist()
        done = []
        for row, ids, logprobs in zip(rows, all_ids, all_logprobs, strict=True):
            turn = self._turns[row]
            count = counts[row]
            del ids[count:], logprobs[count:]
            self._rows.book(row, ids)
            version, versions = drawn_by([(0, turn.version), *turn.switches], count)
            generation = Generation(ids, logprobs, version, bool(stopped[row]), versions)
            done.append((turn, generation))
        return done

    def _squeeze(self) -> None:
        """Bring every row that goes on to the front."""
        left = len(self)
        if not left:
            self.clear()
        elif left < len(self._turns):
            self._compact()

    def _compact(self) -> list[int]:
        """Bring the rows that go on to 0 .. left-1; returns the old place of each."""
        goes = np.array(self._going)
        left = len(self)
        gaps = np.flatnonzero(~goes[:left])
        movers = left + np.flatnonzero(goes[left:])
        self._rows.swap(gaps, movers, self._longest())
        places = np.arange(left)
        places[gaps] = movers
        order: list[int] = places.tolist()
        self._columns = self._columns.take(order)
        self._set_turns([self._turns[row] for row in order])
        return order

    @torch.inference_mode()
    def drop(self, slots: set[int]) -> None:
        """End the turns of these slots, which are closed next, without a result."""
        pairs = zip(self._going, self._turns, strict=True)
        self._set_going([goes and turn.slot not in slots for goes, turn in pairs])
        self._squeeze()

    @torch.inference_mode()
    def switch(self, version: int) -> None:
        """Have every token from here on drawn by `version`, whose weights the rows' model now has.

        What was fed last is fed again, so that the next token is drawn by the new weights alone,
        over the old keys."""
        self._squeeze()
        if not self._turns:
            return
        columns = self._columns
        length = int(columns.place.max())
        columns.hidden = self._rows.decode(columns.fed, columns.place - 1, length)
        for turn, count in zip(self._turns, columns.count.tolist(), strict=True):
            turn.switches.append((count, version))


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
    steps = np.arange(1, count + 1, dtype=np.uint64)[:, None]
    index = starts.astype(np.uint64)[None, :] + steps
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
        highest = torch.nextafter(total, torch.zeros_like(total))
        point = torch.minimum(uniform[:, None] * total, highest)
        # clamped only for logits that are not numbers, which the log-prob then shows
        ids = torch.searchsorted(cumulative, point, right=True).clamp_(max=logits.shape[-1] - 1)
        if isinstance(temperature, Tensor):
            ids = torch.where(temperature == 0.0, best, ids)
    logprobs = logits.gather(1, ids) - top - total.log().float()
    return ids[:, 0], logprobs[:, 0]
