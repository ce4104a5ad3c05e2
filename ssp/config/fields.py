"""The types of settings. What a field allows stands in its annotation, and pydantic reads it."""

import copy
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from ssp.base.places import is_own

STRICT = {"extra": "forbid", "coerce_numbers_to_str": True, "allow_inf_nan": False}
"""How pydantic reads settings: no key is unknown, and no number is infinite."""
INF = math.inf
MOST = 10**12
"""Where a whole number has no other end."""


@dataclass(frozen=True)
class Within:
    """A number from `low` to `high`, both allowed. Infinity is no number, and neither is true."""

    low: float
    high: float = INF

    def __get_pydantic_core_schema__(self, source: type, handler: Any) -> Any:
        """What pydantic asks for; only a process that reads settings imports its core."""
        from pydantic_core import core_schema

        ends = {}
        if self.low > -INF:
            ends["ge"] = self.low
        if source is int or self.high < INF:
            ends["le"] = min(self.high, MOST) if self.high == INF else self.high
        return core_schema.no_info_before_validator_function(_number, {**handler(source), **ends})


@dataclass(frozen=True)
class Own:
    """The place of code of one's own."""

    def __get_pydantic_core_schema__(self, source: type, handler: Any) -> Any:
        """See `Within`."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_own, handler(source))


@dataclass(frozen=True)
class Names:
    """A name in a registry, the table at `place` (package.module:TABLE): whoever adds to it adds a
    choice. It is read when somebody asks for the choices."""

    place: str

    def __get_pydantic_core_schema__(self, source: type, handler: Any) -> Any:
        """See `Within`."""
        from pydantic_core import core_schema

        return core_schema.literal_schema([*self.listed])

    @property
    def listed(self) -> tuple[str, ...]:
        """The names, in the registry's order."""
        return tuple(resolve_name(self.place))


@dataclass(frozen=True)
class TextOrBlock:
    """A text, or a block of settings in its place."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """See `Within`."""
        from pydantic_core import core_schema

        text, block = map(handler.generate_schema, get_args(source))
        kinds = {TEXT: text, BLOCK: block}
        return core_schema.tagged_union_schema(kinds, discriminator=_kind)


TEXT, BLOCK = "a text", "a block"
"""What pydantic calls the two in the place of an error."""


def _kind(value: object) -> str:
    return BLOCK if isinstance(value, dict) or is_dataclass(value) else TEXT


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("true and false are no numbers")
    return value


def _own(value: str) -> str:
    if not is_own(value):
        raise ValueError("no place of code")
    return value


Count = Annotated[int, Within(0)]
Positive = Annotated[int, Within(1)]
Actors = Annotated[int, Within(1, 1024)]
Few = Annotated[int, Within(1, 64)]
Amount = Annotated[float, Within(0)]
Share = Annotated[float, Within(0, 1)]
Seconds = Annotated[float, Within(0.001)]
Place = Annotated[str, Own()]


@functools.cache
def hints(schema: Any) -> dict[str, Any]:
    """Field → type of a block of settings, with what it allows."""
    types = get_type_hints(schema, include_extras=True)
    return {item.name: types[item.name] for item in fields(schema)}


def is_block(hint: Any) -> bool:
    """Whether a setting of this type is a block of settings, or may be one beside a text."""
    return is_dataclass(schema_of(hint))


def schema_of(hint: Any) -> Any:
    """The block that a setting of this type is, or may be beside a text; else the type."""
    members = get_args(plain(hint))
    return members[1] if TextOrBlock() in get_args(hint) else plain(hint)


def plain(hint: Any) -> Any:
    """The type without what it allows; of several the first."""
    if get_origin(hint) is Annotated:
        return get_args(hint)[0]
    return hint


def choices(hint: Any) -> tuple[str, ...]:
    """The names that a setting of this type takes; none where it is no choice."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if isinstance(hint, Names):
        return hint.listed
    return tuple(name for part in get_args(hint) for name in choices(part))


def takes_own(hint: Any) -> bool:
    """Whether a setting of this type takes the place of one's own code."""
    return Place in get_args(hint)


def ends(hint: Any) -> Within | None:
    """The smallest and the largest value of a number."""
    marks = getattr(hint, "__metadata__", ())
    return next((mark for mark in marks if isinstance(mark, Within)), None)


def is_text(hint: Any) -> bool:
    """Whether a setting of this type is a word or a text."""
    return plain(hint) is str or bool(choices(hint))


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` over `below`, block by block; lists and values are replaced whole. Neither is
    changed."""
    merged = copy.deepcopy(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else copy.deepcopy(value)
    return merged


def leaves(raw: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted names and values of what is no block."""
    for key, value in raw.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
