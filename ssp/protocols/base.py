"""What a tag protocol is: prompts, turns, searches and final tags as text.

Owns the one parser that training, evaluation, `ask` and the board share (law 8).
Promises that a protocol is plain data, that `parse` never raises and loses no text, and that a turn asks for at most
one thing: its last segment decides. Refuses to know token ids, models, rewards or whether a question is any good.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ssp.episode import Document
from ssp.errors import InputError

TEXT = "text"


@dataclass(frozen=True)
class Segment:
    """A typed piece of text. `kind` is the tag's name, or `text` outside every tag; `text` is stripped.

    `closed` is False when the closing tag is missing: cut off, or another tag opened first.
    """

    kind: str
    text: str
    closed: bool


@dataclass(frozen=True)
class Protocol:
    """One tag protocol as data.

    `kinds`: tag names that `parse` knows. `prompts`: role → template with `{field}` holes. `finals`: role → name of
    the tag in which the role hands in its result. `search_tag`, `observation_tag`: names of those two tags.
    `stop_strings`: what ends a turn. `end`: end-of-sequence string, which `parse` leaves out.
    """

    id: str
    kinds: tuple[str, ...]
    prompts: dict[str, str]
    finals: dict[str, str]
    search_tag: str
    observation_tag: str
    stop_strings: tuple[str, ...]
    end: str

    def render(self, role: str, fields: dict[str, str]) -> str:
        """The prompt of `role` with `fields` filled in. InputError for an unknown role or a missing field."""
        template = self._of(self.prompts, role)
        missing = sorted(set(re.findall(r"\{(\w+)\}", template)) - set(fields))
        if missing:
            raise InputError(
                f"the {role} prompt of protocol {self.id} needs {', '.join(missing)}",
                f"fields {sorted(fields)}",
                "give every field of the prompt",
            )
        return _squeeze(re.sub(r"\{(\w+)\}", lambda hole: fields[hole.group(1)], template))

    def parse(self, text: str) -> list[Segment]:
        """Typed segments in order; a tag that opens inside another one ends that one unclosed. Never raises."""
        tags = re.compile(rf"<(/?)({'|'.join(map(re.escape, self.kinds))})>")
        segments: list[Segment] = []
        kind, start = TEXT, 0
        text = text.replace(self.end, " ") if self.end else text
        for tag in tags.finditer(text):
            closing = bool(tag.group(1))
            closes = closing and tag.group(2) == kind
            if closing and not closes and kind != TEXT:
                continue  # a stray closing tag is part of the segment's text
            self._push(segments, kind, text[start : tag.start()], closes)
            kind, start = (TEXT if closing else tag.group(2)), tag.end()
        self._push(segments, kind, text[start:], kind == TEXT)
        return segments

    @staticmethod
    def _push(segments: list[Segment], kind: str, text: str, closed: bool) -> None:
        if kind != TEXT or text.strip():
            segments.append(Segment(kind, text.strip(), closed or kind == TEXT))

    def stops(self, role: str) -> tuple[str, ...]:
        """Strings that end a turn of `role`; a turn's text contains the one that ended it."""
        self._of(self.finals, role)
        return self.stop_strings

    def final(self, role: str, text: str) -> str | None:
        """What the last turn in `text` hands in: its last segment, when that is the closed, non-empty final tag."""
        return self._last(text, self._of(self.finals, role))

    def query(self, text: str) -> str | None:
        """What the last turn in `text` searches for: its last segment, when that is a closed, non-empty search tag."""
        return self._last(text, self.search_tag)

    def _last(self, text: str, kind: str) -> str | None:
        turn = text.rsplit(f"</{self.observation_tag}>", 1)[-1]
        segments = self.parse(turn)
        if not segments or segments[-1].kind != kind or not segments[-1].closed:
            return None
        return segments[-1].text or None

    def bodies(self, documents: Sequence[Document]) -> str:
        """The documents' texts (titles dropped) in one line, without any of this protocol's tags.

        A tag inside a document would let the corpus speak for the environment, so tags are taken out.
        """
        tags = rf"</?(?:{'|'.join(map(re.escape, self.kinds))})>"
        if self.end:
            tags += f"|{re.escape(self.end)}"
        return _squeeze(" ".join(re.sub(tags, " ", document.text) for document in documents))

    def observation(self, documents: Sequence[Document]) -> str:
        """The text that follows a search: the documents between the observation tags."""
        return _squeeze(f"<{self.observation_tag}> {self.bodies(documents)} </{self.observation_tag}>")

    def _of(self, table: dict[str, str], role: str) -> str:
        if role not in table:
            raise InputError(
                f"protocol {self.id} knows the roles {', '.join(sorted(table))}", role, "use one of these roles"
            )
        return table[role]


def _squeeze(text: str) -> str:
    return " ".join(text.split())
