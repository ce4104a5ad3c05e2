"""What a solver batch is made of when some proposals are invalid (ssp.md section 2).

Owns the choice of questions for one round and the replay pool. Promises a bounded pool without duplicates inside a
batch, whose content is part of the checkpoint. Refuses to score anything.

`dummy`: invalid slots stay empty (SSP pads them with prompts whose advantage is zero; an empty slot is the same
gradient without the compute). `replay`: empty slots are refilled from earlier questions. `replay_reset`: the same, and
the pool is emptied every `replay_reset_every` rounds down to `replay_keep`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ssp.config.schema import GameConfig
from ssp.seeds import generator
from ssp.selfplay.records import Game

REPLAY = ("replay", "replay_reset")
"""Values of `game.batch` that use the pool."""
POOL_LIMIT = 4096
"""Questions that the pool keeps at most; the oldest leave first."""


@dataclass(frozen=True)
class Remembered:
    """A question that was played before, and the proposer's version that wrote it."""

    question: str
    target: str
    win_rate: float
    asked_by: int | None = None


class Batches:
    """Chooses the games that the solver plays in a round."""

    def __init__(self, cfg: GameConfig, size: int, seed: int) -> None:
        self._cfg, self._size, self._seed = cfg, size, seed
        self._pool: list[Remembered] = []

    def choose(self, round_: int, games: Sequence[Game], incarnation: int) -> list[Game]:
        """Up to `size` games, in id order: the valid ones, then refills. Marks the chosen ones."""
        chosen = [game for game in games if game.valid][: self._size]
        for game in chosen:
            game.chosen = True
        if self._cfg.batch in REPLAY:
            chosen += self._refill(round_, chosen, incarnation)
        return chosen

    def remember(self, round_: int, games: Sequence[Game]) -> None:
        """Put the round's new questions into the pool, where there is one; reset it when its time has come."""
        if self._cfg.batch not in REPLAY:
            return
        known = {(item.question, item.target) for item in self._pool}
        for game in games:
            if game.proposal is not None and game.win_rate is not None and (game.question, game.target) not in known:
                known.add((game.question, game.target))
                asked_by = game.proposal.brief.version_max
                self._pool.append(Remembered(game.question, game.target, game.win_rate, asked_by))
        if self._cfg.batch == "replay_reset" and (round_ + 1) % self._cfg.replay_reset_every == 0:
            keep = int(len(self._pool) * self._cfg.replay_keep)
            self._pool = self._pool[len(self._pool) - keep :]
        self._pool = self._pool[-POOL_LIMIT:]

    def state(self) -> list[dict[str, Any]]:
        """The pool as plain data, for state.json."""
        return [asdict(item) for item in self._pool]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """The inverse of `state`."""
        self._pool = [Remembered(**item) for item in state]

    def _refill(self, round_: int, chosen: Sequence[Game], incarnation: int) -> list[Game]:
        taken = {(game.question, game.target) for game in chosen}
        pool = [
            item
            for item in self._pool
            if item.win_rate <= self._cfg.replay_max_win_rate and (item.question, item.target) not in taken
        ]
        count = min(self._size - len(chosen), len(pool))
        picks = generator(self._seed, "replay", round_).permutation(len(pool))[:count]
        return [
            Game(
                id=f"r{round_:05d}x{slot:03d}-i{incarnation}",
                number=-1 - slot,
                target=pool[pick].target,
                question=pool[pick].question,
                valid=True,
                chosen=True,
                asked_by=pool[pick].asked_by,
            )
            for slot, pick in enumerate(sorted(int(p) for p in picks))
        ]
