"""What a tag protocol is: prompts, turns, searches and final tags as text, and the one parser of
them (law 8)."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ssp.base.episode import SOLVER, Document, ToolResult
from ssp.base.errors import InputError, hold
from ssp.game.protocols import calls
from ssp.game.protocols.calls import TOOL, Call, Offer
from ssp.game.protocols.template import CONTROL, Message, lay_out

TEXT = "text"
STRICT = {"extra": "forbid", "strict": True}
"""How pydantic reads a protocol's file: no key is unknown, no type is bent."""
HOLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Segment:
    """A typed piece of text. `kind` is the tag's name, or `text` outside every tag; `text` is
    stripped. `closed` is False when the closing tag is missing: cut off, or another tag opened
    first. `begin`, `end`: its place, tags included."""

    kind: str
    text: str
    closed: bool
    begin: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    @property
    def inner(self) -> tuple[int, int]:
        """The place of what stands between the tags."""
        if self.kind == TEXT:
            return self.begin, self.end
        return self.begin + len(self.kind) + 2, self.end - (len(self.kind) + 3) * self.closed


@dataclass(frozen=True)
class Action:
    """What a turn asks for: calls of tools (in order), or the role's result; neither when the turn
    is invalid."""

    calls: tuple[Call, ...] = ()
    final: str | None = None

    @property
    def queries(self) -> tuple[str, ...]:
        """What the calls say."""
        return tuple(call.text for call in self.calls)


@dataclass(frozen=True)
class Role:
    """How one role is spoken to: system and user text with `{field}` holes; `final`: the tag of its
    result. `boxed`: the result is what the last `\\boxed{}` inside that tag holds (ReSearch).
    `stops`: strings that end a turn; none: the closing tags of a search and of the result."""

    __pydantic_config__ = STRICT

    user: str
    final: str
    system: str = ""
    boxed: bool = False
    stops: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchForm:
    """How a policy searches: between the tags `tag`. `form`: text (one query), list (a JSON list of
    several), or tool (the JSON of a tool call); or how a call is written, with the hole {query},
    such as `search("{query}")`."""

    __pydantic_config__ = STRICT

    tag: str = "search"
    form: str = "text"


@dataclass(frozen=True)
class ObservationForm:
    """What follows a search. `document` has the holes {n}, {id}, {title}, {text}, {first_line},
    {contents}; `text` has {documents}: the documents of one query, without white space around them.
    `join`: what stands between two documents, `between`: between the results of two queries of one
    turn. `nothing`: in place of no document. `as_turn`: a message of its own (role `tool`), not
    text inside the policy's turn."""

    __pydantic_config__ = STRICT

    tag: str = "information"
    document: str = "Doc {n}(Title: {first_line}) {text}\n"
    join: str = ""
    text: str = "\n\n<information>{documents}</information>\n\n"
    between: str = "\n---\n"
    nothing: str = ""
    as_turn: bool = False


@dataclass(frozen=True)
class Protocol:
    """One tag protocol as data; `ssp.game.protocols.library` holds them as files. `kinds`: tag
    names that `parse` knows. `fields`: what a prompt says where the task says nothing. `template`:
    how a prompt is laid out when the model's settings do not say. `plain`: the layout of
    `template=plain`. `one_line`: every text is squeezed to one line with single spaces.
    `question_mark`: a question without one gets one. `retry`: what an invalid turn is told, with
    the hole {final}; "" when that ends it. `end`: end-of-turn string of the model family, "" for
    those of the layout. `offers`: the tools beside the search; they come from a role's `tools`, not
    from the file."""

    __pydantic_config__ = STRICT

    id: str
    version: int
    kinds: tuple[str, ...]
    roles: dict[str, Role]
    search: SearchForm = field(default_factory=SearchForm)
    observation_form: ObservationForm = field(default_factory=ObservationForm)
    fields: dict[str, str] = field(default_factory=dict)
    template: str = "tokenizer"
    plain: str = "{system}{user}"
    one_line: bool = False
    question_mark: bool = False
    retry: str = ""
    end: str = ""
    offers: tuple[Offer, ...] = ()

    def asking(self, prompts: Mapping[str, str]) -> Protocol:
        """This protocol with further prompts, by name. Each is a user's message, and its result
        stands in the tag of an answer."""
        if not prompts:
            return self
        answer = self.role(SOLVER)
        asked = {name: replace(answer, user=text, system="") for name, text in prompts.items()}
        return replace(self, roles={**self.roles, **asked})

    def offering(self, offers: Sequence[Offer]) -> Protocol:
        """This protocol with these tools beside the search: where calls are not JSON, with a tag
        for each. InputError for a name that has a meaning here already."""
        taken = {*self.kinds, TOOL} - {offer.name for offer in self.offers}
        for offer in offers:
            rule = f"a tool has a name of its own under protocol {self.id}"
            hold(offer.name not in taken, rule, offer.name, "give the function another name")
            taken.add(offer.name)
        tags = () if self.search.form == "tool" else (offer.name for offer in offers)
        spoken = replace(self, kinds=(*self.kinds, *tags))
        return (
            replace(spoken, offers=tuple(offer.cleaned(spoken.clean) for offer in offers))
            if offers
            else self
        )

    def naming(self, tools: Sequence[str]) -> Protocol:
        """This protocol with these tools, of which nothing but their names is known: for texts that
        are on record."""
        return self.offering(
            [
                Offer(name)
                for name in dict.fromkeys(tools)
                if name and name not in (TOOL, *self.kinds)
            ]
        )

    @property
    def mark(self) -> dict[str, str | int]:
        """What a checkpoint keeps of the protocol that its policy speaks."""
        return {"protocol": self.id, "protocol_version": self.version}

    @property
    def offers_tool(self) -> bool:
        """Whether a search is a call of a tool that the model's own chat template describes."""
        return self.search.form == "tool" and self.observation_form.as_turn

    def messages(self, role: str, fields: dict[str, str]) -> list[Message]:
        """The prompt of `role` as chat messages. InputError for an unknown role or a missing
        field."""
        spoken = self.role(role)
        if (
            self.question_mark
            and "question" in fields
            and not fields["question"].rstrip().endswith(("?", "？"))
        ):
            fields = {**fields, "question": fields["question"].rstrip() + "?"}
        known = {
            **self.fields,
            **{name: self.uncontrolled(value) for name, value in fields.items()},
        }
        if missing := sorted(set(HOLE.findall(spoken.system + spoken.user)) - set(known)):
            rule = f"the {role} prompt of protocol {self.id} needs {', '.join(missing)}"
            raise InputError(rule, f"fields {sorted(fields)}", "give every field of the prompt")
        texts = [("system", spoken.system), ("user", spoken.user)]
        filled = [
            (who, self._tidy(HOLE.sub(lambda hole: known[hole[1]], text)))
            for who, text in texts
            if text
        ]
        if self.offers and not self.offers_tool:  # of which no chat template tells
            told = "\n".join(map(self._told, self.offers))
            who, text = filled[0]
            filled[0] = who, self._tidy(f"{text}\n{told}" if who == "system" else f"{told}\n{text}")
        return [{"role": who, "content": text} for who, text in filled]

    def _told(self, offer: Offer) -> str:
        """How a policy hears of a tool that its chat template does not show."""
        shape = {name: f"<{name}>" for name in offer.parameters.get("properties", {})}
        if self.search.form == "tool":
            tag, body = self.search.tag, json.dumps({"name": offer.name, "arguments": shape})
        else:
            tag, body = offer.name, offer.alone or json.dumps(shape)
        return f"<{tag}> {body} </{tag}> {offer.description}"

    def render(self, role: str, fields: dict[str, str], template: str = "") -> str:
        """The prompt of `role` as text, in `template` (default: the protocol's own). InputError as
        in `messages`, and for `tokenizer`, of which only `renderer.Renderer` knows."""
        return lay_out(self.messages(role, fields), template or self.template, self.plain)

    def parse(self, text: str) -> list[Segment]:
        """Typed segments in order; a tag that opens inside another one ends that one unclosed.
        Never raises."""
        segments: list[Segment] = []
        kind, begin, start = TEXT, 0, 0

        def push(closes: bool, stop: int, end: int) -> None:
            content = self.uncontrolled(text[start:stop]).strip()
            if kind != TEXT or content:
                segments.append(Segment(kind, content, closes or kind == TEXT, begin, end))

        for tag in self._tags.finditer(text):
            closing = bool(tag.group(1))
            closes = closing and tag.group(2) == kind
            if closing and not closes and kind != TEXT:
                continue  # a stray closing tag is part of the segment's text
            push(closes, tag.start(), tag.end() if closes else tag.start())
            kind, begin = (TEXT, tag.end()) if closing else (tag.group(2), tag.start())
            start = tag.end()
        push(False, len(text), len(text))
        return segments

    def stops(self, role: str, searching: bool = True) -> tuple[str, ...]:
        """Strings that end a turn of `role`, beside the end of turn of the model's family;
        `searching` False: a search does not (self-search). A turn's text contains the string that
        ended it."""
        spoken, search = self.role(role), f"</{self.search.tag}>"
        named = spoken.stops or (
            f"</{spoken.final}>",
            *(() if self.observation_form.as_turn else (search,)),
        )
        named += tuple(f"</{offer.name}>" for offer in self.offers if offer.name in self.kinds)
        return named if searching else tuple(stop for stop in named if stop != search)

    def action(self, role: str, turn: str) -> Action:
        """What `turn` asks for: its last segment decides, text outside the tags aside. Never
        raises."""
        asked = self.calls(turn)
        return Action(asked) if asked else Action(final=self.final(role, turn))

    def final(self, role: str, turn: str) -> str | None:
        """What `turn` hands in: its last segment, when that is the closed, non-empty final tag."""
        spoken = self.role(role)
        last = self._last(turn, spoken.final)
        found = last.text if last is not None else ""
        return ((calls.boxed(found) or "").strip() if spoken.boxed else found) or None

    def queries(self, turn: str) -> tuple[str, ...]:
        """What the calls of `turn` say."""
        return Action(self.calls(turn)).queries

    def calls(self, turn: str) -> tuple[Call, ...]:
        """The calls with which `turn` ends; none when it ends otherwise, or when what it asks for
        cannot be read."""
        last, names = self.last_search(turn), [TOOL, *(offer.name for offer in self.offers)]
        if self.search.form == "tool":
            if last is None:
                return calls.bare_call(self.uncontrolled(turn), names)
            return calls.read(
                [s.text for s in self.parse(turn) if s.kind == self.search.tag and s.closed], names
            )
        for offer in self.offers:
            if (own := self._last(turn, offer.name)) is not None:
                return calls.tagged(offer, own.text)
        found = calls.split(last.text, self.search.form) if last is not None and last.text else ()
        return tuple(Call(TOOL, query) for query in found)

    def last_search(self, turn: str) -> Segment | None:
        """The search that `turn` ends with."""
        return self._last(turn, self.search.tag)

    def _last(self, turn: str, tag: str) -> Segment | None:
        """The last segment outside text, when it is a closed `tag`."""
        last = next(
            (segment for segment in reversed(self.parse(turn)) if segment.kind != TEXT), None
        )
        return last if last is not None and last.kind == tag and last.closed else None

    def bodies(self, documents: Sequence[Document]) -> str:
        """The documents as this protocol shows them, without any of its tags and any model's
        control strings: the corpus must not speak for the environment."""

        def shown(n: int, document: Document) -> str:
            if isinstance(document, ToolResult):  # which has no title
                return self.clean(document.contents)
            values = {
                "id": document.id,
                "title": document.title,
                "text": document.text,
                "contents": document.contents,
            }
            values["first_line"] = document.contents.split("\n", 1)[0]
            clean = {name: self.clean(value) for name, value in values.items()}
            return HOLE.sub(
                lambda hole: {**clean, "n": str(n)}[hole[1]], self.observation_form.document
            )

        return self._tidy(
            self.observation_form.join.join(map(shown, itertools.count(1), documents))
        )

    def observation(self, *results: Sequence[Document]) -> str:
        """The text that follows a turn's searches, one result list a query."""
        form = self.observation_form
        texts = [self.bodies(documents).strip() or form.nothing for documents in results]
        return self._tidy(form.text.replace("{documents}", form.between.join(texts)))

    def role(self, name: str) -> Role:
        """How `name` is spoken to. InputError when this protocol does not know it."""
        if name not in self.roles:
            rule = f"protocol {self.id} knows the roles {', '.join(sorted(self.roles))}"
            raise InputError(rule, name, "use one of these roles")
        return self.roles[name]

    def clean(self, text: str) -> str:
        """`text` of others, without any of this protocol's tags and any model's control strings."""
        return self.uncontrolled(self._tags.sub(" ", text))

    def uncontrolled(self, text: str) -> str:
        """`text` without what a tokenizer would read as a control token of its own."""
        return self._control.sub(" ", text)

    def _tidy(self, text: str) -> str:
        return " ".join(text.split()) if self.one_line else text

    @functools.cached_property
    def _tags(self) -> re.Pattern[str]:
        return re.compile(rf"<(/?)({'|'.join(map(re.escape, self.kinds))})>")

    @functools.cached_property
    def _control(self) -> re.Pattern[str]:
        return re.compile(f"{CONTROL}|{re.escape(self.end)}" if self.end else CONTROL)
