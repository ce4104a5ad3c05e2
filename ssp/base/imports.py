"""Imports that cost less CPU time, and what a library takes along only where it is installed."""

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib import metadata
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


class Distributions(Mapping[str, list[str]]):
    """`importlib.metadata.packages_distributions()`, which reads the list of files of all that is
    installed, only for a package that no distribution is called by."""

    def __getitem__(self, package: str) -> list[str]:
        try:
            return [metadata.distribution(package).name]
        except metadata.PackageNotFoundError:
            return self._all[package]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> Mapping[str, list[str]]:
        return _distributions()


_distributions = metadata.packages_distributions


@contextmanager
def unlisted() -> Iterator[None]:
    """Let transformers ask for the distributions of few packages. At its import it would list those
    of all, for a quarter of that import's CPU time. For a process with one thread that imports."""
    metadata.packages_distributions = Distributions
    try:
        yield
    finally:
        metadata.packages_distributions = _distributions
