"""Tag protocols by id: `get("mini")`.

Owns the register of protocols. Promises that an unknown id is refused with the known ones named.
Refuses to know tokenizers, engines, rewards.
"""

from __future__ import annotations

from ssp.errors import InputError
from ssp.protocols.base import Protocol, Segment
from ssp.protocols.mini import MINI

_KNOWN: dict[str, Protocol] = {MINI.id: MINI}


def names() -> list[str]:
    """The known protocol ids, sorted."""
    return sorted(_KNOWN)


def get(id: str) -> Protocol:
    """The protocol called `id`. InputError when there is none."""
    if id not in _KNOWN:
        raise InputError(f"protocol must be one of {', '.join(names())}", id, "set protocol to one of these")
    return _KNOWN[id]


__all__ = ["Protocol", "Segment", "get", "names"]
