"""What stands inside a turn's tags: queries in their written forms, tool calls, boxed results. Nothing here raises."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

TOOL = "search"
"""Name of the one tool that a policy is offered."""

HOLE = "{query}"
"""Where the query stands in a form of a protocol's own."""

BOX = "\\boxed{"
_BRACE = re.compile(r"[{}]")
_HALF = re.compile("[\ud800-\udfff]")


def split(text: str, form: str) -> tuple[str, ...]:
    """The queries in a search tag. `form`: text (all of it is one), list (a JSON list, or one), or how
    a call is written, with the hole {query}: what stands in its place."""
    if HOLE in form:
        before, _, after = (part.strip() for part in form.partition(HOLE))
        call = text.strip()
        fits = len(call) > len(before) + len(after) and call.startswith(before) and call.endswith(after)
        query = call[len(before) : len(call) - len(after)] if fits else ""
        return () if after and after in query else _texts([query])  # one call a block
    value = _json(text) if form == "list" else None
    return (_texts(value) if isinstance(value, list) else ()) or (text,)


def tool_queries(bodies: Sequence[str]) -> tuple[str, ...]:
    """The queries of a turn's tool calls: JSON `{"name": "search", "arguments": {"query": ...}}` in each body. The
    query may be a list of them. One call that cannot be read makes the whole turn unreadable: ()."""
    asked = [_arguments(_json(body)) for body in bodies]
    return tuple(query for queries in asked for query in queries) if all(asked) else ()


def bare_call(turn: str) -> tuple[str, ...]:
    """The queries of a turn that is a tool call without tags, thoughts aside, as Llama writes it; () for any other."""
    call = turn.rpartition("</think>")[2].strip()
    return tool_queries([call]) if call.startswith("{") else ()


def written(query: str, form: str) -> str:
    """How a search for `query` is written between the tags: the inverse of reading one."""
    if HOLE in form:
        return form.replace(HOLE, query)
    return json.dumps({"name": TOOL, "arguments": {"query": query}}) if form == "tool" else query


def _arguments(call: Any) -> tuple[str, ...]:
    if not isinstance(call, dict) or call.get("name") != TOOL:
        return ()
    given = call.get("arguments", call.get("parameters"))
    given = _json(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        return ()
    asked = given.get("query", given.get("queries", given.get("query_list")))
    return _texts(asked if isinstance(asked, list) else [asked])


def _texts(values: list[Any]) -> tuple[str, ...]:
    """The values, stripped; () when one of them is not a text, is empty, or holds half of a surrogate pair."""
    texts = tuple(value.strip() for value in values if isinstance(value, str) and not _HALF.search(value))
    return texts if len(texts) == len(values) and all(texts) else ()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def boxed(text: str) -> str | None:
    """What the last `\\boxed{...}` holds, braces counted; None when there is none or it is not closed. Linear."""
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
