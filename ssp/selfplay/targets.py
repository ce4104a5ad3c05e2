"""Which target answers a round gets.

Owns the order of the targets: a new seeded permutation each epoch. Promises that a game number always means the same
target, so the data cursor is the round number alone. Refuses to read files.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssp.errors import InputError
from ssp.seeds import generator
from ssp.selfplay.records import Game


class Targets:
    """Games of a round from a fixed list of target answers."""

    def __init__(self, answers: Sequence[str], batch: int, seed: int) -> None:
        if not answers:
            raise InputError("data.targets must hold at least one target", "an empty list", "check data.targets")
        self._answers, self._batch, self._seed = list(answers), batch, seed

    def games(self, round_: int, incarnation: int) -> list[Game]:
        """The games of round `round_`, numbered round * batch + i."""
        games = []
        orders: dict[int, Sequence[int]] = {}
        for number in range(round_ * self._batch, (round_ + 1) * self._batch):
            epoch, place = divmod(number, len(self._answers))
            if epoch not in orders:
                orders[epoch] = generator(self._seed, "targets", epoch).permutation(len(self._answers)).tolist()
            target = self._answers[orders[epoch][place]]
            games.append(Game(id=f"g{number:07d}-i{incarnation}", number=number, target=target))
        return games
