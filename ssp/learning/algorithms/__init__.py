"""The registry of advantage estimators. A further one is a class in `estimators` that has a name; a
user's own is a class at a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssp.base.errors import hold, holding
from ssp.config import own
from ssp.learning.algorithms import estimators
from ssp.learning.algorithms.base import Algorithm

if TYPE_CHECKING:
    from torch import Tensor

    from ssp.learning.batch import Batch

ALGORITHMS: dict[str, type[Algorithm]] = {}
"""By name, as `algorithm` has it."""
for _kind in vars(estimators).values():
    if isinstance(_kind, type) and issubclass(_kind, Algorithm) and _kind.name:
        ALGORITHMS[_kind.name] = _kind


def names() -> tuple[str, ...]:
    """Known names, sorted."""
    return tuple(sorted(ALGORITHMS))


def get(name: str, gamma: float = 1.0, lam: float = 1.0) -> Algorithm:
    """A fresh estimator called `name`, or at the place `name` of a user's own. InputError: unknown,
    or none at the place."""
    if own.is_own(name):
        return _own(name, gamma, lam)
    step = f"set algorithm to one of: {', '.join(names())}"
    hold(name in ALGORITHMS, "algorithm must be a known name", name, step)
    return ALGORITHMS[name](gamma, lam)


def kind(name: str) -> type[Algorithm] | None:
    """The class of the estimator `name`, which says what it compares; None for sealed code, which
    is not asked. InputError: unknown, or none at the place."""
    if own.sealed(name):
        return None
    return _own_kind(name) if own.is_own(name) else type(get(name))


def _own_kind(place: str) -> type[Algorithm]:
    """The class at the place of a user's own estimator."""
    rule = f"the estimator {place}"
    example = "class Mine(ssp.learning.algorithms.base.Algorithm):"
    at_place = own.find(place, rule, example)
    is_estimator = isinstance(at_place, type) and issubclass(at_place, Algorithm)
    inherits = f"{rule} is a class that inherits Algorithm"
    hold(is_estimator, inherits, repr(at_place), f"write `{example}`")
    return at_place  # type: ignore[no-any-return]


def _own(place: str, gamma: float, lam: float) -> Algorithm:
    """A user's own estimator, whose advantages are looked at each time."""
    rule = f"the estimator {place}"
    its_class = _own_kind(place)
    says = its_class.settled_by() is not None
    step = "write one of the two methods"
    hold(says, f"{rule} says what an episode earns", "neither credits nor advantages", step)
    step = "use algorithm=gae, which has one"
    hold(not its_class.needs_values, f"{rule} has no critic", "needs_values = True", step)
    called = f"{rule} is made by its class, called with (gamma, lam)"
    # It may lack a method, or raise whatever its author likes.
    with holding(Exception, called, lambda error: f"{type(error).__name__}: {error}", "correct it"):
        made = its_class(gamma, lam)
    made.name = own.title(place)
    if made.in_learner:
        _look_at(made, rule)
    return made


def _look_at(made: Algorithm, rule: str) -> None:
    """Have each result of the estimator's `advantages` looked at. InputError: one that is not a
    finite number a token, and 0 off the model tokens."""
    theirs = made.advantages

    def checked(batch: Batch) -> Tensor:
        import torch

        advantages = theirs(batch)
        on = batch.mask.bool() & batch.valid.bool()[:, None]
        is_tensor = isinstance(advantages, torch.Tensor)
        shape = tuple(advantages.shape) if is_tensor else type(advantages).__name__
        step = f"return a tensor of {tuple(on.shape)}"
        hold(shape == on.shape, f"{rule} gives one number a token", shape, step)
        fits = bool(torch.isfinite(advantages).all() and (advantages[~on] == 0).all())
        zeros = f"{rule} gives finite numbers, and 0 off the model tokens of valid rows"
        hold(fits, zeros, "another one", "finish with over_tokens(row_values, batch.mask)")
        return advantages.detach().float()

    made.advantages = checked  # type: ignore[method-assign]
