"""Tools that a policy may call beside the search: `read`, functions of a user's own, and those of MCP servers.

What a policy asks wrongly (arguments that its schema refuses, what a function names as its caller's mistake) it is told, and
no reward changes by it. What fails on our side (a function that raises, a deadline, a server that is gone, a result that is
no text) is a Fault, so that the episode is void. Results are cut, and cleaned as documents are.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import jsonschema
from pydantic import ConfigDict, create_model

from ssp.base.episode import MISTAKE, TOOL_RESULT, Document
from ssp.base.errors import Fault, hold
from ssp.base.printable import printable
from ssp.base.text import normalise
from ssp.game.protocols.calls import TOOL, Call, Offer

SECONDS = 30.0
"""Deadline of a call, where a tool does not say `seconds`."""
LONGEST = 200_000
"""Characters that are looked at of a result; `limits.observation_tokens` says what is shown of them."""
READ = Offer(
    "read",
    "Shows a document that a search has found, from its beginning; called again, it goes on where it stopped.",
    {
        "type": "object",
        "properties": {"document": {"type": "string", "description": "its id or its title"}},
        "required": ["document"],
    },
)


@dataclass(frozen=True)
class Tool:
    """`call`: arguments and an idempotency key → a text, numbers, lists and objects of these, or Documents; the same key
    comes again when a lost block is played again. `mistakes`: exceptions that say what the policy did wrong."""

    offer: Offer
    call: Callable[[dict[str, Any], str], Awaitable[Any]]
    seconds: float = SECONDS
    mistakes: tuple[type[Exception], ...] = ()


@dataclass(frozen=True)
class Asked:
    """A call of one episode. `key`: its idempotency key. `seen`: the documents that its searches found, by id; `read_to`:
    how many characters of a document's text it has read."""

    call: Call
    key: str
    seen: dict[str, Document]
    read_to: dict[str, int]


class Runs(Protocol):
    """What answers the calls of a rollout."""

    def run(self, asked: Sequence[Asked]) -> list[list[Document] | Fault]:
        """What each call shows, in order, all at once; a Fault stands in for what failed."""


class Tools:
    """The tools of a role beside the search, which answer in this process."""

    def __init__(self, tools: Sequence[Tool] = (), reads: bool = False) -> None:
        self._tools = {tool.offer.name: tool for tool in tools}
        self.offers = (*([READ] if reads else []), *(tool.offer for tool in tools))

    def run(self, asked: Sequence[Asked]) -> list[list[Document] | Fault]:
        """See `Runs`."""
        return wait(self._all(asked)) if asked else []

    async def _all(self, asked: Sequence[Asked]) -> list[list[Document] | Fault]:
        return await asyncio.gather(*map(self._one, asked))

    async def _one(self, asked: Asked) -> list[Document] | Fault:
        call, tool = asked.call, self._tools.get(asked.call.tool)
        arguments = json.loads(call.text)
        refused = _refused(arguments, tool.offer if tool is not None else READ)
        if refused:
            return _mistake(refused)
        if tool is None:
            return _read(arguments["document"], asked)
        try:
            return _shown(await asyncio.wait_for(tool.call(arguments, asked.key), tool.seconds), call.tool)
        except tool.mistakes as mistake:
            return _mistake(str(mistake))
        except TimeoutError:
            return Fault("tool_deadline", f"{call.tool} did not answer in {tool.seconds:g} s")
        except Fault as fault:
            return fault
        except Exception as error:  # whatever a user's function raises
            return Fault("tool_failed", f"{call.tool}: {type(error).__name__}: {error}")


def offered(offer: Offer, where: str) -> Offer:
    """`offer`, when its name can be a tag and its parameters are a JSON schema of an object. InputError for others."""
    known = offer.name.replace("_", "").replace("-", "")
    named = offer.name[:1].isalpha() and known.isascii() and known.isalnum() and len(offer.name) <= 64
    rule = "a tool's name is a letter, then letters, digits, _ or -, 64 at most"
    hold(named, rule, f"{where}: {offer.name[:80]}", "rename it")
    try:
        jsonschema.Draft202012Validator.check_schema(offer.parameters)
        fits = offer.parameters.get("type") == "object"
    except (jsonschema.SchemaError, AttributeError, RecursionError):
        fits = False
    rule = "a tool's parameters are a JSON schema of type object"
    hold(fits, rule, f"{where}: {str(offer.parameters)[:200]}", "correct the schema")
    return offer


def function(made: Any, spec: str) -> Tool:
    """A user's function as a tool: signature and docstring say what it takes, unless it has `parameters`. It may say
    `seconds` and `mistakes` too; a parameter `key` is the idempotency key, of which the policy does not hear."""
    hold(callable(made), "a tool is a function", f"{spec}: {type(made).__name__}", "name a function")
    parameters = inspect.signature(made, eval_str=True).parameters
    schema = getattr(made, "parameters", None)
    if schema is None:
        taken = {
            name: (Any if p.annotation is p.empty else p.annotation, ... if p.default is p.empty else p.default)
            for name, p in parameters.items()
            if name != "key"
        }
        shape = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **taken)  # type: ignore[call-overload]
        schema = _untitled(shape.model_json_schema())
    offer = offered(Offer(made.__name__, inspect.getdoc(made) or "", schema), spec)

    async def call(arguments: dict[str, Any], key: str) -> Any:
        given = {**arguments, "key": key} if "key" in parameters else arguments
        if inspect.iscoroutinefunction(made):
            return await made(**given)
        return await asyncio.wrap_future(_in_a_thread(lambda: made(**given)))

    return Tool(offer, call, getattr(made, "seconds", SECONDS), tuple(getattr(made, "mistakes", ())))


def _untitled(schema: Any) -> Any:
    """Without the titles that pydantic makes of names, which tell a policy nothing."""
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: _untitled(value) for key, value in part.items()} if name == "properties" else _untitled(part)
        for name, part in schema.items()
        if name != "title"
    }


def _refused(arguments: dict[str, Any], offer: Offer) -> str:
    """Why the schema refuses the arguments; "" when it does not."""
    error = next(jsonschema.Draft202012Validator(offer.parameters).iter_errors(arguments), None)
    return "" if error is None else f"{offer.name}: {error.message}"


def _read(name: str, asked: Asked) -> list[Document]:
    """What is unread of the document with this id or title."""
    same = (d for d in reversed(asked.seen.values()) if normalise(d.title) == normalise(name))
    document = asked.seen.get(name.strip()) or next(same, None)
    if document is None:
        return _mistake("read: no search has found a document with this id or title")
    rest = document.text[asked.read_to.get(document.id, 0) :].strip()
    if not rest:
        return _mistake("read: this document has been read to its end")
    return [Document(document.id, f"{document.contents.split(chr(10), 1)[0]}\n{rest}", document.score)]


def note(
    call: Call, found: list[Document], shown: list[Document], seen: dict[str, Document], read_to: dict[str, int]
) -> None:
    """Keep in `seen` and `read_to` (see `Asked`) what a search `found`, and how far reading has `shown` a document."""
    if call.tool == TOOL:
        seen.update({document.id: document for document in found})
    for document in shown if call.tool == READ.name else ():
        begin = seen[document.id].text.find(document.text, read_to.get(document.id, 0))
        read_to[document.id] = begin + len(document.text)


def _shown(result: Any, name: str) -> list[Document]:
    """A tool's result as documents. Fault for what is no text and no data."""
    if isinstance(result, list) and result and all(isinstance(one, Document) for one in result):
        return result
    try:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:  # bytes, a list in itself
        raise Fault("tool_result", f"{name}: {type(result).__name__}: {error}") from error
    return [Document(f"{TOOL_RESULT}{name}", printable(text[:LONGEST]))] if text.strip() else []


def _mistake(text: str) -> list[Document]:
    return [Document(MISTAKE, printable(text[:LONGEST]))]


def _in_a_thread(work: Callable[[], Any]) -> Future[Any]:
    """`work` in a thread of its own, which the process does not wait for when it ends."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            if not future.cancelled():
                future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="ssp-tool").start()
    return future


@lru_cache
def loop() -> asyncio.AbstractEventLoop:
    """This process's loop of tools, in a thread of its own."""
    made = asyncio.new_event_loop()
    made.set_default_executor(ThreadPoolExecutor(64))  # searches of agents wait there
    threading.Thread(target=made.run_forever, daemon=True, name="ssp-tools").start()
    return made


def wait(work: Any) -> Any:
    """The result of a coroutine on that loop."""
    return asyncio.run_coroutine_threadsafe(work, loop()).result()
