"""What the book and the summaries say in a way that no question of the world is made of: several
values of a field, a person of two nations, a work of a kind that is rare. The oracle alone knows
these facts, so that it can tell whether what a policy asks is true. `heard.yaml` says how a field
is read."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from ssp.base.text import normalise
from ssp.extras.english.factbook import Entry
from ssp.extras.english.facts import Fact, heard, relations
from ssp.extras.english.summaries import Article

_MADE_BY = re.compile(r"^(?P<what>.*?)\bby (?:the )?(?P<maker>[A-Z].*)$")
_NONE = re.compile(r"(?:none|no)\b")
_AFTER_NAME = re.compile(r",| \(| (?:written|composed|from|in|circa|about|with|and)\b.*")


NOTHING = ""
"""The object of a fact that says that there is none."""


def of_book(
    book: Sequence[Entry], places: Mapping[str, str], known: set[tuple[str, str]]
) -> Iterator[Fact]:
    """Facts of the book. `places`: normalised name → the place that has it. `known`: subjects and
    relations of which there is a fact already."""
    for entry in book:
        for relation, rule in heard()["loosely"].items():
            if (entry.name, relation) in known:
                continue
            text = entry.text(relations()[relation]["path"])
            values = _values(rule["value"], text) or _values(rule.get("or", r"(?!)"), text)
            if _NONE.match(text) or ("one" in rule and text and not values):
                yield Fact(entry.name, relation, NOTHING, "", "")
            for value in values:
                parts = value.split(rule["parts"]) if "parts" in rule else [value]
                for name in dict.fromkeys([value, *parts]):
                    thing = _thing(name.strip(), rule, places)
                    if thing:
                        yield Fact(entry.name, relation, thing, "", "")
        capital = entry.text(relations()["capital"]["path"])
        for city in _values(heard()["loosely"]["capital"]["value"], capital):
            yield Fact(city, "country", entry.name, "", "")


def of_articles(
    articles: Sequence[Article],
    places: Mapping[str, str],
    demonyms: Mapping[str, str],
    known: set[tuple[str, str]],
) -> Iterator[Fact]:
    """Facts of the summaries, from their descriptions, or else from their first sentences.
    `demonyms`: adjective → the country that it belongs to."""
    nations = {**demonyms, **heard()["adjectives"]}
    nation = re.compile(rf"\b(?:{'|'.join(map(re.escape, nations))})\b")
    misleading = heard()["elsewhere"]
    names = [name for name in places if name not in misleading and (len(name) > 3 or name == "us")]
    place = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    kinds: dict[str, str] = {}
    for relation, words in heard()["made"].items():
        kinds |= dict.fromkeys(words, relation)

    def countries(text: str) -> list[str]:
        """The countries that a text names."""
        return [places[name] for name in place.findall(normalise(text))]

    for article in articles:
        if not article.passages:
            continue
        about = article.description
        lead = article.passages[0].text.partition(". ")[0]
        told: dict[str, list[str]] = {}
        if article.topic == "People":
            for text in (lead, about):
                homes = [nations[word] for word in nation.findall(text)] or countries(text)
                told["home"] = homes or told.get("home", [])
        elif article.topic == "Geography":
            told["country"] = countries(about) or countries(lead)
        made = _MADE_BY.match(about)
        words = made["what"].lower().split() if made else []
        made_kinds = [kinds[word] for word in words if word in kinds]
        if made and made_kinds:
            told[made_kinds[-1]] = [_AFTER_NAME.split(made["maker"])[0].strip()]
        for relation, things in told.items():
            if (article.name, relation) not in known:
                for thing in dict.fromkeys(things):
                    yield Fact(article.name, relation, thing, "", "")


def _values(pattern: str, text: str) -> list[str]:
    """What the groups of every match hold."""
    matches = re.finditer(pattern, text)
    groups = chain.from_iterable(match.groups() for match in matches)
    return [group.strip() for group in groups if group and group.strip()]


def _thing(value: str, rule: Mapping[str, object], places: Mapping[str, str]) -> str:
    """What a value names; "" for a value that names nothing."""
    if not rule.get("place"):
        return value
    place = places.get(normalise(value.replace("&", "and")), "")
    return place if place or rule.get("known") else value
