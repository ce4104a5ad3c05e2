"""What every client of a service over HTTP asks: is it on this machine, its key, the pause that it wants.

Owns these three. Promises that no message holds a key. Refuses to send anything.
"""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address

import httpx

from ssp.errors import InputError


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own, by its host."""
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def key_from(variable: str) -> str:
    """The key in an environment variable, "" when no variable is named. InputError when it is named and not set, or is
    more than one word of ASCII."""
    key = os.environ.get(variable, "").strip() if variable else ""
    if variable and not key:
        raise InputError("the endpoint's key is in the environment", f"{variable} is not set", f"export {variable}=...")
    if not (key.isascii() and key.isprintable()):
        raise InputError("a key is one line of ASCII characters", f"the value of {variable} is not", "export it again")
    return key


def asked_pause(header: str) -> float:
    """Seconds that a Retry-After header asks for, given as seconds or as a date; 0 for anything else."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except (ValueError, OverflowError):
            return 0.0
        aware = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (aware - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0
