"""One thing on record beside what came out now.

Owns the forms of a result. Promises that the first place where two lists differ is named. Refuses to know what is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

BOUNDS = {"float32": 1e-4, "bfloat16": 0.5}
"""`engine.dtype` → the most by which a log-prob of such an engine may differ from a full forward's."""

SHOWN = 100
"""Characters of a value in one line."""
_END = object()


@dataclass(frozen=True)
class Compared:
    """One thing on record, and what came out now. `at`: the token's place in the log, where it has one."""

    what: str
    recorded: object
    now: object
    at: int | None = None

    @property
    def same(self) -> bool:
        """Whether they are equal."""
        return self.recorded == self.now

    def __str__(self) -> str:
        if self.same:
            return f"{self.what}: same, {_short(self.recorded, 0)}"
        place = "" if self.at is None else f" at token {self.at}"
        begin = 0
        if isinstance(self.recorded, str) and isinstance(self.now, str):
            begin = max(0, first(self.recorded, self.now) - 20)
        return f"{self.what}: DIFFERS{place}, recorded {_short(self.recorded, begin)}, now {_short(self.now, begin)}"


@dataclass(frozen=True)
class Measured:
    """Numbers on record beside those computed now: how many, the largest difference, the most that it may be, and the
    first token that is beyond that, else the one with the largest difference."""

    what: str
    count: int
    largest: float
    bound: float
    at: int

    @property
    def same(self) -> bool:
        """Whether no difference is beyond the bound; one that is not a number is."""
        return self.largest <= self.bound

    def __str__(self) -> str:
        found = f"largest difference {self.largest:.2g} of {self.count} (bound {self.bound:g})"
        return f"{self.what}: {'same' if self.same else f'DIFFERS at token {self.at}'}, {found}"


@dataclass(frozen=True)
class Untold:
    """What could not be compared, and why. It is no difference, and is always said."""

    what: str
    why: str
    same: bool = True
    at: int | None = None

    def __str__(self) -> str:
        return f"{self.what}: NOT COMPARED, {self.why}"


Result = Compared | Measured | Untold


def lists(what: str, recorded: Sequence[object], now: Sequence[object]) -> Compared:
    """Two lists of tokens' properties: both lengths when they are equal, else the first place where they are not (None:
    one ends there)."""
    at = first(recorded, now)
    if at == len(recorded) == len(now):
        return Compared(what, at, at)
    one, other = (some[at] if at < len(some) else None for some in (recorded, now))
    return Compared(what, one, other, at)


def first(recorded: Sequence[object], now: Sequence[object]) -> int:
    """The first place where two lists or texts differ; the length of equal ones."""
    pairs = enumerate(zip_longest(recorded, now, fillvalue=_END))
    return next((place for place, (one, other) in pairs if one != other), len(recorded))


def _short(value: object, begin: int) -> str:
    """`value` for a line, from character `begin` on."""
    shown = repr(value[begin:] if isinstance(value, str) else value)
    return ("…" if begin else "") + (shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…")
