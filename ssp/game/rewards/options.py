"""Options of a reward: which ones a function takes, and whether those that are given fit; and the
check that a reward returns a number."""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from functools import cache
from numbers import Real
from typing import Any

from ssp.base.errors import InputError, hold
from ssp.base.places import function, outcome

_BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


def check_options(
    function: Callable[..., float],
    options: Mapping[str, Any],
    key: str,
    reserved: Collection[str] = (),
    given: int = 2,
) -> None:
    """InputError unless `function(x, y, **options)` can be called. The game fills in the first
    `given` parameters and those named in `reserved`. `key` names the setting in the message.
    Options whose default is a number are finite numbers, those whose default is a bool are
    bools."""
    parameters = list(inspect.signature(function).parameters.values())[given:]
    free = False
    defaults = {}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            free = True
        elif parameter.kind in _BY_NAME and parameter.name not in reserved:
            defaults[parameter.name] = parameter.default
    rule = f"{key} takes these options: {', '.join(defaults) or 'none'}"
    for name, value in options.items():
        known = (name in defaults or free) and name not in reserved
        hold(known, rule, name, "leave it out, or correct its name")
        default = defaults.get(name)
        step = f"set {key}.{name}={default}"
        if isinstance(default, bool):
            hold(isinstance(value, bool), f"{key}.{name} is true or false", value, step)
        elif isinstance(default, int | float):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            finite = is_number and math.isfinite(value)
            hold(finite, f"{key}.{name} is a finite number", value, step)
    needed = [name for name, default in defaults.items() if default is inspect.Parameter.empty]
    missing = [name for name in needed if name not in options]
    rule = f"{key} gives every option without a default"
    hold(not missing, rule, f"no {', '.join(missing)}", "add it")


def imported(place: str, name: str, parameters: str, *values: object) -> Callable[..., float]:
    """The user's function at `place`, the reward called `name`. InputError unless it can be called
    with `parameters`; `values` are examples of them."""
    return function(place, f"the reward {name}", parameters, *values, options=True)


@cache
def takes(function: Callable[..., float], name: str) -> bool:
    """Whether `function` has a parameter called `name`."""
    return name in inspect.signature(function).parameters


def credit(name: str, compute: Callable[[], object], turns: int) -> tuple[float, tuple[float, ...]]:
    """The value of the reward called `name`: its sum, and its numbers by turn, () where it gives
    one number. Errors as for `number`; InputError for a list that has not one number for each of
    the policy's `turns`."""
    value = _computed(name, compute)
    if not isinstance(value, list | tuple):
        return _finite(name, value), ()
    rule = f"the reward {name} gives one number, or one for each turn"
    step = "give as many as the parameter turns has"
    hold(len(value) == turns, rule, f"{len(value)} for {turns} turns", step)
    by_turn = tuple(_finite(name, one) for one in value)
    return sum(by_turn), by_turn


def number(name: str, compute: Callable[[], object]) -> float:
    """The value of the reward called `name`. A Fault passes; InputError for a result that is not a
    finite number, and for any exception of a user's function."""
    return _finite(name, _computed(name, compute))


def _computed(name: str, compute: Callable[[], object]) -> object:
    return outcome(f"the reward {name} computes a number", "", "correct the function", compute)


def _finite(name: str, value: object) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        rule = f"the reward {name} returns a finite number"
        raise InputError(rule, repr(value), "correct the function")
    return float(value)
