"""The registry of advantage estimators: name → one class in one file.

Owns the names that configs use. Promises a typed refusal that lists the known names. Refuses to know losses or models.
A further estimator is one file plus one line in `_ALGORITHMS`.
"""

from __future__ import annotations

from ssp.algorithms.base import Algorithm
from ssp.algorithms.grpo import Grpo
from ssp.algorithms.reinforce import Reinforce
from ssp.errors import InputError

_ALGORITHMS: dict[str, type[Algorithm]] = {"grpo": Grpo, "reinforce": Reinforce}


def names() -> tuple[str, ...]:
    """Known names, sorted."""
    return tuple(sorted(_ALGORITHMS))


def get(name: str) -> Algorithm:
    """A fresh estimator called `name`. Unknown name → InputError that lists the known ones."""
    if name not in _ALGORITHMS:
        raise InputError("algorithm must be a known name", name, f"set algorithm to one of: {', '.join(names())}")
    return _ALGORITHMS[name]()
