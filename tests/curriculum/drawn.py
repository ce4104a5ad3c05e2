"""Simulated curricula: a proposer that draws questions as it always did, or from some round on a few only."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ssp.base.episode import PROPOSED
from ssp.selfplay.curriculum.figures import Asked, Curriculum

LATER = 24


@dataclass(frozen=True)
class Stream:
    """`batch` targets a round, in random order of all `targets`; a share `valid` is accepted; a target has `pool` squared
    questions. From round `collapse` on, all questions are of `left` ones, about as many targets; from round `LATER` on a share
    `later` is accepted, if there is one."""

    batch: int = 32
    valid: float = 0.6
    pool: int = 6
    targets: int = 330
    collapse: int = 0
    left: int = 3
    later: float = 0.0

    def records(self, rng: random.Random, step: int, order: list[int]) -> list[Asked]:
        """Those of one round; `order` is what is left of the data."""
        found = []
        for at in range(self.batch):
            if not order:
                order += rng.sample(range(self.targets), self.targets)
            target = order.pop()
            if rng.random() > (self.later if self.later and step >= LATER else self.valid):
                continue
            question = f"entity{target} relation{rng.randrange(self.pool)} relation{rng.randrange(self.pool)} ?"
            if self.collapse and step >= self.collapse:
                target = rng.randrange(self.left)
                question = f"entity{target} relation0 relation0 ?"
            found.append(Asked(f"g{step}x{at}", question, f"t{target}", PROPOSED, 2, rng.random(), 2.0))
        return found


def played(stream: Stream, seed: int, rounds: int, window: int = 8) -> list[int]:
    """Rounds in which an alarm begins, in a run of so many rounds."""
    rng, order = random.Random(seed), list[int]()
    curriculum, found = Curriculum(window), []
    for step in range(1, rounds + 1):
        curriculum.round(step, stream.records(rng, step, order))
        found += [step] if curriculum.said else []
    return found
