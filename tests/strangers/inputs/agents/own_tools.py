"""Tools as people write them: objects, partial functions, coroutines that nobody awaits; results that are no JSON yet."""

from __future__ import annotations

import dataclasses
import decimal
import functools
from typing import Any

import numpy
import pydantic


class Lookup:
    """A client with a call that is async."""

    async def __call__(self, word: str) -> str:
        """Explains a word."""
        return f"async {word}"


class Plain:
    """Knows words."""

    def __call__(self, word: str) -> str:
        return f"plain {word}"


def fetch(word: str, limit: int, token: str = "") -> str:
    """Fetches a word."""
    return f"{word} {limit} {token}"


async def afetch(word: str, limit: int) -> str:
    """Fetches a word, later."""
    return f"{word} {limit}"


@dataclasses.dataclass
class City:
    name: str
    people: int


class Town(pydantic.BaseModel):
    name: str


RESULTS: dict[str, Any] = {
    "dataclass": City("Oslo", 7),
    "dataclasses": [City("Oslo", 7)],
    "model": Town(name="Oslo"),
    "number": 7,
    "float": 7.5,
    "numpy_int": numpy.int64(7),
    "numpy_float": numpy.float32(7.5),
    "decimal": decimal.Decimal("7.5"),
    "bytes": b"Oslo",
    "object": object(),
}


def result(kind: str) -> Any:
    """Gives a result of this kind."""
    return RESULTS[kind]


called, plain = Lookup(), Plain()
bound = functools.partial(fetch, limit=3, token="hunter2")
later = functools.partial(afetch, limit=3)
deferred = lambda word: afetch(word, 4)  # noqa: E731
