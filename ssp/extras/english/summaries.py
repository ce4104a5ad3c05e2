"""Lead summaries of encyclopaedia articles: their passages, and the facts that both an article's
description and its first passage say."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ssp.base.episode import Document
from ssp.base.text import normalise
from ssp.extras.english import packages
from ssp.extras.english.facts import Fact, clean, paragraphs, relations

_PLACE = re.compile(r"(?:\b(?:in|of) |, )(?:the )?([A-Z][\w'’.-]+(?: [A-Z][\w'’.-]+)*)$")
_MAKER = re.compile(
    r"^(?:[\w–-]+ ){0,6}?(?P<kind>[a-z]+)(?: (?:cycle|series))? (?:directed |composed |written )?by"
    r" (?P<maker>[A-Z].+)$"
)
_BRACKET = re.compile(r"\s*\([^)]*\)$")


@dataclass(frozen=True)
class Article:
    """`name` is the title without what stands in brackets; `topic` is "" where none is stated."""

    title: str
    name: str
    description: str
    topic: str
    passages: list[Document]


def articles() -> list[Article]:
    """All summaries; none where the package is not installed. InputError for a package whose files
    have another form."""
    if not packages.versions(packages.SUMMARIES):
        return []
    (path,) = packages.files(packages.SUMMARIES, "data/summaries_en-us.json")
    rows = []
    for row in packages.json_object(path, packages.SUMMARIES).values():
        fields = row if isinstance(row, dict) else {}
        needed = [fields.get(key) for key in ("title", "extract", "description")]
        if all(isinstance(text, str) for text in needed):
            rows.append(fields)

    listed = []
    for number, row in enumerate(rows):
        name = _BRACKET.sub("", row["title"])
        passages = []
        for i, part in enumerate(paragraphs(clean(row["extract"]))):
            passages.append(Document(f"s{number}-{i}", f'"{name}"\n{part}'))
        topic = str(row.get("topic", ""))
        listed.append(Article(row["title"], name, row["description"], topic, passages))
    return listed


class Descriptions:
    """Reads the articles' descriptions. `places`: normalised name → the place that has it;
    `demonyms`: adjective → the country that it belongs to."""

    def __init__(
        self,
        listed: Sequence[Article],
        places: Mapping[str, str],
        demonyms: Mapping[str, str],
    ) -> None:
        self._places, self._demonyms = places, demonyms
        self._titles = {article.title for article in listed}
        names = [_BRACKET.sub("", title) for title in self._titles]
        self._sharing = Counter(map(normalise, names))
        longer = [re.escape(name) for name in places if len(name) > 3]
        self._place = re.compile(rf"\b(?:{'|'.join(longer)})\b")

        self._makers: dict[str, str] = {}
        """What somebody made (song, novel) → the relation that leads to its maker."""
        for relation, rule in relations().items():
            kinds = rule.get("kind", "").split("|")
            self._makers |= dict.fromkeys(kinds, relation)

    def fact(self, article: Article) -> Fact | None:
        """The fact that the description and the first passage say; None where they say none, or of
        something whose name others have too."""
        name = normalise(article.name)
        if not article.passages or self._sharing[name] > 1 or name in self._places:
            return None
        lead = article.passages[0].text
        relation, words, value = self._described(article, lead)
        if not (value and words and words in lead):
            return None
        if relation == "country":
            named = self._place.findall(normalise(lead))
            if {self._places[place] for place in named} != {value}:
                return None
        return Fact(article.name, relation, value, article.passages[0].id, _around(lead, words))

    def _described(self, article: Article, lead: str) -> tuple[str, str, str | None]:
        """Relation, the words for its object, and the object, as the description gives them; None
        where it gives none."""
        about = article.description
        made = _MAKER.match(about)
        relation = self._makers.get(made["kind"]) if made else None
        if made and relation:
            names = (made["maker"], made["maker"].partition(",")[0])
            maker = next((name for name in names if name in self._titles), "")
            return relation, maker, maker or None

        if article.topic == "People":
            sentence = lead.partition(". ")[0]
            words = [word for word in self._demonyms if re.search(rf"\b{word}\b", sentence)]
            alone = len(words) == 1 and about.startswith(words[0])
            home = words[0] if alone else ""
            return "home", home, self._demonyms.get(home)

        place = _PLACE.search(about) if article.topic == "Geography" else None
        country = place[1] if place else ""
        return "country", country, self._places.get(normalise(country))


def _around(text: str, words: str) -> str:
    """The part of `text` around `words`: from five words before to one after."""
    before, _, after = text.partition(words)
    first = " ".join(before.split(" ")[-6:])
    last = " ".join(after.split(" ")[:2])
    return f"{first}{words}{last}".strip()
