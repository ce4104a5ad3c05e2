"""A user's own code by its place: `my_file.py:name`, or `package.module:name` for what Python can
import.

Promises that a place which leads nowhere is an InputError with the reason, and that a file is read
once a process. Code that was sealed, because the configuration of a run that is looked at names it,
is never found."""

import functools
import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ssp.base.errors import Fault, InputError, hold, holding
from ssp.base.services import SEALED as SEALED
from ssp.base.services import sealed as sealed

T = TypeVar("T")


def is_own(value: str) -> bool:
    """Whether `value` is a place: no name that is built in has a colon."""
    place, _, name = value.partition(":")
    return bool(place and name)


def find(value: str, what: str, example: str) -> Any:
    """What stands at the place `value`. `what` it is to be, for the message, and an `example` of
    its first line. InputError when there is no such file, module or name, and for whatever the
    module raises while it is read."""
    rule = "code that a run's own config.yaml names runs only when it is trusted"
    hold(
        not sealed(value), rule, value.removeprefix(SEALED), "read that code, then add --trust-code"
    )
    place, _, path = value.partition(":")
    rule = f"{what} is at the place that its setting names"
    hold(is_own(value), rule, value, "write FILE.py:NAME or package.module:name")
    try:
        found: Any = (
            module_of(Path(place).expanduser().absolute())
            if is_file_place(place)
            else importlib.import_module(place)
        )
        for step in path.split("."):
            found = getattr(found, step)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        where = traceback.extract_tb(error.__traceback__)[-1]
        line = (
            f" (line {where.lineno})"
            if is_file_place(place) and Path(where.filename).name == Path(place).name
            else ""
        )
        step_ = f"write `{example}` there, or correct the place"
        if not is_file_place(place):
            step_ += (
                "; a module's folder is on PYTHONPATH, and its file is named as my_file.py:name"
            )
        raise InputError(rule, f"{value}: {type(error).__name__}: {error}{line}", step_) from error
    return found


def function(
    value: str, what: str, parameters: str, *values: object, options: bool = False
) -> Callable[..., Any]:
    """The user's function at the place `value`. `values` are examples of its `parameters`; with
    `options` it may need others too, which are given by name. InputError as of `find`, and for what
    cannot be called so."""
    example = f"def {value.rpartition(':')[2]}{parameters}:"
    theirs: Callable[..., Any] = find(value, what, example)
    rule = f"{what} is a function, called with {parameters}"
    with holding((TypeError, ValueError), rule, str, f"write `{example}`"):
        signature = inspect.signature(theirs)
        bind = signature.bind_partial if options else signature.bind
        bind(*values)
    return theirs


def is_file_place(place: str) -> bool:
    """Whether a place names a file, and not a module."""
    return place.endswith(".py")


@functools.cache
def module_of(path: Path) -> ModuleType:
    """The module in this file, read once, under a name that no other file's has."""
    hold(
        path.is_file(),
        "a file of your own code exists",
        path,
        "check the path: it counts from the working folder",
    )
    name = f"ssp_own_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def outcome(rule: str, about: str, step: str, compute: Callable[[], T]) -> T:
    """What a user's function gives. A Fault and an InputError pass; any other exception becomes an
    InputError by `rule`, which says after `about` what was raised and where."""
    try:
        return compute()
    except (Fault, InputError):
        raise
    except Exception as error:  # whatever a user's function raises
        place = traceback.extract_tb(error.__traceback__)[-1]
        raised = f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
        raise InputError(rule, f"{about}{raised}", step) from error
