"""Tools that a policy may call beside the search: `read`, a user's own functions, and those of MCP
servers.

A policy's mistakes (arguments that the schema refuses, or of which a function says so) are told to
it, and change no reward. What fails on our side (a function that raises, a deadline, a server that
is gone, a result that is no text) is a Fault, so that the episode is void. Results are cut, and
cleaned as documents are."""

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
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from referencing import Registry

from ssp.base.episode import Document, Episode, Mistake
from ssp.base.errors import Fault, hold, holding
from ssp.base.printable import printable
from ssp.base.seeds import derive
from ssp.base.text import normalise
from ssp.game.protocols.calls import TOOL, Call, Offer
from ssp.game.rollout.results import LONGEST, shown_of
from ssp.game.rollout.toolloop import in_a_thread, loop, on_loop, wait

SECONDS = 30.0
"""Deadline of a call, unless the tool says `seconds`."""
DESCRIBED = 20_000
"""Characters of the longest schema."""
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
"""The reader of others' schemas: without keywords that can take exponential time, or lead
elsewhere. Their servers check these."""
READ = Offer(
    "read",
    "Shows a document that a search has found, from its beginning; called again, it goes on where"
    " it stopped.",
    {
        "type": "object",
        "properties": {"document": {"type": "string", "description": "its id or its title"}},
        "required": ["document"],
    },
    ours=True,
)


class Told(Exception):
    """A mistake of the policy, in the words that it is told."""


@dataclass(frozen=True)
class ToolRequest:
    """A call of one episode. `place`: that of the episode, and the call's number. `seen`: the
    documents that its searches found, by id. `read_to`: how many characters of a document's text it
    has read, by id. `episode`: its id, a new one where it is played again."""

    call: Call
    place: str
    seen: dict[str, Document]
    read_to: dict[str, int]
    episode: str = ""

    @property
    def key(self) -> str:
        """The idempotency key: the same where the task is played again and makes the same call."""
        return f"{self.place}/{derive(0, self.call.tool, self.call.text):x}"


@dataclass(frozen=True)
class Tool:
    """A tool that this process answers. `call`: arguments and the request that they are of → a
    text, numbers, lists and objects of these, or Documents. `mistakes`: exceptions, beside `Told`,
    for what the policy did wrong. `schema`: the reader of its schema."""

    offer: Offer
    call: Callable[[dict[str, Any], ToolRequest], Awaitable[Any]]
    seconds: float = SECONDS
    mistakes: tuple[type[Exception], ...] = ()
    schema: Any = OWN


@dataclass(frozen=True)
class Window(Document):
    """A part of a document's text that `read` shows, from its character `begin` on."""

    begin: int = 0


class Runs(Protocol):
    """Answers the calls of a rollout."""

    def run(self, asked: Sequence[ToolRequest]) -> list[list[Document] | Fault]:
        """Answer all calls at once. Returns what each shows, in order; a Fault where it failed."""

    def done(self, episode: str) -> None:
        """Forget an episode, which calls no more."""


class Tools:
    """The tools of a role beside the search, answered in this process. `page`: where searches find
    pages of the web, the text of the page at an address, "" for none. `read` shows that text, and
    else the snippet. `done`: each hears of an episode that is over, on the loop of tools.
    `warnings`: what a user should know of them, a line each."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        reads: bool = False,
        page: Callable[[str], str] | None = None,
        done: Sequence[Callable[[str], object]] = (),
        warnings: Sequence[str] = (),
    ) -> None:
        self._page, self._done = page, done
        self.warnings = warnings
        self._tools = {tool.offer.name: tool for tool in tools}
        self.offers = (*([READ] if reads else []), *(tool.offer for tool in tools))

    def run(self, asked: Sequence[ToolRequest]) -> list[list[Document] | Fault]:
        """See `Runs`."""

        async def answers() -> list[list[Document] | Fault]:
            return await asyncio.gather(*map(self._one, asked))

        return wait(answers()) if asked else []

    def done(self, episode: str) -> None:
        """See `Runs`."""
        for done in self._done:
            loop().call_soon_threadsafe(done, episode)

    async def _one(self, asked: ToolRequest) -> list[Document] | Fault:
        try:
            return await self._answer(asked)
        except Told as mistake:
            return [Mistake("tool:mistake", printable(str(mistake)[:LONGEST]))]
        except Fault as fault:
            return fault
        except BaseException as error:  # whatever a user's function raises, or a schema leads to
            raised = "".join(traceback.format_exception_only(error))
            return Fault("tool_failed", f"{asked.call.tool}: {raised}")

    async def _answer(self, asked: ToolRequest) -> list[Document]:
        name = asked.call.tool
        arguments = json.loads(asked.call.text)
        tool = self._tools.get(name)
        if tool is None:
            if name != READ.name:
                raise Fault("tool_failed", f"nobody answers {name} here")
            _check(arguments, READ, OWN)
            return await self._read(arguments["document"], asked)
        _check(arguments, tool.offer, tool.schema)
        limit = asyncio.timeout(tool.seconds)
        try:
            async with limit:
                result = await tool.call(arguments, asked)
        except BaseException as error:
            if limit.expired():
                raise _late(name, tool.seconds) from error
            if isinstance(error, tool.mistakes) and not isinstance(error, Fault):
                raise Told(str(error)) from error
            raise
        return shown_of(result, name)

    async def _read(self, name: str, asked: ToolRequest) -> list[Document]:
        if self._page is None:
            return _unread(name, asked, None)
        # A thread of its own, as agents' calls may wait for this in all of the loop's.
        ran = in_a_thread(lambda: _unread(name, asked, self._page))
        try:
            documents, raised = await asyncio.wait_for(asyncio.wrap_future(ran), SECONDS)
        except TimeoutError as error:
            raise _late(READ.name, SECONDS) from error
        if raised is not None:
            raise raised
        return list(documents)


def _late(name: str, seconds: float) -> Fault:
    return Fault("tool_deadline", f"{name} did not answer in {seconds:g} s")


def offered(offer: Offer, where: str, schema: Any = OWN) -> Offer:
    """`offer`, when its name can be a tag and its parameters are a JSON schema of an object.
    InputError for others."""
    rule = "a tool's name is a letter, then letters, digits, _ or -, 64 at most"
    named = re.fullmatch("[A-Za-z][A-Za-z0-9_-]{0,63}", offer.name)
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
    """A user's function as a tool. Its signature and docstring say what it takes, unless it has
    `parameters`, a JSON schema; it may have `seconds` and `mistakes` too. A policy does not hear of
    a parameter `key`, which is the idempotency key, nor of what a partial function has been
    given."""
    kind = type(made).__name__
    hold(callable(made), "a tool is a function", f"{spec}: {kind}", "name a function")
    inner, bound = (made.func, made.keywords) if isinstance(made, partial) else (made, {})

    def said(attribute: str, default: Any) -> Any:
        return getattr(made, attribute, getattr(inner, attribute, default))

    seconds = said("seconds", SECONDS)
    fits = isinstance(seconds, int | float) and seconds > 0
    hold(fits, "`seconds` of a tool is a number above 0", f"{spec}: {seconds!r}", "correct it")
    mistakes = exceptions(said("mistakes", ()), "a tool", spec)
    schema = said("parameters", None)
    shape: type[BaseModel] | None = None
    rule = "a tool's parameters have names, and types that JSON can say"
    # An exception of pydantic, or of an annotation.
    with holding(Exception, rule, spec, "correct them, or give it `parameters`, a JSON schema"):
        signed = inspect.signature(made, eval_str=True).parameters
        parameters = {name: parameter for name, parameter in signed.items() if name not in bound}
        if schema is None:
            strict = ConfigDict(extra="forbid")
            shape = create_model("Arguments", __config__=strict, **_fields(parameters))
            schema = _untitled(shape.model_json_schema())
    name = getattr(made, "__name__", "<lambda>")
    if name == "<lambda>":  # an object and a partial function have no name either
        name = re.split(r"[:.]", spec)[-1]
    offer = offered(Offer(name, _described(inner), schema), spec)
    file = spec.partition(":")[0]

    async def call(arguments: dict[str, Any], asked: ToolRequest) -> Any:
        given = dict(arguments)
        if shape is not None:
            try:  # as the types that its signature names
                typed = shape.model_validate(arguments)
            except ValidationError as error:
                raise Told(f"{offer.name}: {error.errors()[0]['msg']}") from error
            given = {name: getattr(typed, name) for name in arguments}
        if "key" in parameters:
            given["key"] = asked.key
        if inspect.iscoroutinefunction(made):
            result, raised = await on_loop(made(**given), file)
        else:
            result, raised = await asyncio.wrap_future(in_a_thread(lambda: made(**given)))
        if inspect.isawaitable(result):  # of an object whose `__call__` is async, say
            result, raised = await on_loop(result, file)
        if raised is not None:
            raise raised
        return result

    return Tool(offer, call, seconds, mistakes)


def exceptions(named: Any, what: str, spec: str) -> tuple[type[Exception], ...]:
    """The `mistakes` of `what` at `spec`. InputError unless they are a tuple of exceptions."""
    fits = isinstance(named, tuple)
    fits = fits and all(isinstance(one, type) and issubclass(one, Exception) for one in named)
    rule = f"`mistakes` of {what} is a tuple of exceptions"
    hold(fits, rule, f"{spec}: {named!r}", "write e.g. (ValueError,)")
    return tuple(named)


def _described(made: Any) -> str:
    """The docstring of a function; of an object that of its `__call__`, or else of its class."""
    own = inspect.isroutine(made) or isinstance(made, type)
    told = None if own else made.__call__.__doc__
    return inspect.cleandoc(told) if told else inspect.getdoc(made) or ""


def _fields(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Name → type and default, for each parameter that a policy gives."""
    by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    # The object of a method, and a name that pydantic keeps to itself.
    taken = ("self", "cls", "model_config")
    fields: dict[str, Any] = {}
    unnamed = []
    for name, parameter in parameters.items():
        if parameter.kind not in by_name or name.startswith("_") or name in taken:
            unnamed.append(str(parameter))
        elif name != "key":
            annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = annotation, default
    if unnamed:
        raise TypeError(f"{', '.join(unnamed)} cannot be given by name")
    return fields


def _untitled(schema: Any) -> Any:
    """`schema` without the titles that pydantic makes of names, which tell a policy nothing."""
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for name, part in schema.items():
        if name == "properties":  # of which one may be called title
            kept[name] = {key: _untitled(value) for key, value in part.items()}
        elif name != "title":
            kept[name] = _untitled(part)
    return kept


def _check(arguments: dict[str, Any], offer: Offer, schema: Any) -> None:
    """Raise Told when the schema refuses the arguments. No reference is fetched."""
    reader = schema(offer.parameters, registry=Registry())
    try:
        error = next(reader.iter_errors(arguments), None)
    except ArithmeticError as large:  # of a number that is too large to be a multiple
        raise Told(f"{offer.name}: {large}") from large
    if error is not None:
        raise Told(f"{offer.name}: {error.message}")


def _unread(name: str, asked: ToolRequest, page: Callable[[str], str] | None) -> list[Document]:
    """The unread rest of the document with this id or title; of several with the title, the one
    that was found last."""
    document = asked.seen.get(name.strip())
    if document is None:
        wanted = normalise(name)
        for seen in reversed([*asked.seen.values()]):  # a copy: more may come
            if normalise(seen.title) == wanted:
                document = seen
                break
    if document is None:
        raise Told("read: no search has found a document with this id or title")
    title = document.contents.split("\n", 1)[0]
    if page is not None and document.id not in asked.read_to:
        text = printable(page(document.id))
        if text:
            document = asked.seen[document.id] = replace(document, contents=f"{title}\n{text}")
    rest = document.text[asked.read_to.get(document.id, 0) :].lstrip()
    if not rest:
        raise Told("read: this document has been read to its end")
    contents = f"{title}\n{rest[:LONGEST].rstrip()}"
    begin = len(document.text) - len(rest)
    return [Window(document.id, contents, document.score, begin=begin)]


def note(
    episode: Episode,
    call: Call,
    answer: list[Document],
    shown: list[Document],
    seen: dict[str, Document],
    read_to: dict[str, int],
) -> None:
    """Keep in `episode` what a call asked, and what of its `answer` was shown; in `seen` what a
    search found, and in `read_to` how far reading has shown a document (see `ToolRequest`)."""
    hits = [document for document in shown if not isinstance(document, Mistake)]
    episode.queries.append(call.text)
    episode.hits.append(len(hits))
    episode.asked.append(len(episode.log))
    episode.documents.extend(hits)
    if call.tool == TOOL:
        episode.cuts += shown != answer
        for document in answer:
            if document.id not in read_to:
                seen[document.id] = document
    for document in hits:
        if isinstance(document, Window):
            read_to[document.id] = document.begin + len(document.text)
