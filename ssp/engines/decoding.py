"""What decoding costs, as a model: a step of `running` sequences takes `base + each * running` seconds and gives each one
token; at most `sequences` run at once, the others wait in the order in which they came.

In seconds of whoever's clock; between two events nothing has to be computed.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Pace:
    """`base` and `each`: seconds a step and a running sequence. `sequences`: the most that run at once."""

    base: float
    each: float
    sequences: int

    def step(self, running: int) -> float:
        """Seconds of one step."""
        return self.base + self.each * running

    @property
    def full(self) -> float:
        """Seconds a token at full occupancy."""
        return self.step(self.sequences) / self.sequences


class Decoding(Generic[Item]):
    """One engine's sequences. `started` hears of each item when its first token is drawn.

    `busy`: seconds in which something ran; `slots`: times the sequences that did; `tokens`: given so far.
    """

    def __init__(self, pace: Pace, started: Callable[[Item], None] = lambda item: None) -> None:
        self.pace = pace
        self._started = started
        self._now = self._steps = 0.0  # an item of n tokens ends n steps after its start
        self._count = 0
        self._running: list[tuple[float, int, float, Item]] = []
        self._waiting: deque[tuple[int, Item]] = deque()
        self.busy = self.tokens = self.slots = 0.0

    def add(self, now: float, tokens: int, item: Item) -> None:
        """`item` wants `tokens` tokens, at least one. What ends up to `now` was taken by `advance` before."""
        self._pass(now)
        self._waiting.append((max(1, tokens), item))
        self._admit()

    def next(self) -> float:
        """When the next item ends, if nothing is added; infinity when none runs."""
        if not self._running:
            return math.inf
        return self._now + (self._running[0][0] - self._steps) * self.pace.step(len(self._running))

    def advance(self, now: float) -> list[Item]:
        """Items that end up to `now`, in the order of their ends; those who waited start in between."""
        ended = []
        while (end := self.next()) <= now:
            self._pass(end)
            self._steps = max(self._steps, self._running[0][0])
            ended.append(heapq.heappop(self._running)[-1])
            self._admit()
        self._pass(now)
        return ended

    def drawn(self, item: Item) -> int:
        """Whole tokens that `item` has by now; 0 while it waits."""
        return next((int(self._steps - start) for _, _, start, other in self._running if other is item), 0)

    def drop(self, item: Item) -> None:
        """Forget an item before its end; unknown ones are fine."""
        self._running = [entry for entry in self._running if entry[-1] is not item]
        heapq.heapify(self._running)
        self._waiting = deque(entry for entry in self._waiting if entry[1] is not item)
        self._admit()

    def _pass(self, now: float) -> None:
        """Let the time go by, in which nothing starts or ends."""
        passed = now - self._now
        if passed <= 0:
            return
        self._now = now
        if running := len(self._running):
            steps = passed / self.pace.step(running)
            self._steps += steps
            self.busy += passed
            self.slots += passed * running
            self.tokens += steps * running

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.pace.sequences:
            tokens, item = self._waiting.popleft()
            self._count += 1  # two that end together end in the order in which they started
            heapq.heappush(self._running, (self._steps + tokens, self._count, self._steps, item))
            self._started(item)
