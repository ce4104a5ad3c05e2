"""What stands at a setting's field: the values that it allows; and blocks of settings over each
other."""

import copy
import math
from collections.abc import Iterator
from dataclasses import Field, field, fields, is_dataclass
from typing import Any, get_type_hints

INF = math.inf


def number(default: float, low: float, high: float = INF) -> Any:
    """A number from `low` to `high`, both allowed; INF: no such end, and itself refused."""
    return field(default=default, metadata={"range": (low, high)})


def choice(default: str, names: str) -> Any:
    """One of `names`, with blanks between; "" too where it is the `default`."""
    return field(default=default, metadata={"choices": (*("",) * (default == ""), *names.split())})


def hints(schema: Any) -> dict[str, Any]:
    """Key → type of a block. What is the same for everybody, a ClassVar, is no key."""
    types = get_type_hints(schema)
    return {item.name: types[item.name] for item in fields(schema)}


def walk(schema: Any, prefix: str = "") -> Iterator[tuple[str, Field[Any]]]:
    """Every key below a block and its field; keys of a role block once, as `{role}.key`."""
    types = hints(schema)
    for item in fields(schema):
        key, hint = f"{prefix}{item.name}", types[item.name]
        if not is_dataclass(hint):
            yield key, item
        elif key not in ("proposer", "solver"):
            yield from walk(hint, "{role}." if key == "defaults" else f"{key}.")


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` over `below`, block by block; lists and values are replaced whole. Neither is
    changed."""
    merged = copy.deepcopy(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else copy.deepcopy(value)
    return merged
