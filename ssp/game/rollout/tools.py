"""Tools that a policy may call beside the search: `read`, functions of a user's own, and those of
MCP servers.

What a policy asks wrongly (arguments that its schema refuses, what a function names as its caller's
mistake) it is told, and no reward changes by it. What fails on our side (a function that raises, a
deadline, a server that is gone, a result that is no text) is a Fault, so that the episode is void.
Results are cut, and cleaned as documents are."""

import asyncio
import inspect
import json
import re
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import jsonschema
from jsonschema.validators import create
from pydantic import ConfigDict, ValidationError, create_model
from referencing import Registry

from ssp.base.episode import Document, Mistake
from ssp.base.errors import Fault, hold, holding
from ssp.base.printable import printable
from ssp.base.seeds import derive
from ssp.base.text import normalise
from ssp.game.protocols.calls import TOOL, Call, Offer
from ssp.game.rollout.results import LONGEST, shown_of
from ssp.game.rollout.toolloop import awaited, in_a_thread, loop, wait

SECONDS = 30.0
"""Deadline of a call, where a tool does not say `seconds`."""
DESCRIBED = 20_000
"""Characters of a schema."""
OWN = jsonschema.Draft202012Validator
_COSTLY = (
    "$ref $dynamicRef pattern patternProperties additionalProperties unevaluatedItems"
    " unevaluatedProperties".split()
)
FOREIGN = create(
    OWN.META_SCHEMA,
    {word: check for word, check in OWN.VALIDATORS.items() if word not in _COSTLY},
    type_checker=OWN.TYPE_CHECKER,
    format_checker=jsonschema.FormatChecker(()),
)
"""How schemas of others are read: without what can take exponential time, or leads elsewhere. Their
servers check that."""
READ = Offer(
    "read",
    "Shows a document that a search has found, from its beginning; called again, it goes on where"
    " it stopped.",
    {
        "type": "object",
        "properties": {"document": {"type": "string", "description": "its id or its title"}},
        "required": ["document"],
    },
)


class Told(Exception):
    """What a policy did wrong, as a tool tells it."""


@dataclass(frozen=True)
class Tool:
    """`call`: arguments and an idempotency key → a text, numbers, lists and objects of these, or
    Documents; the same key comes again when a lost block is played again. `mistakes`: exceptions,
    beside `Told`, that say what the policy did wrong. `schema`: how its schema is read."""

    offer: Offer
    call: Callable[[dict[str, Any], str], Awaitable[Any]]
    seconds: float = SECONDS
    mistakes: tuple[type[Exception], ...] = ()
    schema: Any = OWN


@dataclass(frozen=True)
class ToolRequest:
    """A call of one episode. `place`: the episode's, and the call's number. `seen`: the documents
    that its searches found, by id; `read_to`: how many characters of a document's text it has
    read."""

    call: Call
    place: str
    seen: dict[str, Document]
    read_to: dict[str, int]

    @property
    def key(self) -> str:
        """The idempotency key: the same when the task is played again and makes the same call
        there."""
        return f"{self.place}/{derive(0, self.call.tool, self.call.text):x}"


@dataclass(frozen=True)
class Window(Document):
    """What `read` shows of a document's text, from its character `begin` on."""

    begin: int = 0


class Runs(Protocol):
    """What answers the calls of a rollout."""

    def run(self, asked: Sequence[ToolRequest]) -> list[list[Document] | Fault]:
        """What each call shows, in order, all at once; a Fault stands in for what failed."""


class Tools:
    """The tools of a role beside the search, which answer in this process. `page`: the text of a
    page of the web by its address, "" for none, where what a search finds are such pages: `read`
    then shows that, and else the snippet."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        reads: bool = False,
        page: Callable[[str], str] | None = None,
    ) -> None:
        self._page = page
        self._tools = {tool.offer.name: tool for tool in tools}
        self.offers = (*([READ] if reads else []), *(tool.offer for tool in tools))

    def run(self, asked: Sequence[ToolRequest]) -> list[list[Document] | Fault]:
        """See `Runs`."""
        return wait(self._all(asked)) if asked else []

    async def _all(self, asked: Sequence[ToolRequest]) -> list[list[Document] | Fault]:
        return await asyncio.gather(*map(self._one, asked))

    async def _one(self, asked: ToolRequest) -> list[Document] | Fault:
        try:
            return await self._answer(asked, self._tools.get(asked.call.tool))
        except Told as mistake:
            return [Mistake("tool:mistake", printable(str(mistake)[:LONGEST]))]
        except Fault as fault:
            return fault
        except BaseException as error:  # whatever a user's function raises, or a schema leads to
            return Fault(
                "tool_failed",
                f"{asked.call.tool}: {''.join(traceback.format_exception_only(error))}",
            )

    async def _answer(self, asked: ToolRequest, tool: Tool | None) -> list[Document]:
        name, arguments = asked.call.tool, json.loads(asked.call.text)
        if tool is None:
            if name != READ.name:
                raise Fault("tool_failed", f"nobody answers {name} here")
            _check(arguments, READ, OWN)
            if self._page is None:
                return _read(arguments["document"], asked, None)
            # A thread of its own, as agents' calls may wait for this in all of the loop's.
            ran = in_a_thread(lambda: _read(arguments["document"], asked, self._page))
            try:
                found, raised = await asyncio.wait_for(asyncio.wrap_future(ran), SECONDS)
            except TimeoutError as error:
                raise Fault("tool_deadline", f"{name} did not answer in {SECONDS:g} s") from error
            if raised is not None:
                raise raised
            return list(found)
        _check(arguments, tool.offer, tool.schema)
        limit = asyncio.timeout(tool.seconds)
        try:
            async with limit:
                result = await tool.call(arguments, asked.key)
        except BaseException as error:
            if limit.expired():
                raise Fault(
                    "tool_deadline", f"{name} did not answer in {tool.seconds:g} s"
                ) from error
            if isinstance(error, tool.mistakes) and not isinstance(error, Fault):
                raise Told(str(error)) from error
            raise
        return shown_of(result, name)


def offered(offer: Offer, where: str, schema: Any = OWN) -> Offer:
    """`offer`, when its name can be a tag and its parameters are a JSON schema of an object.
    InputError for others."""
    known = offer.name.replace("_", "").replace("-", "")
    named = (
        offer.name[:1].isalpha() and known.isascii() and known.isalnum() and len(offer.name) <= 64
    )
    rule = "a tool's name is a letter, then letters, digits, _ or -, 64 at most"
    hold(named, rule, f"{where}: {offer.name[:80]}", "rename it")
    try:
        schema.check_schema(offer.parameters)
        fits = offer.parameters.get("type") == "object"
        fits = fits and len(json.dumps(offer.parameters, allow_nan=False)) <= DESCRIBED
    except (jsonschema.SchemaError, AttributeError, RecursionError, TypeError, ValueError):
        fits = False
    rule = f"a tool's parameters are a JSON schema of type object, in {DESCRIBED:,} characters"
    hold(fits, rule, f"{where}: {str(offer.parameters)[:200]}", "correct the schema")
    return offer


def function(made: Any, spec: str) -> Tool:
    """A user's function as a tool: signature and docstring say what it takes, unless it has
    `parameters`. It may say `seconds` and `mistakes` too; a parameter `key` is the idempotency key,
    of which the policy does not hear, nor does it of what a partial function has been given
    already."""
    hold(
        callable(made), "a tool is a function", f"{spec}: {type(made).__name__}", "name a function"
    )
    inner, bound = (made.func, made.keywords) if isinstance(made, partial) else (made, {})

    def said(attribute: str, default: Any) -> Any:
        return getattr(made, attribute, getattr(inner, attribute, default))

    schema, seconds, mistakes = (
        said("parameters", None),
        said("seconds", SECONDS),
        said("mistakes", ()),
    )
    fits = isinstance(seconds, int | float) and seconds > 0
    hold(fits, "`seconds` of a tool is a number above 0", f"{spec}: {seconds!r}", "correct it")
    mistakes, shape = exceptions(mistakes, "a tool", spec), None
    rule = "a tool's parameters have names, and types that JSON can say"
    # An exception of pydantic, or of an annotation.
    with holding(Exception, rule, spec, "correct them, or give it `parameters`, a JSON schema"):
        signed = inspect.signature(made, eval_str=True).parameters
        parameters = {name: parameter for name, parameter in signed.items() if name not in bound}
        if schema is None:
            shape = create_model(
                "Arguments", __config__=ConfigDict(extra="forbid"), **_taken(parameters)
            )
            schema = _untitled(shape.model_json_schema())
    name = getattr(made, "__name__", "<lambda>")
    if name == "<lambda>":  # an object and a partial function have no name either
        name = re.split(r"[:.]", spec)[-1]
    offer = offered(Offer(name, _described(inner), schema), spec)

    async def call(arguments: dict[str, Any], key: str) -> Any:
        try:  # as the types that its signature names
            typed = shape and shape.model_validate(arguments)
        except ValidationError as error:
            raise Told(f"{offer.name}: {error.errors()[0]['msg']}") from error
        given = {
            name: getattr(typed, name) if typed else value for name, value in arguments.items()
        }
        given |= {"key": key} if "key" in parameters else {}
        its = loop(spec.partition(":")[0])
        if inspect.iscoroutinefunction(made):
            ran = asyncio.run_coroutine_threadsafe(awaited(made(**given)), its)
        else:
            ran = in_a_thread(lambda: made(**given))
        result, raised = await asyncio.wrap_future(ran)
        if inspect.isawaitable(result):  # of an object whose `__call__` is async, say
            result, raised = await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(awaited(result), its)
            )
        if raised is not None:
            raise raised
        return result

    return Tool(offer, call, seconds, mistakes)


def exceptions(named: Any, what: str, spec: str) -> tuple[type[Exception], ...]:
    """The `mistakes` of `what` at `spec`. InputError unless they are a tuple of exceptions."""
    fits = isinstance(named, tuple) and all(
        isinstance(one, type) and issubclass(one, Exception) for one in named
    )
    hold(
        fits,
        f"`mistakes` of {what} is a tuple of exceptions",
        f"{spec}: {named!r}",
        "write e.g. (ValueError,)",
    )
    return tuple(named)


def _described(made: Any) -> str:
    """What a function says of itself; of an object its `__call__`, or else its class, does."""
    told = None if inspect.isroutine(made) or isinstance(made, type) else made.__call__.__doc__
    return inspect.cleandoc(told) if told else inspect.getdoc(made) or ""


def _taken(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Name → type and default, of each that a policy gives."""
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    # of a method without its object; what pydantic keeps to itself
    no_names = ("self", "cls", "model_config")
    odd = [
        p
        for p in parameters.values()
        if p.kind not in kinds or p.name.startswith("_") or p.name in no_names
    ]
    if unnamed := [str(p) for p in odd]:
        raise TypeError(f"{', '.join(unnamed)} cannot be given by name")
    return {
        name: (
            Any if p.annotation is p.empty else p.annotation,
            ... if p.default is p.empty else p.default,
        )
        for name, p in parameters.items()
        if name != "key"
    }


def _untitled(schema: Any) -> Any:
    """Without the titles that pydantic makes of names, which tell a policy nothing."""
    if not isinstance(schema, dict):
        return schema
    return {
        name: (
            {key: _untitled(value) for key, value in part.items()}
            if name == "properties"
            else _untitled(part)
        )
        for name, part in schema.items()
        if name != "title"
    }


def _check(arguments: dict[str, Any], offer: Offer, schema: Any) -> None:
    """Told, when the schema refuses the arguments. No reference is fetched."""
    try:
        error = next(schema(offer.parameters, registry=Registry()).iter_errors(arguments), None)
    except ArithmeticError as large:  # of a number that no multiple can be counted of
        raise Told(f"{offer.name}: {large}") from large
    if error is not None:
        raise Told(f"{offer.name}: {error.message}")


def _read(name: str, asked: ToolRequest, page: Callable[[str], str] | None) -> list[Document]:
    """What is unread of the document with this id or title."""
    # a copy: more may come
    same = (d for d in [*asked.seen.values()][::-1] if normalise(d.title) == normalise(name))
    document = asked.seen.get(name.strip()) or next(same, None)
    if document is None:
        raise Told("read: no search has found a document with this id or title")
    title = document.contents.split("\n", 1)[0]
    if (
        page is not None
        and document.id not in asked.read_to
        and (text := printable(page(document.id)))
    ):
        document = asked.seen[document.id] = replace(document, contents=f"{title}\n{text}")
    rest = document.text[asked.read_to.get(document.id, 0) :].lstrip()
    if not rest:
        raise Told("read: this document has been read to its end")
    return [
        Window(
            document.id,
            f"{title}\n{rest[:LONGEST].rstrip()}",
            document.score,
            len(document.text) - len(rest),
        )
    ]


def note(
    call: Call,
    found: list[Document],
    shown: list[Document],
    seen: dict[str, Document],
    read_to: dict[str, int],
) -> None:
    """Keep in `seen` and `read_to` (see `ToolRequest`) what a search `found`, and how far reading has
    `shown` a document."""
    if call.tool == TOOL:
        seen.update({document.id: document for document in found if document.id not in read_to})
    for document in shown:
        if isinstance(document, Window):
            read_to[document.id] = document.begin + len(document.text)
