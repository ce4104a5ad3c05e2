"""An engine that plays a script, for tests and dry runs: no model, no torch.

Owns the ids of each slot. Promises the engine interface with the script's ids, log-prob 0.0 for each of them (a script
is certain of what it says) and the version of the last `load`. Refuses to know what the ids mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ssp.base.errors import InvariantError
from ssp.engines.base import Generation, Sampling, check_step

if TYPE_CHECKING:
    import numpy as np

Script = Callable[[list[int], int, int], list[int]]
"""(ids of the slot so far, the slot's seed, turn from 0) → ids of the next turn; cut after the first stop id."""


@dataclass
class _Slot:
    seed: int
    ids: list[int] = field(default_factory=list)
    turn: int = 0


class ScriptedEngine:
    """Plays `script` in every slot. Deterministic as far as the script is."""

    def __init__(self, script: Script, version: int = 0) -> None:
        self.version = version
        self._script = script
        self._slots: dict[int, _Slot] = {}
        self._next = 0

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Take the version and forget every slot; the weights are not looked at."""
        if keep:
            raise InvariantError("a lock-step engine has no turns in flight")
        self.version = version
        self._slots.clear()

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots."""
        slots = list(range(self._next, self._next + len(seeds)))
        self._next += len(seeds)
        self._slots.update({slot: _Slot(seed) for slot, seed in zip(slots, seeds, strict=True)})
        return slots

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        """One turn of the script in each slot."""
        check_step(slots, pending, self._slots)
        return [self._turn(self._slots[slot], ids, samplings) for slot, ids in zip(slots, pending, strict=True)]

    def _turn(self, slot: _Slot, pending: list[int], samplings: Sampling) -> Generation:
        slot.ids.extend(pending)
        ids = list(self._script(list(slot.ids), slot.seed, slot.turn))[: samplings.max_tokens]
        words = samplings.stop_words
        end = next(
            (
                at
                for at, id in enumerate(ids)
                if id in samplings.stop_ids
                or (words is not None and words.may_end(id) and words.hit(ids[max(0, at + 1 - words.window) : at + 1]))
            ),
            None,
        )
        ids = ids if end is None else ids[: end + 1]
        slot.ids.extend(ids)
        slot.turn += 1
        entropies = [0.0] * len(ids) if samplings.entropy else None
        return Generation(ids, [0.0] * len(ids), self.version, end is not None, entropies)

    def take_back(self, slot: int, count: int) -> None:
        """The slot is as it was before its last turn, which read and said `count` ids."""
        held = self._slots[slot]
        del held.ids[len(held.ids) - count :]
        held.turn -= 1

    def close(self, slots: list[int]) -> None:
        """Forget slots."""
        for slot in slots:
            self._slots.pop(slot, None)
