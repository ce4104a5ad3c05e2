"""What stands inside a turn's tags: queries in their written forms, calls of tools, boxed results.
Nothing here raises."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ssp.base.printable import printable

TOOL = "search"
"""Name of the tool that every policy is offered."""


@dataclass(frozen=True)
class Offer:
    """A tool as a policy hears of it. `parameters`: JSON schema of its arguments, an object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def function(self) -> dict[str, Any]:
        """In the form that chat templates take."""
        told = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": told}

    @property
    def alone(self) -> str:
        """The one argument that it has, where that is a text: its name. Between tags it is written
        as it is."""
        known: dict[str, Any] = self.parameters.get("properties", {})
        types = [isinstance(value, dict) and value.get("type") for value in known.values()]
        return next(iter(known)) if types == ["string"] else ""

    def cleaned(self, clean: Callable[[str], str]) -> Offer:
        """With `clean` of every text that others wrote."""
        told, parameters = (_cleaned(part, clean) for part in (self.description, self.parameters))
        return replace(self, description=told, parameters=parameters)


_QUERY = {"query": {"type": "string", "description": "what to look for, in a few words"}}
_TAKES = {"type": "object", "properties": _QUERY, "required": ["query"]}
SEARCH = Offer(
    TOOL, "Searches the document collection and returns the passages that fit best.", _TAKES
)


class Call(NamedTuple):
    """A call that a policy wrote. `text`: what a search looks for; of another tool the JSON of its
    arguments."""

    tool: str
    text: str


HOLE = "{query}"
"""Where the query stands in a form of a protocol's own."""

BOX = "\\boxed{"
_BRACE = re.compile(r"[{}]")
_HALF = re.compile("[\ud800-\udfff]")
DEEPEST = 32
"""Levels of a call's arguments."""


def split(text: str, form: str) -> tuple[str, ...]:
    """The queries in a search tag. `form`: text (all of it is one), list (a JSON list, or one), or
    how a call is written, with the hole {query}: what stands in its place."""
    if HOLE in form:
        before, _, after = (part.strip() for part in form.partition(HOLE))
        call = text.strip()
        fits = (
            len(call) > len(before) + len(after)
            and call.startswith(before)
            and call.endswith(after)
        )
        query = call[len(before) : len(call) - len(after)] if fits else ""
        return () if after and after in query else _texts([query])  # one call a block
    value = _json(text) if form == "list" else None
    return (_texts(value) if isinstance(value, list) else ()) or (text,)


def read(bodies: Sequence[str], names: Sequence[str]) -> tuple[Call, ...]:
    """A turn's calls of the tools `names`: JSON `{"name": "search", "arguments": {"query": ...}}`
    in each body. The query may be a list of them. One call that cannot be read makes the whole turn
    unreadable: ()."""
    asked = [_read(_json(body), names) for body in bodies]
    return tuple(call for calls in asked for call in calls) if all(asked) else ()


def bare_call(turn: str, names: Sequence[str]) -> tuple[Call, ...]:
    """The calls of a turn that is a tool call without tags, thoughts aside, as Llama writes it; ()
    for any other."""
    call = turn.rpartition("</think>")[2].strip()
    return read([call], names) if call.startswith("{") else ()


def tagged(offer: Offer, text: str) -> tuple[Call, ...]:
    """The call in a tag of its own: its one text, or the JSON of its arguments; () when that cannot
    be read."""
    return call_of(offer.name, {offer.alone: text} if offer.alone and text.strip() else _json(text))


def written(query: str, form: str) -> str:
    """How a search for `query` is written between the tags: the inverse of reading one."""
    if HOLE in form:
        return form.replace(HOLE, query)
    return json.dumps({"name": TOOL, "arguments": {"query": query}}) if form == "tool" else query


def call_of(name: str, given: Any) -> tuple[Call, ...]:
    """The call of a tool with the arguments `given`; () for what is no object, or cannot be handed
    on as JSON."""
    return (
        (Call(name, text),)
        if isinstance(given, dict) and _texts([name, text := _dump(given)])
        else ()
    )


def _read(call: Any, names: Sequence[str]) -> tuple[Call, ...]:
    if not isinstance(call, dict) or call.get("name") not in names:
        return ()
    given = call.get("arguments", call.get("parameters"))
    given = _json(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        return ()
    if call["name"] != TOOL:
        return call_of(call["name"], given)
    asked = given.get("query", given.get("queries", given.get("query_list")))
    return tuple(
        Call(TOOL, query) for query in _texts(asked if isinstance(asked, list) else [asked])
    )


def _texts(values: list[Any]) -> tuple[str, ...]:
    """The values, stripped; () when one of them is not a text, is empty, or holds half of a
    surrogate pair."""
    texts = tuple(
        value.strip() for value in values if isinstance(value, str) and not _HALF.search(value)
    )
    return texts if len(texts) == len(values) and all(texts) else ()


def _dump(arguments: dict[str, Any]) -> str:
    """Their JSON; "" for what JSON has no number for, or what is nested too deeply to be handed
    on."""
    try:
        return (
            json.dumps(arguments, ensure_ascii=False, allow_nan=False)
            if _shallow(arguments, DEEPEST)
            else ""
        )
    except ValueError:
        return ""


def _shallow(value: Any, left: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left > 0 and all(_shallow(part, left - 1) for part in inner)


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(printable(value))
    if isinstance(value, dict):
        return {_cleaned(name, clean): _cleaned(part, clean) for name, part in value.items()}
    return [_cleaned(part, clean) for part in value] if isinstance(value, list) else value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def boxed(text: str) -> str | None:
    """What the last `\\boxed{...}` holds, braces counted; None when there is none or it is not
    closed. Linear."""
    start = text.rfind(BOX)
    if start < 0:
        return None
    start += len(BOX)
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return text[start : brace.start()]
    return None
