"""Blocks of the configuration with other constants than a user can set."""

from __future__ import annotations

from typing import Any, TypeVar

B = TypeVar("B")


def made(block: type[B], **values: Any) -> B:
    found = block()
    for name, value in values.items():
        assert hasattr(found, name), name
        setattr(found, name, value)
    return found
