"""What a tag protocol is: its prompts, turns, searches and final tags as text, and the one parser
of them (law 8)."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ssp.base.episode import SOLVER, Document, ToolResult
from ssp.base.errors import hold
from ssp.game.protocols import calls, schemas
from ssp.game.protocols.calls import TOOL, Call, Offer
from ssp.game.protocols.template import CONTROL, Message, lay_out

TEXT = "text"
STRICT = {"extra": "forbid", "strict": True}
"""How pydantic reads a protocol's file: no key is unknown, no type is bent."""
HOLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Segment:
    """A typed piece of text. `kind`: the tag's name, or `text` outside all tags. `text`: stripped.
    `closed`: False where the closing tag is missing, cut off or behind another tag that opens.
    `begin`, `end`: its place, with the tags."""

    kind: str
    text: str
    closed: bool
    begin: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    @property
    def inner(self) -> tuple[int, int]:
        """The place of the text between the tags."""
        if self.kind == TEXT:
            return self.begin, self.end
        return self.begin + len(self.kind) + 2, self.end - (len(self.kind) + 3) * self.closed


@dataclass(frozen=True)
class Action:
    """What a turn asks for: calls of tools, in order, or to hand in the role's result. A turn with
    neither is invalid."""

    calls: tuple[Call, ...] = ()
    final: str | None = None

    @property
    def queries(self) -> tuple[str, ...]:
        """The texts of the calls."""
        return tuple(call.text for call in self.calls)


@dataclass(frozen=True)
class Role:
    """How one role is spoken to: system and user text with `{field}` holes. `final`: the tag of its
    result. `boxed`: the last `\\boxed{}` inside that tag holds the result (ReSearch). `stops`:
    strings that end a turn; by default the closing tags of a search and of the result."""

    __pydantic_config__ = STRICT

    user: str
    final: str
    system: str = ""
    boxed: bool = False
    stops: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchForm:
    """How a policy searches, between the tags `tag`. `form`: text (one query), list (a JSON list of
    queries), tool (the JSON of a tool call), or the text of a call with the hole {query}, such as
    `search("{query}")`."""

    __pydantic_config__ = STRICT

    tag: str = "search"
    form: str = "text"


@dataclass(frozen=True)
class ObservationForm:
    """What follows a search.

    `document`: one document, with the holes {n}, {id}, {title}, {text}, {first_line}, {contents}.
    `join` stands between two documents, `between` between the results of two queries of one turn,
    `nothing` in the place of no document. `text`: the whole, with the hole {documents}. `as_turn`:
    it is a message of its own (role `tool`), not text inside the policy's turn."""

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
    """One tag protocol as data; the files in `ssp.game.protocols.library` hold those that ship.

    `kinds`: the tags that `parse` knows. `fields`: values of holes that the task does not fill.
    `template`: the layout of prompts, unless the model's settings name one. `plain`: the layout of
    `template=plain`. `one_line`: every text becomes one line with single spaces. `question_mark`: a
    question without one gets one. `retry`: what an invalid turn is told, with the hole {final}; ""
    ends the episode. `last`: the same, where the context has room for one more turn. `end`: the end
    of turn of the model's family; "" is that of the layout. `offers`: the tools beside the search,
    which a role's `tools` name, and no file."""

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
    # Not in the protocol's mark: what was played and practised without it stays valid.
    last: str = field(
        default="No room is left for a search. Write the result between <{final}> and </{final}>.",
        repr=False,
    )
    end: str = ""
    offers: tuple[Offer, ...] = ()

    def asking(self, prompts: Mapping[str, str]) -> Protocol:
        """This protocol with further prompts, by name. Each is a user's message, and its result
        stands in the tag of an answer."""
        if not prompts:
            return self
        answer = self.role(SOLVER)
        roles = dict(self.roles)
        for name, text in prompts.items():
            roles[name] = replace(answer, user=text, system="")
        return replace(self, roles=roles)

    def offering(self, offers: Sequence[Offer]) -> Protocol:
        """This protocol with these tools beside the search; each has a tag, unless calls are JSON.
        InputError for a name that has a meaning here already."""
        if not offers:
            return self
        taken = {*self.kinds, TOOL} - {offer.name for offer in self.offers}
        for offer in offers:
            rule = f"a tool has a name of its own under protocol {self.id}"
            hold(offer.name not in taken, rule, offer.name, "give the function another name")
            taken.add(offer.name)
        kinds = self.kinds
        if self.search.form != "tool":
            kinds += tuple(offer.name for offer in offers)
        spoken = replace(self, kinds=kinds)
        return replace(spoken, offers=tuple(offer.cleaned(spoken.clean) for offer in offers))

    def naming(self, tools: Sequence[str]) -> Protocol:
        """This protocol with tools of which only the names are known: for texts on record."""
        names = [name for name in dict.fromkeys(tools) if name and name not in (TOOL, *self.kinds)]
        return self.offering(list(map(Offer, names)))

    @property
    def mark(self) -> dict[str, str | int]:
        """What a checkpoint says of the protocol that its policy speaks."""
        return {"protocol": self.id, "protocol_version": self.version}

    @property
    def offers_tool(self) -> bool:
        """Whether a search is a call of a tool that the model's own chat template describes."""
        return self.search.form == "tool" and self.observation_form.as_turn

    def messages(self, role: str, fields: dict[str, str]) -> list[Message]:
        """The prompt of `role` as chat messages. InputError for an unknown role or a missing
        field."""
        spoken = self.role(role)
        known = dict(self.fields)
        for name, value in fields.items():
            text = value.rstrip()
            if name == "question" and self.question_mark and not text.endswith(("?", "？")):
                value = f"{text}?"
            known[name] = self.uncontrolled(value)
        missing = sorted(set(HOLE.findall(spoken.system + spoken.user)) - set(known))
        rule = f"the {role} prompt of protocol {self.id} needs {', '.join(missing)}"
        step = "give every field of the prompt"
        hold(not missing, rule, f"fields {sorted(fields)}", step)
        messages = []
        for who, text in (("system", spoken.system), ("user", spoken.user)):
            if text:
                filled = HOLE.sub(lambda hole: known[hole[1]], text)
                messages.append({"role": who, "content": self._tidy(filled)})

        if self.offers and not self.offers_tool:  # no chat template tells of them
            told = "\n".join(map(self._told, self.offers))
            first = messages[0]
            parts = [first["content"], told]
            if first["role"] != "system":
                parts.reverse()
            first["content"] = self._tidy("\n".join(parts))
        return messages

    def _told(self, offer: Offer) -> str:
        """How a policy is told of a tool that its chat template does not show: how it is called,
        then what it takes."""
        parts: dict[str, Any] = offer.parameters.get("properties", {})
        shape = {name: f"<{name}>" for name in parts}
        if self.search.form == "tool":
            tag = self.search.tag
            body = json.dumps({"name": offer.name, "arguments": shape})
        else:
            tag = offer.name
            body = offer.alone or json.dumps(shape)
        for name, part in parts.items():
            if isinstance(part, dict) and part.get("type") != "string":
                body = body.replace(f'"<{name}>"', f"<{name}>")  # what is no text has no quotes
        lines = [f"<{tag}> {body} </{tag}> {offer.description}"]
        if not offer.ours:
            lines += schemas.arguments(offer.parameters)
        return "\n".join(lines)

    def render(self, role: str, fields: dict[str, str], template: str = "") -> str:
        """The prompt of `role` as text, in `template` (default: the protocol's own). InputError as
        in `messages`, and for `tokenizer`, which only `renderer.Renderer` knows."""
        return lay_out(self.messages(role, fields), template or self.template, self.plain)

    def parse(self, text: str) -> list[Segment]:
        """Typed segments in order; a tag that opens inside another one ends that one unclosed.
        Never raises."""
        segments = []
        kind, begin, start = TEXT, 0, 0

        def push(closes: bool, stop: int, end: int) -> None:
            content = self.uncontrolled(text[start:stop]).strip()
            if kind != TEXT or content:
                segments.append(Segment(kind, content, closes or kind == TEXT, begin, end))

        for tag in self._tags.finditer(text):
            closing = bool(tag[1])
            closes = closing and tag[2] == kind
            if closing and not closes and kind != TEXT:
                continue  # a stray closing tag is part of the segment's text
            push(closes, tag.start(), tag.end() if closes else tag.start())
            if closing:
                kind, begin = TEXT, tag.end()
            else:
                kind, begin = tag[2], tag.start()
            start = tag.end()
        push(False, len(text), len(text))
        return segments

    def stops(self, role: str, searching: bool = True) -> tuple[str, ...]:
        """Strings that end a turn of `role`, beside the end of turn of the model's family. With
        `searching` False a search does not (self-search). A turn's text contains the string that
        ended it."""
        spoken = self.role(role)
        search = f"</{self.search.tag}>"
        stops = list(spoken.stops)
        if not stops:
            stops.append(f"</{spoken.final}>")
            if not self.observation_form.as_turn:
                stops.append(search)
        stops += [f"</{offer.name}>" for offer in self.offers if offer.name in self.kinds]
        return tuple(stop for stop in stops if searching or stop != search)

    def action(self, role: str, turn: str) -> Action:
        """What `turn` asks for. Its last segment in a tag decides. Never raises."""
        asked = self.calls(turn)
        return Action(asked) if asked else Action(final=self.final(role, turn))

    def final(self, role: str, turn: str) -> str | None:
        """What `turn` hands in: the text of the final tag, where `turn` ends with that; None where
        it is empty or not closed."""
        spoken = self.role(role)
        last = self._last(turn, spoken.final)
        if last is None:
            return None
        result = (calls.boxed(last.text) or "").strip() if spoken.boxed else last.text
        return result or None

    def queries(self, turn: str) -> tuple[str, ...]:
        """The texts of the calls of `turn`."""
        return Action(self.calls(turn)).queries

    def calls(self, turn: str) -> tuple[Call, ...]:
        """The calls with which `turn` ends; none when it ends otherwise, or when one of them cannot
        be read."""
        last = self.last_search(turn)
        if self.search.form == "tool":
            offers = (calls.SEARCH, *self.offers)
            if last is None:
                return calls.bare_calls(turn, offers, self.uncontrolled)
            searches = [
                segment.text
                for segment in self.parse(turn)
                if segment.kind == self.search.tag and segment.closed
            ]
            return calls.read(searches, offers)
        for offer in self.offers:
            own = self._last(turn, offer.name)
            if own is not None:
                return calls.tagged(offer, own.text)
        if last is None or not last.text:
            return ()
        return tuple(Call(TOOL, query) for query in calls.split(last.text, self.search.form))

    def last_search(self, turn: str) -> Segment | None:
        """The search that `turn` ends with."""
        return self._last(turn, self.search.tag)

    def _last(self, turn: str, tag: str) -> Segment | None:
        """The last segment in a tag, when that is a closed `tag`."""
        for segment in reversed(self.parse(turn)):
            if segment.kind != TEXT:
                return segment if segment.kind == tag and segment.closed else None
        return None

    def bodies(self, documents: Sequence[Document]) -> str:
        """The documents as this protocol shows them. Its tags and all models' control strings are
        taken out of them: the corpus must not speak for the environment."""
        shown = itertools.starmap(self._body, enumerate(documents, 1))
        return self._tidy(self.observation_form.join.join(shown))

    def _body(self, number: int, document: Document) -> str:
        if isinstance(document, ToolResult):  # which has no title
            return self.clean(document.contents)
        values = {
            "id": document.id,
            "title": document.title,
            "text": document.text,
            "contents": document.contents,
            "first_line": document.contents.split("\n", 1)[0],
        }
        holes = {name: self.clean(value) for name, value in values.items()}
        holes["n"] = str(number)
        return HOLE.sub(lambda hole: holes[hole[1]], self.observation_form.document)

    def observation(self, *results: Sequence[Document]) -> str:
        """The text that follows a turn's searches, one result list a query."""
        form = self.observation_form
        texts = [self.bodies(documents).strip() or form.nothing for documents in results]
        return self._tidy(form.text.replace("{documents}", form.between.join(texts)))

    def role(self, name: str) -> Role:
        """How `name` is spoken to. InputError when this protocol does not know it."""
        rule = f"protocol {self.id} knows the roles {', '.join(sorted(self.roles))}"
        hold(name in self.roles, rule, name, "use one of these roles")
        return self.roles[name]

    def clean(self, text: str) -> str:
        """`text` of others, without this protocol's tags and all models' control strings."""
        return self.uncontrolled(self._tags.sub(" ", text))

    def uncontrolled(self, text: str) -> str:
        """`text` without what a tokenizer would read as a control token."""
        return self._control.sub(" ", text)

    def _tidy(self, text: str) -> str:
        return " ".join(text.split()) if self.one_line else text

    @functools.cached_property
    def _tags(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, self.kinds))
        return re.compile(f"<(/?)({names})>")

    @functools.cached_property
    def _control(self) -> re.Pattern[str]:
        return re.compile(f"{CONTROL}|{re.escape(self.end)}" if self.end else CONTROL)
