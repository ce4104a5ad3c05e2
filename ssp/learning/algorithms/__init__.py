"""The registry of advantage estimators: name → one class.

Owns the names that configs use. Promises a typed refusal that lists the known names. Refuses to know losses or models.
A further estimator is one file plus one line in `_KNOWN`.
"""

from __future__ import annotations

from ssp.base.errors import InputError
from ssp.config.own import is_own
from ssp.learning.algorithms.base import Algorithm
from ssp.learning.algorithms.gae import Gae
from ssp.learning.algorithms.grpo import DrGrpo, Grpo
from ssp.learning.algorithms.own import Own
from ssp.learning.algorithms.rae import Rae
from ssp.learning.algorithms.reinforce import BASELINES, Reinforce
from ssp.learning.algorithms.reinforce_pp import ReinforcePP, ReinforcePPBaseline
from ssp.learning.algorithms.remax import Remax
from ssp.learning.algorithms.rloo import Rloo

__all__ = ["BASELINES", "get", "names"]

_KNOWN: tuple[type[Algorithm], ...] = (
    DrGrpo,
    Gae,
    Grpo,
    Rae,
    Reinforce,
    ReinforcePP,
    ReinforcePPBaseline,
    Remax,
    Rloo,
)
_ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in _KNOWN}


def names() -> tuple[str, ...]:
    """Known names, sorted."""
    return tuple(sorted(_ALGORITHMS))


def get(name: str, gamma: float = 1.0, lam: float = 1.0, baseline: str = "batch") -> Algorithm:
    """A fresh estimator called `name`, or at the place `name` of a user's own; `baseline`: of reinforce, one of `BASELINES`,
    batch for all others.

    InputError that lists the known ones: an unknown name or baseline; another baseline for an estimator that has its own.
    """
    if is_own(name):
        return Own(name, gamma, lam)
    if name not in _ALGORITHMS:
        raise InputError("algorithm must be a known name", name, f"set algorithm to one of: {', '.join(names())}")
    if name == Reinforce.name:
        return Reinforce(gamma, lam, baseline)
    if baseline != "batch":
        found = f"algorithm={name}, baseline={baseline}"
        raise InputError("baseline is a setting of algorithm=reinforce", found, "set baseline=batch, or the algorithm")
    return _ALGORITHMS[name](gamma, lam)
