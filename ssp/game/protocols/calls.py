"""Reads what stands inside a turn's tags: queries in their written forms, calls of tools, boxed
results. Nothing here raises."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ssp.base.printable import printable

TOOL = "search"
"""Name of the tool that every policy is offered."""


@dataclass(frozen=True)
class Offer:
    """A tool as a policy hears of it. `parameters`: JSON schema of its arguments, an object.
    `ours`: its description says what it takes."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict, hash=False)
    ours: bool = False

    @property
    def function(self) -> dict[str, Any]:
        """The offer in the form that chat templates take."""
        told = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": told}

    @property
    def alone(self) -> str:
        """The name of its only argument, where that is a text; else "". Between tags such an
        argument is written as it is."""
        properties: dict[str, Any] = self.parameters.get("properties", {})
        if len(properties) != 1:
            return ""
        ((name, schema),) = properties.items()
        return name if isinstance(schema, dict) and schema.get("type") == "string" else ""

    def cleaned(self, clean: Callable[[str], str]) -> Offer:
        """The offer with `clean` of every text that others wrote."""
        description = clean(printable(self.description))
        return replace(self, description=description, parameters=_cleaned(self.parameters, clean))


_QUERY = {"query": {"type": "string", "description": "what to look for, in a few words"}}
_TAKES = {"type": "object", "properties": _QUERY, "required": ["query"]}
SEARCH = Offer(
    TOOL, "Searches the document collection and returns the passages that fit best.", _TAKES
)


_FUNCTION = re.compile(r"\s*<function=([^>]+)>(.*)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_MARKED = re.compile(
    r"<[|｜]tool[_▁]call[_▁]begin[|｜]>(?:function<｜tool▁sep｜>|functions\.)?([^<\s:]+)(?::\d+)?"
    r"(?:<｜tool▁sep｜>|<\|tool_call_argument_begin\|>|\s)(.*?)<[|｜]tool[_▁]call[_▁]end[|｜]>",
    re.DOTALL,
)
"""Calls as chat templates of Qwen 3.5, GLM 4.5, DeepSeek V3 and Kimi K2 ask for them."""


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
    """The queries in a search tag. `form`: text (the text is one query), list (a JSON list, or one
    query), or how a call is written, with the hole {query} in the query's place."""
    if HOLE in form:
        before, _, after = (part.strip() for part in form.partition(HOLE))
        call = text.strip()
        longer = len(call) > len(before) + len(after)
        if not (longer and call.startswith(before) and call.endswith(after)):
            return ()
        query = call[len(before) : len(call) - len(after)]
        return () if after and after in query else _texts([query])  # one call a block
    if form == "list":
        value = _json(text)
        queries = _texts(value) if isinstance(value, list) else ()
        return queries or (text,)
    return (text,)


def read(bodies: Sequence[str], offers: Sequence[Offer]) -> tuple[Call, ...]:
    """The calls of the tools `offers` that a turn makes, one in each body, as JSON: `{"name":
    "search", "arguments": {"query": ...}}`, or in the tags of another family. The query may be a
    list of queries. () when one of the calls cannot be read."""
    known = {offer.name: offer for offer in offers}
    calls: list[Call] = []
    for body in bodies:
        asked = _read(_json(body) or _in_tags(body, known), known)
        if not asked:
            return ()
        calls += asked
    return tuple(calls)


def bare_calls(turn: str, offers: Sequence[Offer], clean: Callable[[str], str]) -> tuple[Call, ...]:
    """The calls of a turn without tags, behind its thoughts: JSON alone (Llama), the tool's name
    and JSON (GLM 4), or calls between the control strings of DeepSeek or Kimi, of which `clean`
    clears a text; () for any other turn."""
    said = turn.rpartition("</think>")[2]
    marked = _MARKED.findall(said)
    call = clean(said).strip()
    if call.startswith("{") and not marked:
        return read([call], offers)
    name, _, rest = call.partition("\n")
    written = marked or [(name, rest)]
    bodies = []
    for name, arguments in written:
        arguments = arguments.strip().removeprefix("```json").removesuffix("```")
        bodies.append(json.dumps({"name": name.strip(), "arguments": _json(arguments)}))
    return read(bodies, offers)


def tagged(offer: Offer, text: str) -> tuple[Call, ...]:
    """The call in a tag of its own: its one text, or the JSON of its arguments; () when that cannot
    be read."""
    if offer.alone and text.strip():
        return call_of(offer.name, {offer.alone: text})
    return call_of(offer.name, _json(text))


def written(query: str, form: str) -> str:
    """How a search for `query` is written between the tags: the inverse of reading one."""
    if HOLE in form:
        return form.replace(HOLE, query)
    return json.dumps({"name": TOOL, "arguments": {"query": query}}) if form == "tool" else query


def called(query: str) -> dict[str, Any]:
    """A policy's turn that searches for `query`, in the form that chat templates take."""
    function = {"name": TOOL, "arguments": {"query": query}}
    call = {"id": "call00000", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def call_of(name: str, given: Any) -> tuple[Call, ...]:
    """The call of a tool with the arguments `given`; () for what is no object, or cannot be handed
    on as JSON."""
    if not isinstance(given, dict) or not _shallow(given, DEEPEST):
        return ()
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except ValueError:  # of a number that JSON does not have
        return ()
    return (Call(name, text),) if _texts([name, text]) else ()


def _in_tags(body: str, known: Mapping[str, Offer]) -> dict[str, Any]:
    """A call whose arguments stand in tags of their own, in the form of JSON; {} for no call. A
    value is JSON unless the tool takes a text."""
    function = _FUNCTION.match(body)
    if function:
        name, pairs = function[1], _PARAMETER.findall(function[2])
    else:
        name, pairs = body.partition("<arg_key>")[0], _ARGUMENT.findall(body)
    offer = known.get(name.strip())
    if offer is None:
        return {}
    arguments: dict[str, Any] = {}
    for key, value in pairs:
        schema = offer.parameters.get("properties", {}).get(key)
        told = isinstance(schema, dict) and schema.get("type") != "string"
        arguments[key] = _json(value) if told else value
    return {"name": offer.name, "arguments": arguments}


def _read(call: Any, known: Mapping[str, Offer]) -> tuple[Call, ...]:
    if not isinstance(call, dict) or call.get("name") not in known.keys():
        return ()
    given = call.get("arguments", call.get("parameters"))
    if isinstance(given, str):
        given = _json(given)
    if not isinstance(given, dict):
        return ()
    if call["name"] != TOOL:
        return call_of(call["name"], given)
    asked = given.get("query", given.get("queries", given.get("query_list")))
    queries = _texts(asked if isinstance(asked, list) else [asked])
    return tuple(Call(TOOL, query) for query in queries)


def _texts(values: list[Any]) -> tuple[str, ...]:
    """The values, stripped; () when one of them is not a text, is empty, or holds half of a
    surrogate pair."""
    texts = []
    for value in values:
        text = value.strip() if isinstance(value, str) else ""
        if not text or _HALF.search(text):
            return ()
        texts.append(text)
    return tuple(texts)


def _shallow(value: Any, left: int) -> bool:
    """Whether `value` is nested less than `left` levels deep."""
    if not left:
        return False
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return all(_shallow(part, left - 1) for part in value)


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
