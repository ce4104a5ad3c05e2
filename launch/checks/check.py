"""One row of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Check:
    """What was looked at, `ok`, `warn` or `fail`, what was found, and what to do about it."""

    what: str
    status: str
    found: str
    next_step: str = ""


def room(what: str, free: int, needed: int, status: str, next_step: str) -> Check:
    """Bytes that are there against bytes that are wanted; `status` where they do not suffice."""
    found = f"{free / 1e9:.1f} GB free"
    if free >= needed:
        return Check(what, OK, found)
    return Check(what, status, f"{found}, {needed / 1e9:.1f} GB wanted", next_step)
