"""Entries of the World Factbook: the names of a place, its sections as passages, and the facts that
its fields state."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ssp.base.episode import Document
from ssp.base.text import normalise
from ssp.extras.english import packages
from ssp.extras.english.facts import Fact, clean, grammar, paragraphs, relations

QUOTE = 4
"""Words that the quote of a fact has at least, where its passage goes on."""
LONGEST_NAME = 60
"""Names of as many characters are left out."""
_ADJECTIVE = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)?")


@dataclass(frozen=True)
class Entry:
    """One entry of the book. `code` is the name of its file, `sections` what the file holds."""

    code: str
    sections: Mapping[str, Any]

    @cached_property
    def name(self) -> str:
        """What the place is called; "" for an entry that is no place."""
        forms = self._forms("conventional short form", "conventional long form")
        name = forms[0] if forms else ""
        plain = name.partition(" (")[0] if name.endswith(")") else name
        return str(grammar()["called"].get(name, plain))

    def aliases(self) -> list[str]:
        """Its other names: long and local ones, and those that `english.yaml` adds."""
        forms = self._forms("conventional long form", "local short form", "local long form")
        short = [name for name in forms if len(name) < LONGEST_NAME]
        return [*short, *grammar()["names"].get(self.name, ())]

    def _forms(self, *forms: str) -> list[str]:
        """Those of these forms of its name that the place has."""
        names = [self.text(f"Government/Country name/{form}") for form in forms]
        return [name for name in names if name not in ("", "none")]

    def text(self, path: str) -> str:
        """The text at `path`, "" where there is none."""
        value = _at(self.sections, path)
        while isinstance(value, dict):
            value = value.get("text", value.get(path.rpartition("/")[2]))
        return clean(value) if isinstance(value, str) else ""

    def passages(self) -> list[Document]:
        """Its sections, each cut into passages at the ends of sentences and clauses."""
        documents: list[Document] = []
        for title, paths in grammar()["sections"].items():
            lines: list[str] = []
            for path in paths:
                lines += _lines(_at(self.sections, path), path.rpartition("/")[2])
            text = "; ".join(lines)
            if title == "Background":
                text = text.partition(": ")[2]
            for part in paragraphs(text):
                contents = f'"{self.name}: {title}"\n{part}'
                documents.append(Document(f"{self.code}{len(documents)}", contents))
        return documents

    def facts(self, passages: Sequence[Document], places: Mapping[str, str]) -> Iterator[Fact]:
        """What a relation's pattern finds in its field, and one of `passages` says. `places`:
        normalised name → the place that has it."""
        for relation, rule in relations().items():
            text = self.text(rule["path"]) if "path" in rule else ""
            match = re.search(rule["value"], text) if text else None
            if match is None or ("whole" in rule and re.search(r"[;,]", text)):
                continue
            if "alone" in rule and text.count(rule["alone"]) != 1:
                continue

            value = match[1].strip()
            if rule.get("place"):
                value = places.get(normalise(value), "")
            start = match[0]
            if match.start() < 20:
                label = rule["path"].rpartition("/")[2]
                start = f"{label}: {text[: match.end()]}"
            saying = next((passage for passage in passages if start in passage.text), None)
            if value and saying is not None:
                yield Fact(self.name, relation, value, saying.id, _quote(saying.text, start))

    def besides(self) -> Iterator[Fact]:
        """Every value of a field that says several, or says one in a way that no fact is made
        of."""
        for relation, rule in relations().items():
            if "also" in rule:
                for value in re.findall(rule["also"], self.text(rule["path"])):
                    yield Fact(self.name, relation, value.strip(), "", "")


def entries() -> list[Entry]:
    """The book's places. InputError for a package whose files have another form."""
    book: dict[str, Entry] = {}
    for path in packages.files(packages.BOOK, "data/*/*.json"):
        entry = Entry(path.stem, packages.json_object(path, packages.BOOK))
        if entry.name:
            book[entry.code] = entry
    return list(book.values())


def demonyms(book: Sequence[Entry]) -> dict[str, str]:
    """Adjective → the one country that it belongs to; of several the one that depends on no
    other."""
    owners: dict[str, dict[str, bool]] = defaultdict(dict)
    """Adjective → each place that it belongs to, and whether that depends on another."""
    for entry in book:
        depends = bool(entry.text("Government/Dependency status"))
        adjectives = entry.text("People and Society/Nationality/adjective")
        for part in re.split(r"[,;(]| or ", adjectives):
            word = part.strip()
            if _ADJECTIVE.fullmatch(word):
                owners[word][entry.name] = depends

    countries: dict[str, str] = {}
    for word, places in owners.items():
        free = [place for place, depends in places.items() if not depends]
        if len(free) == 1:
            countries[word] = free[0]
    return {**countries, "American": "United States"}


def _at(section: Mapping[str, Any], path: str) -> Any:
    """What stands at `path`; its keys are parted by "/", and one may hold a "/" itself."""
    for key, value in section.items():
        if path == key:
            return value
        if path.startswith(f"{key}/") and isinstance(value, dict):
            return _at(value, path[len(key) + 1 :])
    return None


def _lines(value: Any, label: str) -> Iterator[str]:
    """`label: text` of each leaf."""
    if isinstance(value, str) and value:
        yield f"{label}: {clean(value)}"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _lines(inner, label if key == "text" else key)


def _quote(text: str, start: str) -> str:
    """`start` of `text`, and what follows it up to QUOTE words in all."""
    after = text[text.index(start) + len(start) :]
    missing = max(0, QUOTE - len(start.split()))
    rest = re.match(r"\S*" + r"\s+\S+" * missing, after)
    return (start + (rest[0] if rest else "")).strip(" ;,")
