"""Which rows of the data a round plays: target answers to ask about, or questions to solve.

Promises a new seeded order each epoch, that a game number always means the same row, and that in the lineage of a checkpoint
no batch of rows is handed out twice or skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ssp.base.episode import GIVEN, PROPOSED
from ssp.base.errors import InputError, InvariantError
from ssp.base.seeds import generator
from ssp.selfplay.records import Game


@dataclass(frozen=True)
class Item:
    """One row: a target answer and what else the proposer's prompt is told (`hints`), or a question with its answers."""

    target: str
    question: str = ""
    golds: tuple[str, ...] = ()
    hints: dict[str, str] = field(default_factory=dict)


class Targets:
    """Games of a round from a fixed list of rows, a batch of games at a time; each row that is drawn is `each` games in
    a row. `mark` stands for what the rows are and how they are asked: a cursor counts in nothing else."""

    def __init__(self, items: Sequence[Item], batch: int, seed: int, mark: str = "", each: int = 1) -> None:
        if not items:
            raise InputError("a run needs at least one row to play", "an empty list", "check data.targets")
        if batch % each:
            raise InvariantError(f"a batch of {batch} games is no multiple of {each} a row")
        self._items, self._batch, self._seed, self._mark, self._each = list(items), batch, seed, mark, each
        self._next = 0
        self._open: list[int] = []
        self._taken: dict[int, list[int]] = {}
        self._orders: dict[int, list[int]] = {}

    def take(self, round_: int, incarnation: int) -> list[Game]:
        """The next batch of games, now round `round_`'s; a round may take several."""
        if self._open:
            batch = self._open.pop(0)
        else:
            batch, self._next = self._next, self._next + 1
        self._taken.setdefault(round_, []).append(batch)
        games = []
        for number in range(batch * self._batch, (batch + 1) * self._batch):
            item = self.item(number)
            known: dict[str, Any] = {"question": item.question, "golds": item.golds, "hints": item.hints}
            kind = GIVEN if item.question else PROPOSED  # a row that has a question needs no referee
            id_ = f"g{number:07d}-i{incarnation}"
            games.append(Game(id_, number, item.target, **known, valid=bool(item.question), kind=kind))
        return games

    def state(self, round_: int) -> dict[str, Any]:
        """The cursor after the rounds up to `round_`: what later rounds have taken counts as open. In order of rounds."""
        self._taken = {later: batches for later, batches in self._taken.items() if later > round_}
        left = sorted([*self._open, *(batch for batches in self._taken.values() for batch in batches)])
        end = self._next
        while left and left[-1] == end - 1:
            end = left.pop()
        return {"next": end, "open": left, "mark": self._mark}

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `state`. InputError for a cursor in other rows; one that took nothing yet is in none."""
        if state.get("mark", self._mark) != self._mark:
            raise InputError(
                "a run goes on with the rows and the words of the protocol that it was started with",
                "data.targets, data.questions (a file, a bank) or the protocol's file has changed since",
                "restore it, or start a new run with resume=never",
            )
        self._next, self._open = state["next"], list(state["open"])
        self._taken.clear()

    def item(self, number: int) -> Item:
        """The row that game `number` plays."""
        epoch, place = divmod(number // self._each, len(self._items))
        if epoch not in self._orders:
            order = generator(self._seed, "targets", epoch).permutation(len(self._items)).tolist()
            self._orders = dict([*self._orders.items(), (epoch, order)][-2:])  # a batch may lie in two epochs
        return self._items[self._orders[epoch][place]]
