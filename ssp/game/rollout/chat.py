"""What a client of OpenAI's API says, as a policy takes it: messages, tools, stop strings. What cannot
be done is refused by name. Replies are made in the client's form, whole or as a stream."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from ssp.game.protocols.calls import call_of
from ssp.game.protocols.template import Message

MODEL = "policy"
"""The name of the model at the endpoint."""

CALL = '\n<tool_call>\n{{"name": {}, "arguments": {}}}\n</tool_call>'
CALLED = re.compile(r"\s*<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
THOUGHTS = re.compile(r"\s*(?:<think>)?(.*?)(?:</think>\s*|$)", re.DOTALL)
ROLES = {"developer": "system", "function": "tool"}

RESPONSES = (
    "the Responses API is not spoken here; type client.chat.completions.create(...); OpenAI Agents"
    " SDK: set_default_openai_api('chat_completions'); LangChain: ChatOpenAI(...,"
    " use_responses_api=False); Pydantic AI: OpenAIChatModel(...)"
)
"""What is told to who asks for a response: the line to type instead."""

_TAKEN = (
    "model messages prompt tools tool_choice parallel_tool_calls stop max_tokens"
    " max_completion_tokens stream stream_options"
)
_UNHEARD = (
    "verbosity user metadata store service_tier safety_identifier prompt_cache_key"
    " prompt_cache_retention"
)

OURS = {
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "reasoning_effort",
}
"""Keys of sampling, for which the run's settings stand in an episode."""

KNOWN = {*_TAKEN.split(), *_UNHEARD.split()} | OURS
"""Keys that a request may have: those that are followed, those of sampling, and those that change
no answer."""

USUAL = {"n": 1, "best_of": 1, "response_format": {"type": "text"}, "modalities": ["text"]}
"""Values that other keys may have. What is empty or zero asks for nothing."""

MESSAGE = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}

Body = dict[str, Any]
"""A request or a reply, or an object in one, as JSON."""


class Refused(Exception):
    """A request that cannot be done, with what the client is told."""


def check(body: object, model: str = MODEL) -> None:
    """Refused, by name, for a request to `model` that asks for what cannot be done here."""
    if not isinstance(body, dict) or body.get("model") != model:
        raise Refused(f"a request is an object with model={model}")
    odd = []
    for name, value in body.items():
        usual = USUAL.get(name)
        neutral = value == usual and type(value) is type(usual)  # True is no number
        if value and not neutral and name not in KNOWN:
            odd.append(name)
    if odd:
        raise Refused(f"{', '.join(odd)}: not done here, so leave it out")
    if body.get("tool_choice") not in (None, "auto", "none"):
        raise Refused("tool_choice is auto or none, since what a policy writes is its own")


def tokens_of(body: Body) -> int | None:
    """The most tokens that a request asks for. Refused for what is no number above 0."""
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    if most is not None and not (type(most) is int and most > 0):
        raise Refused("max_tokens is a number above 0")
    return most


def tools_of(body: Body) -> list[Any]:
    """The functions that a request offers. Refused for what is no list of these."""
    tools = body.get("tools") or []
    listed = tools if isinstance(tools, list) else [None]
    if not all(isinstance(tool, dict) and _name(tool.get("function")) for tool in listed):
        raise Refused("tools is a list of functions with names")
    return listed


def _name(function: object) -> str:
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def plain(message: Body) -> Message:
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
    made: Message = {"role": role, "content": content}
    if message.get("reasoning_content"):
        made["reasoning_content"] = str(message["reasoning_content"])
    return made


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


def canon(message: Message, thoughts: bool = False) -> str:
    """The form that is the same for two messages that say the same, with the same `thoughts` where
    these count: most clients do not give them back."""
    said = [message["role"], " ".join(message["content"].split())]
    if thoughts and "reasoning_content" in message:
        said.append(" ".join(message["reasoning_content"].split()))
    return json.dumps(said)


def stops_of(body: Body) -> list[str]:
    """The stop strings of a request. Refused for what is no text."""
    given = body.get("stop") or []
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise Refused("stop is a text, or a list of texts")
    return stops


class Said(NamedTuple):
    """A turn as a client gets it: what was thought, the text behind it, and calls of tools."""

    thoughts: str
    content: str
    calls: list[Body]

    @property
    def message(self) -> Body:
        """The message of a reply."""
        message: Body = {"role": "assistant", "content": self.content}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        if self.calls:
            message["tool_calls"] = self.calls
        return message


def until(text: str, stops: list[str]) -> str:
    """`text` up to the first stop string."""
    for stop in stops:
        text = text.partition(stop)[0]
    return text


def parsed(turn: str, body: Body, id: str, thinking: bool = False) -> Said:
    """A turn as a client gets it, up to a stop string. `thinking`: the prompt has begun a thought.
    Ids of calls begin with `id`; where that is empty no call is read. Calls that cannot be read
    stay text."""
    text, thoughts = until(turn, stops_of(body)), ""
    if thinking or text.lstrip().startswith("<think>"):
        thought = THOUGHTS.match(text)
        assert thought is not None  # it matches any text
        thoughts, text = thought[1].strip(), text[thought.end() :]
    calls = []
    for number, written in enumerate(CALLED.findall(text) if id else ()):
        try:
            call = json.loads(written)
            arguments = call.get("arguments") or {}
            if isinstance(arguments, str):
                arguments = json.loads(arguments)
            (read,) = call_of(str(call["name"]), arguments)
        except (ValueError, KeyError, RecursionError):
            return Said(thoughts, text, [])
        function = {"name": read.tool, "arguments": read.text}
        calls.append({"id": f"{id}-{number}", "type": "function", "function": function})
    if not calls:
        return Said(thoughts, text, [])
    if body.get("parallel_tool_calls") is False:
        calls = calls[:1]
    return Said(thoughts, CALLED.sub("", text), calls)


def completion(kind: str, id: str, model: str, choice: Body, tokens: tuple[int, int]) -> Body:
    """A reply of OpenAI's API. `tokens`: of what was read, and of what was written."""
    read, written = tokens
    return {
        "id": id,
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "logprobs": None, **choice}],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
        },
    }


def events(reply: Body, body: Body) -> Iterator[str]:
    """A reply as a stream, as `body` asks for it: the whole turn in one event, how it ended in
    another one."""
    head = {name: value for name, value in reply.items() if name not in ("choices", "usage")}
    (choice,) = reply["choices"]
    ended: Body = {"index": 0, "logprobs": None, "finish_reason": choice["finish_reason"]}
    if "message" in choice:
        head["object"] = "chat.completion.chunk"
        delta = dict(choice["message"])
        if "tool_calls" in delta:
            calls = enumerate(delta["tool_calls"])
            delta["tool_calls"] = [{"index": number, **call} for number, call in calls]
        turns = [{**ended, "delta": delta, "finish_reason": None}, {**ended, "delta": {}}]
    else:
        turns = [{**ended, "text": choice["text"]}]
    chunks = [{**head, "choices": [turn]} for turn in turns]
    options = body.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        chunks.append({**head, "choices": [], "usage": reply["usage"]})
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


def models(*names: str) -> Body:
    """The reply to `GET /models`."""
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "ssp"} for name in names]
    return {"object": "list", "data": data}


def trouble(kind: str, said: object) -> Body:
    """The body of a reply that refuses, or tells of a fault."""
    return {"error": {"message": str(said), "type": kind, "param": None, "code": kind}}
