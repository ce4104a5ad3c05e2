"""Imports that cost less CPU time, and what a library takes along only where it is installed."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Let the packages `names` fail to import meanwhile, as if they were not installed; those that
    are imported already stay. For a library that is prepared for that, in a process with one thread
    that imports."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in names if name not in modules]
    modules |= dict.fromkeys(hidden)  # None, which makes an import fail
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile. What imports make stays, and the collector would look through
    all of it again and again, for a sixth of their CPU time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
