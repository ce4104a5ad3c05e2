"""The registry of advantage estimators. A further one is a class in `estimators` that has a name; a
user's own is a class at a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssp.base.errors import InputError, hold, holding
from ssp.config import own
from ssp.learning.algorithms import estimators
from ssp.learning.algorithms.base import Algorithm

if TYPE_CHECKING:
    from torch import Tensor

    from ssp.learning.batch import Batch

_KINDS = [
    kind
    for kind in vars(estimators).values()
    if isinstance(kind, type) and issubclass(kind, Algorithm)
]
_ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in _KINDS if kind.name}


def names() -> tuple[str, ...]:
    """Known names, sorted."""
    return tuple(sorted(_ALGORITHMS))


def get(name: str, gamma: float = 1.0, lam: float = 1.0) -> Algorithm:
    """A fresh estimator called `name`, or at the place `name` of a user's own. InputError: unknown,
    or none at the place."""
    if own.is_own(name):
        return _own(name, gamma, lam)
    hold(
        name in _ALGORITHMS,
        "algorithm must be a known name",
        name,
        f"set algorithm to one of: {', '.join(names())}",
    )
    return _ALGORITHMS[name](gamma, lam)


def kind(name: str) -> type[Algorithm] | None:
    """The class of the estimator `name`, which says what it compares; None for sealed code, which
    is not asked. InputError: unknown, or none at the place."""
    if own.sealed(name):
        return None
    return _own_kind(name) if own.is_own(name) else type(get(name))


def _own_kind(place: str) -> type[Algorithm]:
    """The class at the place of a user's own estimator."""
    rule, example = f"the estimator {place}", "class Mine(ssp.learning.algorithms.base.Algorithm):"
    at_place = own.find(place, rule, example)
    if not isinstance(at_place, type) or not issubclass(at_place, Algorithm):
        raise InputError(
            f"{rule} is a class that inherits Algorithm", repr(at_place), f"write `{example}`"
        )
    return at_place


def _own(place: str, gamma: float, lam: float) -> Algorithm:
    """A user's own estimator, whose advantages are looked at each time."""
    rule = f"the estimator {place}"
    its_class = _own_kind(place)
    lacks = f"{rule} says what an episode earns"
    hold(
        its_class.settled_by() is not None,
        lacks,
        "neither credits nor advantages",
        "write one of the two methods",
    )
    hold(
        not its_class.needs_values,
        f"{rule} has no critic",
        "needs_values = True",
        "use algorithm=gae, which has one",
    )
    called = f"{rule} is made by its class, called with (gamma, lam)"
    # It may lack a method, or raise whatever its author likes.
    with holding(Exception, called, lambda error: f"{type(error).__name__}: {error}", "correct it"):
        made = its_class(gamma, lam)
    made.name = own.title(place)
    if not made.in_learner:
        return made
    given_by = made.advantages

    def checked(batch: Batch) -> Tensor:
        import torch
        from torch import Tensor

        given, on = given_by(batch), batch.mask.bool() & batch.valid.bool()[:, None]
        if not isinstance(given, Tensor) or given.shape != on.shape:
            found = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise InputError(
                f"{rule} gives one number a token", found, f"return a tensor of {tuple(on.shape)}"
            )
        if not bool(torch.isfinite(given).all()) or bool((given[~on] != 0).any()):
            zeros = f"{rule} gives finite numbers, and 0 off the model tokens of valid rows"
            raise InputError(
                zeros, "another one", "finish with over_tokens(row_values, batch.mask)"
            )
        return given.detach().float()

    made.advantages = checked  # type: ignore[method-assign]
    return made
