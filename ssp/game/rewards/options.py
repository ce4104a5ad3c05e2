"""A reward's options: which ones a function takes, whether given ones fit, and whether a number
comes out."""

import inspect
import math
import traceback
from collections.abc import Callable, Collection, Mapping
from functools import cache
from numbers import Real
from typing import Any

from ssp.base.errors import Fault, InputError, hold, holding
from ssp.config import own


def check_options(
    function: Callable[..., float],
    options: Mapping[str, Any],
    key: str,
    reserved: Collection[str] = (),
    given: int = 2,
) -> None:
    """InputError unless `function(x, y, **options)` can be called; the game fills in `reserved` and
    the first `given`. `key` names the setting in the message. Options with a number as default are
    finite numbers, with a bool are bools."""
    parameters = list(inspect.signature(function).parameters.values())[given:]
    free = any(p.kind is p.VAR_KEYWORD for p in parameters)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {p.name: p.default for p in parameters if p.kind in kinds and p.name not in reserved}
    for name, value in options.items():
        rule, known = (
            f"{key} takes these options: {', '.join(named) or 'none'}",
            name in named or free,
        )
        hold(known and name not in reserved, rule, name, "leave it out, or correct its name")
        default = named.get(name)
        if isinstance(default, bool):
            hold(
                isinstance(value, bool),
                f"{key}.{name} is true or false",
                value,
                f"set {key}.{name}={default}",
            )
        elif isinstance(default, int | float):
            number = (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and math.isfinite(value)
            )
            hold(number, f"{key}.{name} is a finite number", value, f"set {key}.{name}={default}")
    missing = [
        name
        for name, default in named.items()
        if default is inspect.Parameter.empty and name not in options
    ]
    hold(
        not missing,
        f"{key} gives every option without a default",
        f"no {', '.join(missing)}",
        "add it",
    )


def imported(place: str, name: str, parameters: str, *values: object) -> Callable[..., float]:
    """The user's function at `place`, the reward called `name`. InputError unless it is one that
    can be called with `parameters`, for which `values` stand."""
    found: Callable[..., float] = own.find(place, f"the reward {name}", f"def reward{parameters}:")
    rule = f"the reward {name} is a function, called with {parameters}"
    with holding((TypeError, ValueError), rule, str, "correct it"):
        inspect.signature(found).bind_partial(*values)
    return found


@cache
def takes(function: Callable[..., float], name: str) -> bool:
    """Whether `function` has a parameter called `name`."""
    return name in inspect.signature(function).parameters


def credit(name: str, compute: Callable[[], object], turns: int) -> tuple[float, tuple[float, ...]]:
    """The value of the reward called `name`, in all and by turns; () for the second where it gives
    one number. Errors as for `number`, and for a list that has not one number for each of the
    policy's `turns`."""
    value = _computed(name, compute)
    if not isinstance(value, list | tuple):
        return _finite(name, value), ()
    rule, step = (
        f"the reward {name} gives one number, or one for each turn",
        "give as many as the parameter turns has",
    )
    hold(len(value) == turns, rule, f"{len(value)} for {turns} turns", step)
    each = tuple(_finite(name, one) for one in value)
    return sum(each), each


def number(name: str, compute: Callable[[], object]) -> float:
    """The value of the reward called `name`. A Fault passes; InputError for a result that is not a
    finite number, and for any other exception."""
    return _finite(name, _computed(name, compute))


def _computed(name: str, compute: Callable[[], object]) -> object:
    try:
        return compute()
    except Fault:
        raise
    except Exception as error:  # whatever a user's function raises
        where = traceback.extract_tb(error.__traceback__)[-1]
        found = f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})"
        raise InputError(
            f"the reward {name} computes a number", found, "correct the function"
        ) from error


def _finite(name: str, value: object) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(
            f"the reward {name} returns a finite number", repr(value), "correct the function"
        )
    return float(value)
