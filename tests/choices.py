"""The names that a setting takes, as the schema says."""

from __future__ import annotations

from ssp.config import fields, keys


def choices(key: str) -> tuple[str, ...]:
    """Those of a dotted key; of a role's key under any name of a role."""
    return fields.choices(keys.hint(key.split("."), ("proposer", "solver")))
