"""A game's declaration as plain data: the game.json of a run that plays a game of somebody's own.

Who looks at a run reads its game from there, and runs none of its code. A function of the games
that ship is found again by its name; any other one refuses to run."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from ssp.base import declared, places
from ssp.base.errors import InputError, hold, holding
from ssp.base.gamespec import Check, Choose, GameSpec, Grading, Keep, Pay, Phase, Play, Rate

FILE = "game.json"
"""Where it lies, beside a run's config.yaml."""
SHIPPED = "ssp.game.games."
"""How the modules begin whose functions are found again."""
PARTS = {
    part.__name__: part for part in (GameSpec, Play, Check, Rate, Keep, Choose, Grading, Pay, Phase)
}
"""What a declaration is made of, by name."""


def text(spec: GameSpec) -> str:
    """The declaration as JSON, each function by its name. InputError names a value that would not
    come back as it is."""
    return json.dumps(_told(spec, "GAME"), indent=1)


def _told(value: Any, at: str) -> Any:
    part = next((part for part in PARTS.values() if isinstance(value, part)), None)
    if part is not None:
        told: dict[str, Any] = {"is": part.__name__}
        for field in fields(part):
            told[field.name] = _told(getattr(value, field.name), f"{at}.{field.name}")
        return told
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__name__)
        return {"code": f"{value.__module__}:{name}"}
    rule = "a declaration is made of functions, texts, numbers, tuples and mappings by name"
    step = "write it as one of these"
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        hold(not odd, rule, f"{at} has the keys {odd}", step)
        return {"map": {key: _told(below, f"{at}.{key}") for key, below in value.items()}}
    if isinstance(value, tuple | list):
        told_items = [_told(item, f"{at}[{number}]") for number, item in enumerate(value)]
        return {"tuple": told_items} if isinstance(value, tuple) else told_items
    hold(value is None or isinstance(value, str | int | float), rule, f"{at}: {value!r}", step)
    return value


def read(file: Path, kind: str) -> GameSpec:
    """The declaration in the `file` of a run that played the game at the place `kind`. InputError
    for a file that is missing or broken."""
    rule = f"a run that plays a game of its own is looked at by its {FILE}"
    step = "copy it from a newer run of that game; what takes --trust-code reads the game itself"
    hold(file.is_file(), rule, f"{file} is not there", step)
    broken = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError)
    with holding(broken, rule, lambda error: f"{file}: {error!r}", step):
        return declared.check(_made(json.loads(file.read_text(encoding="utf-8")), kind), str(file))


def _made(told: Any, kind: str) -> Any:
    if isinstance(told, list):
        return [_made(item, kind) for item in told]
    if not isinstance(told, dict):
        return told
    if "code" in told:
        return _function(str(told["code"]), kind)
    if "map" in told:
        return {key: _made(below, kind) for key, below in told["map"].items()}
    if "tuple" in told:
        return tuple(_made(item, kind) for item in told["tuple"])
    parts = {name: _made(below, kind) for name, below in told.items() if name != "is"}
    return PARTS[told["is"]](**parts)


def _function(code: str, kind: str) -> Callable[..., Any]:
    """The function of a shipped game that is called so, or one in the place of the run's own that
    raises an InputError."""
    module, _, name = code.partition(":")
    if module.startswith(SHIPPED) and name.isidentifier():
        with suppress(InputError):  # of another version
            function: Callable[..., Any] = places.find(code, "a function", f"def {name}(...)")
            if function.__module__ == module:
                return function
    sealed = f"{places.SEALED}{kind}"
    return lambda *_: places.find(sealed, "a game", "GAME = GameSpec(...)")
