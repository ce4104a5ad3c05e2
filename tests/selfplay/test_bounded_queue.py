"""The bounded queue, against a model: budgets, repeated put, take and ack."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from ssp.errors import InvariantError
from ssp.selfplay.queue import BoundedQueue

ITEMS, BYTES = 10, 100
KEYS = st.integers(0, 5)


class QueueMachine(RuleBasedStateMachine):
    """The model is a plain dict with the same budget."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = BoundedQueue(ITEMS, BYTES)
        self.held: dict[int, tuple[str, int, int]] = {}

    @rule(key=KEYS, block=st.text(max_size=2), items=st.integers(0, 12), nbytes=st.integers(0, 120))
    def put(self, key: int, block: str, items: int, nbytes: int) -> None:
        if items > ITEMS or nbytes > BYTES:
            with pytest.raises(InvariantError, match="queue.items or queue.bytes"):
                self.queue.put(key, block, items, nbytes)
            return
        room = sum(i for _, i, _ in self.held.values()) + items <= ITEMS
        room &= sum(b for _, _, b in self.held.values()) + nbytes <= BYTES
        assert self.queue.put(key, block, items, nbytes) == (key in self.held or room)
        if key not in self.held and room:
            self.held[key] = (block, items, nbytes)

    @rule(key=KEYS)
    def take(self, key: int) -> None:
        assert self.queue.take(key) == self.queue.take(key) == (self.held[key][0] if key in self.held else None)

    @rule(key=KEYS)
    def ack(self, key: int) -> None:
        self.queue.ack(key)
        self.held.pop(key, None)

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.held.clear()


QueueMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestQueue: Any = QueueMachine.TestCase
