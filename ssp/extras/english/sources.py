"""Real English text, read from installed packages: entries of the World Factbook and, where they are
installed, the lead summaries of encyclopaedia articles. Text becomes short passages; what a field
says beyond doubt becomes a fact."""

import re
from collections import Counter
from dataclasses import dataclass, field

from ssp.base.episode import Document
from ssp.base.errors import hold
from ssp.base.text import normalise
from ssp.extras.english import factbook, loosely, packages, summaries
from ssp.extras.english.facts import Fact, relations

_PLAIN_NAME = re.compile(r"[\w.!?'’ -]+")


@dataclass
class Sources:
    """`documents`: the corpus. `facts`: in the corpus's order. `aliases`: every name → its other
    names. `adjectives`: place → its adjective. `said`: what the book says besides, as facts that no
    question is made of, without a passage. `loose`: what is said besides by a looser reading;
    `places` and `titles`: the book's places, and other names of articles, for that alone."""

    documents: list[Document]
    facts: list[Fact]
    aliases: dict[str, list[str]]
    adjectives: dict[str, str] = field(default_factory=dict)
    said: list[Fact] = field(default_factory=list)
    loose: list[Fact] = field(default_factory=list)
    places: frozenset[str] = frozenset()
    titles: dict[str, list[str]] = field(default_factory=dict)


def versions() -> dict[str, str]:
    """The installed version of each package that is read. InputError without the World Factbook."""
    installed = packages.versions(packages.BOOK, packages.SUMMARIES)
    rule = f"world:english is read from the package {packages.BOOK}"
    hold(packages.BOOK in installed, rule, "not installed", "bash launch/setup.sh english")
    return installed


def read() -> Sources:
    """Everything that the installed packages say. InputError for a package whose files have another
    form."""
    versions()
    book = factbook.entries()
    aliases: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    """Normalised name → the place that has it."""
    for entry in book:
        aliases[entry.name] = entry.aliases()
        for name in (entry.name, *aliases[entry.name]):
            places[normalise(name)] = entry.name

    documents: list[Document] = []
    facts: list[Fact] = []
    said: list[Fact] = []
    for entry in book:
        passages = entry.passages()
        documents += passages
        facts += entry.facts(passages, places)
        said += entry.besides()

    demonyms = factbook.demonyms(book)
    articles = summaries.articles()
    descriptions = summaries.Descriptions(articles, places, demonyms)
    for article in articles:
        documents += article.passages
        fact = descriptions.fact(article)
        if fact is not None:
            facts.append(fact)

    facts = unambiguous(facts)
    for fact in facts:
        aliases.setdefault(fact.subject, [])
        aliases.setdefault(fact.object, _spellings(fact))
    adjectives = {place: word for word, place in demonyms.items()}

    known = {(fact.subject, fact.relation) for fact in facts}
    loose = [*loosely.of_book(book, places, known)]
    loose += loosely.of_articles(articles, places, demonyms, known)
    titles: dict[str, list[str]] = {}
    for article in articles:
        titles.setdefault(article.name, []).extend({article.title, article.title.split(",")[0]})
    named = frozenset(entry.name for entry in book)
    return Sources(documents, facts, aliases, adjectives, said, loose, named, titles)


def unambiguous(facts: list[Fact]) -> list[Fact]:
    """Facts whose subject and object have plain names, and where the relation asks for it an object
    of their own."""
    objects = [(fact.relation, normalise(fact.object)) for fact in facts]
    shared = Counter(objects)
    kept = []
    for fact, key in zip(facts, objects, strict=True):
        if not (_PLAIN_NAME.fullmatch(fact.subject) and _PLAIN_NAME.fullmatch(fact.object)):
            continue
        unique = relations()[fact.relation].get("unique")
        if key[1] and not (unique and shared[key] > 1):
            kept.append(fact)
    return kept


def _spellings(fact: Fact) -> list[str]:
    """Other right spellings of a fact's object."""
    spellings = []
    if relations()[fact.relation].get("plural") and fact.object.endswith("s"):
        spellings.append(fact.object[:-1])
    if fact.object.startswith("."):
        spellings.append(fact.object.lstrip("."))
    return spellings
