"""One thing on record beside what came out now; the first place where two lists differ is named."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

BOUNDS = {"float32": 1e-4, "bfloat16": 0.5}
"""`engine.dtype` → the most by which a log-prob of such an engine may differ from a full
forward's."""

SHOWN = 100
"""Characters of a value in one line."""


@dataclass(frozen=True)
class Result:
    """What came of one comparison. `at`: the place in the log of the first token that differs.
    `untold`: it could not be compared, which is no difference. Log-probs have their `count`, and
    the `largest` difference."""

    what: str
    same: bool
    said: str
    at: int | None = None
    untold: bool = False
    count: int = 0
    largest: float = 0.0

    def __str__(self) -> str:
        return f"{self.what}: {self.said}"


def compared(what: str, recorded: object, now: object, at: int | None = None) -> Result:
    """Two values; `at`: the token's place."""
    if recorded == now:
        return Result(what, True, f"same, {_short(recorded)}")
    place = "" if at is None else f" at token {at}"
    values = f"recorded {_short(recorded)}, now {_short(now)}"
    return Result(what, False, f"DIFFERS{place}, {values}", at)


def untold(what: str, why: str) -> Result:
    """What could not be compared, and why."""
    return Result(what, True, f"NOT COMPARED, {why}", untold=True)


def lists(what: str, recorded: Sequence[object], now: Sequence[object]) -> Result:
    """Two lists of tokens' properties: the lengths of equal ones, else the first difference (None:
    one ends there)."""
    at = first(recorded, now)
    if at == len(recorded) == len(now):
        return compared(what, at, at)
    one, other = (some[at] if at < len(some) else None for some in (recorded, now))
    return compared(what, one, other, at)


def first(recorded: Sequence[object], now: Sequence[object]) -> int:
    """The first place where two lists or texts differ; the length of equal ones."""
    pairs = enumerate(zip_longest(recorded, now, fillvalue=object()))
    return next((place for place, (one, other) in pairs if one != other), len(recorded))


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
