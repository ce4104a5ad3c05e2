"""A reward's options: which ones a function takes, whether given ones fit, and whether a number comes out.

Owns the reading of signatures and the care around a user's function. Promises that an option which a function does not
take is refused with the accepted names, and that no exception becomes a reward (law 2).
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Collection, Mapping
from functools import cache
from numbers import Real
from typing import Any

from ssp.base.errors import Fault, InputError
from ssp.config import own


def check_options(
    function: Callable[..., float],
    options: Mapping[str, Any],
    key: str,
    reserved: Collection[str] = (),
    given: int = 2,
) -> None:
    """InputError unless `function(x, y, **options)` can be called; `reserved` names are filled in by the game, and so are
    the first `given` arguments.

    `key` names the setting in the message. Options with a number as default are finite numbers, with a bool are bools.
    """
    parameters = list(inspect.signature(function).parameters.values())[given:]
    free = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name: p.default for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    for name in reserved:
        named.pop(name, None)
    listed = ", ".join(named) or "none"
    for name, value in options.items():
        if name in reserved or (name not in named and not free):
            raise InputError(f"{key} takes these options: {listed}", name, "leave it out, or correct its name")
        if not _fits(value, named.get(name)):
            raise InputError(f"{key}.{name} is a {_kind(named[name])}", value, f"set {key}.{name}={named[name]}")
    missing = [name for name, default in named.items() if default is inspect.Parameter.empty and name not in options]
    if missing:
        raise InputError(f"{key} gives every option without a default", f"no {', '.join(missing)}", "add it")


def imported(place: str, name: str, parameters: str, *values: object) -> Callable[..., float]:
    """The user's function at `place`, the reward called `name`. InputError unless it is one that can be called with
    `parameters`, for which `values` stand."""
    found = own.find(place, f"the reward {name}", f"def reward{parameters}:")
    rule = f"the reward {name} is a function"
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError) as error:
        raise InputError(rule, str(error), "name a function") from error
    try:
        signature.bind_partial(*values)
    except TypeError as error:
        raise InputError(f"{rule}, called with {parameters}", f"{name}{signature}", "correct it") from error
    if inspect.iscoroutinefunction(found):
        raise InputError(f"{rule}, called without await", f"{name} is async", "make it a plain function")
    return found  # type: ignore[no-any-return]


@cache
def takes(function: Callable[..., float], name: str) -> bool:
    """Whether `function` has a parameter called `name`."""
    return name in inspect.signature(function).parameters


def number(name: str, compute: Callable[[], object]) -> float:
    """The value of the reward called `name`. A Fault passes; InputError for a result that is not a finite number, and for
    any other exception."""
    try:
        value = compute()
    except Fault:
        raise
    except Exception as error:  # whatever a user's function raises
        where = traceback.extract_tb(error.__traceback__)[-1]
        found = f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})"
        raise InputError(f"the reward {name} computes a number", found, "correct the function") from error
    if not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(f"the reward {name} returns a finite number", repr(value), "correct the function")
    return float(value)


def _fits(value: object, default: object) -> bool:
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return True


def _kind(default: object) -> str:
    return "bool (true or false)" if isinstance(default, bool) else "finite number"
