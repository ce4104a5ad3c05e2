"""How far a warm start is, how fast, and what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

PASSES = 3.0
"""Forward passes that an update is worth: the backward one costs about two."""


class Progress:
    """`show` hears of news: `step`, `tokens_per_second`, and `nll` of an update. `clock`: seconds."""

    def __init__(
        self, show: Callable[[Mapping[str, float]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self.clock = show, clock
        self.step, self._tokens, self._rate = 0, [0], 0.0
        self._learned, self._seconds, self._since = 0, 0.0, clock()

    def begin(self, step: int, tokens: Sequence[int]) -> None:
        """`step` updates are made; `tokens` of every update, those too."""
        self.step, self._tokens, self._since = step, list(tokens), self.clock()
        self._learned, self._seconds = 0, 0.0

    def measured(self, tokens: int, seconds: float) -> None:
        """A forward pass over so many tokens."""
        self._rate, self._since = tokens / max(seconds, 1e-9) / PASSES, self.clock()
        self._show({"step": self.step, "tokens_per_second": self._rate})

    def learned(self, seconds: float, nll: float) -> None:
        """The next update was made."""
        self._learned, self._seconds = self._learned + self._tokens[self.step], self._seconds + seconds
        self.step, self._since = self.step + 1, self.clock()
        self._rate = self._learned / max(self._seconds, 1e-9)
        self._show({"step": self.step, "tokens_per_second": self._rate, "nll": nll})

    def left(self) -> float | None:
        """Seconds until the last update is made; None before the first measurement."""
        if not self._rate:
            return None
        whole = sum(self._tokens[self.step :]) / self._rate
        return max(0.0, whole - (self.clock() - self._since))
