"""What the actors of one crew were asked for: the last one of each, and how calls were lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Asked:
    """One call: to which actor (`solver-0`), for what, since when and until when (Unix seconds; 0 = it is under way), and
    how it was lost ("" = it was not)."""

    actor: str
    method: str
    since: float = field(default_factory=time.time)
    until: float = 0.0
    lost: str = ""

    def told(self) -> str:
        """For a person."""
        when = time.strftime("%H:%M:%S", time.gmtime(self.since))
        took = (self.until or time.time()) - self.since
        return f"{self.method} at {when} UTC, {'over after' if self.until and not self.lost else 'for'} {took:.1f} s"


class Calls:
    """The records of one crew."""

    def __init__(self) -> None:
        self.last: dict[str, Asked] = {}
        self._lost: dict[str, Asked] = {}

    @contextmanager
    def of(self, actor: str, method: str) -> Iterator[Asked]:
        """Around one call."""
        asked = Asked(actor, method)
        self.last[actor] = asked
        try:
            yield asked
        finally:
            asked.until = time.time()

    def lose(self, asked: Asked, why: str) -> None:
        """The actor will not answer this call any more: what its death report tells."""
        asked.lost = why
        self._lost[asked.actor] = asked

    def at_death(self, actor: str) -> Asked | None:
        """What the process of an actor that ended was last asked for; a lost call is told once."""
        return self._lost.pop(actor, None) or self.last.get(actor)
