"""Rewards by name: `get("em")(response, golds)`.

Owns the register of answer rewards. Promises that a reward reads the response only (never the prompt) and that an
unknown name is refused with the known ones named. Refuses to score faults: a void never gets here (law 2).
"""

from __future__ import annotations

from collections.abc import Callable

from ssp.errors import InputError
from ssp.rewards.em import em

_KNOWN: dict[str, Callable[..., float]] = {"em": em}


def names() -> list[str]:
    """The known reward names, sorted."""
    return sorted(_KNOWN)


def get(name: str) -> Callable[..., float]:
    """The reward called `name`: `(response: str, golds: list[str], **options) -> float`. InputError if unknown."""
    if name not in _KNOWN:
        raise InputError(f"a reward must be one of {', '.join(names())}", name, "use one of these names")
    return _KNOWN[name]


__all__ = ["get", "names"]
