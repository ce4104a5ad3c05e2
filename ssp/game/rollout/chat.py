"""Checks and reads requests of a chat client: messages, tools and stop strings as a policy takes
them."""

import json
import re
from typing import Any

from ssp.game.protocols.calls import call_of
from ssp.game.protocols.template import Message

MODEL = "policy"
"""The name of the model at the endpoint."""

CALL = '\n<tool_call>\n{{"name": {}, "arguments": {}}}\n</tool_call>'
CALLED = re.compile(r"\s*<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
ROLES = {"developer": "system", "function": "tool"}

_TAKEN = (
    "model messages prompt tools tool_choice parallel_tool_calls stop max_tokens"
    " max_completion_tokens"
)
_OURS = (
    "temperature top_p top_k min_p seed frequency_penalty presence_penalty repetition_penalty"
    " reasoning_effort"
)
_UNHEARD = (
    "verbosity user metadata store service_tier safety_identifier prompt_cache_key"
    " prompt_cache_retention"
)
KNOWN = {*_TAKEN.split(), *_OURS.split(), *_UNHEARD.split()}
"""Keys that a request may have: those that are followed, those for which the run's settings stand,
and those that change no answer."""

USUAL = {"n": 1, "best_of": 1, "response_format": {"type": "text"}, "modalities": ["text"]}
"""Values that other keys may have."""

MESSAGE = {"role", "content", "tool_calls", "tool_call_id", "name"}


class Refused(Exception):
    """A request that cannot be done, with what the client is told."""


def check(body: object) -> None:
    """Refused, by name, for a request that asks for what cannot be done here."""
    if not isinstance(body, dict) or body.get("model") != MODEL:
        raise Refused(f"a request is an object with model={MODEL}")
    others = {name: value for name, value in body.items() if name not in KNOWN}
    odd = [name for name, value in others.items() if value and value != USUAL.get(name)]
    if odd:
        raise Refused(f"{', '.join(odd)}: not done here, so leave it out")
    if body.get("tool_choice") not in (None, "auto", "none"):
        raise Refused("tool_choice is auto or none, since what a policy writes is its own")


def tools_of(body: dict[str, Any]) -> list[Any]:
    """The functions that a request offers. Refused for what is no list of these."""
    tools = body.get("tools") or []
    listed = tools if isinstance(tools, list) else [None]
    if not all(isinstance(tool, dict) and _name(tool.get("function")) for tool in listed):
        raise Refused("tools is a list of functions with names")
    return listed


def _name(function: object) -> str:
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def plain(message: dict[str, Any]) -> Message:
    """A message as role and text; its calls are written as a policy writes them."""
    odd = [name for name, value in message.items() if value and name not in MESSAGE]
    if odd:
        names = ", ".join(odd)
        raise Refused(f"{names} of a message: a policy reads texts and calls of tools alone")
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(map(_part, content))
    role = str(message.get("role"))
    role = ROLES.get(role, role)
    if role not in ("system", "user", "assistant", "tool") or not isinstance(content, str):
        raise Refused("a message has the role system, user, assistant or tool, and a text")
    calls = message.get("tool_calls") or []
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not _name(function):
            raise Refused("tool_calls of a message are calls of functions with names")
        arguments = _orderly(function.get("arguments") or "{}")
        content += CALL.format(json.dumps(_name(function)), arguments)
    return {"role": role, "content": content}


def _part(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        raise Refused(f"a message holds a part of the type {kind}: a policy reads texts alone")
    return text


def _orderly(arguments: object) -> str:
    """JSON text in one form, since clients read it and write it anew."""
    try:
        return json.dumps(json.loads(str(arguments)), ensure_ascii=False, sort_keys=True)
    except (ValueError, RecursionError):
        return str(arguments)


def canon(message: Message) -> str:
    """The form that is the same for two messages that say the same."""
    return json.dumps([message["role"], " ".join(message["content"].split())])


def stops_of(body: dict[str, Any]) -> list[str]:
    """The stop strings of a request. Refused for what is no text."""
    given = body.get("stop") or []
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise Refused("stop is a text, or a list of texts")
    return stops


def parsed(turn: str, body: dict[str, Any], id: str) -> tuple[str, list[dict[str, Any]]]:
    """A turn as a client gets it: its text up to a stop string, and its calls. Their ids begin with
    `id`; where that is empty no call is read. Calls that cannot be read stay text."""
    text = turn
    for stop in stops_of(body):
        text = text[: len(turn.partition(stop)[0])]
    calls: list[dict[str, Any]] = []
    for number, written in enumerate(CALLED.findall(text) if id else ()):
        try:
            call = json.loads(written)
            arguments = call.get("arguments") or {}
            if isinstance(arguments, str):
                arguments = json.loads(arguments)
            (read,) = call_of(str(call["name"]), arguments)
        except (ValueError, KeyError, RecursionError):
            return text, []
        function = {"name": read.tool, "arguments": read.text}
        calls.append({"id": f"{id}-{number}", "type": "function", "function": function})
    if not calls:
        return text, []
    if body.get("parallel_tool_calls") is False:
        calls = calls[:1]
    return CALLED.sub("", text), calls
