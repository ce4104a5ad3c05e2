"""Hears questions that no phrasing of the world writes, about all that the book and the summaries
say. `heard.yaml` has the phrasings. For the oracle alone: what it hears makes figures, and no
question of the world.

Articles, accents, case and punctuation do not count, and some words stand for others."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ssp.base.text import normalise, plain
from ssp.extras.english.facts import heard, relations
from ssp.extras.english.grammar import AHEAD, INNER, WHOLE, Reading
from ssp.extras.english.loosely import NOTHING
from ssp.extras.english.sources import Sources

LONGEST = 400
"""Characters of a question that is heard."""
DEEPEST = 5
"""Facts of a question that is heard."""
KEPT = 4096
"""Questions whose readings are kept."""
_OWNS = re.compile(r"(?<=\w)(?<!what)(?<!who)(?<!where)['’]s\b", re.IGNORECASE)
_TWICE = re.compile(r"\b(\w+)(?: \1\b)+")
_HOLE = re.compile(r"\{[xy]\}")
_VERB = re.compile(r" (?:is|serve as) ")
_BEFORE = re.compile(r"(?:name|title) of ")


@dataclass(frozen=True)
class Phrasing:
    """A phrasing of a relation; `back`: it leads from the fact's object to its subject."""

    pattern: re.Pattern[str]
    relation: str
    back: bool


def canonical(text: str) -> str:
    """`text` as it is heard: words that mean the same are one word, and none comes twice in a
    row."""
    words = normalise(_OWNS.sub(" s", plain(text))).split()
    known: Mapping[str, str] = heard()["words"]
    return _TWICE.sub(r"\1", " ".join(known.get(word, word) for word in words))


class Listener:
    """Reads questions against all facts of `sources`."""

    def __init__(self, sources: Sources) -> None:
        self._places = sources.places
        self._names: dict[str, set[str]] = defaultdict(set)
        """A name as it is heard → the things that go by it."""
        self._ends: dict[tuple[str, str, bool], set[str]] = defaultdict(set)
        """Relation, where a step begins, whether it leads back → where it ends."""
        for fact in (*sources.facts, *sources.loose):
            self._ends[fact.relation, fact.subject, False].add(fact.object)
        for fact in (*sources.facts, *sources.loose, *sources.said):
            self._ends[fact.relation, fact.object, True].add(fact.subject)
            for thing in (fact.subject, fact.object):
                self._names[canonical(thing)].add(thing)
        for name, aliases in (*sources.aliases.items(), *sources.titles.items()):
            for alias in (name, *aliases):
                self._names[canonical(alias)].add(name)
        self._names.pop("", None)
        self._kinds = sorted(map(canonical, heard()["kinds"]), key=len, reverse=True)
        self.readings = lru_cache(KEPT)(self._readings)

    def _readings(self, question: str) -> list[Reading]:
        """Every way to hear a question that names something known. The answer is NOTHING where
        nothing can be right; no reading where a fact is missing that might be so."""
        text = canonical(question)
        if len(text) > LONGEST:
            return []
        whole, inner = self._phrasings
        readings = [*self._steps(whole, text, DEEPEST)]
        for phrase in _asked(text):
            readings += self._steps(inner, phrase, DEEPEST)
        readings = list(dict.fromkeys(readings))
        right = [reading for reading in readings if reading.answer]
        unknown = any(reading.answer is None for reading in readings)
        return right or ([] if unknown else readings)

    def _steps(self, phrasings: Iterable[Phrasing], text: str, left: int) -> Iterator[Reading]:
        """Readings of `text` by these phrasings, in at most `left` facts."""
        for phrasing in phrasings if left else ():
            match = phrasing.pattern.fullmatch(text)
            if match is None:
                continue
            for thing, hops in self._starts(match[1].strip(), left - 1):
                for answer in self._leads(phrasing, thing):
                    yield Reading(answer, hops + 1, phrasing.back)

    def _starts(self, phrase: str, left: int) -> Iterator[tuple[str | None, int]]:
        """What a phrase names, and the facts that lead to it."""
        names = self._names.get(phrase, set())
        for kind in self._kinds:
            if phrase.startswith(f"{kind} "):
                names = names | self._names.get(phrase.removeprefix(f"{kind} "), set())
        for name in sorted(names):
            yield name, 0
        for reading in self._steps(self._phrasings[1], phrase, left):
            yield reading.answer, reading.hops

    def _leads(self, phrasing: Phrasing, thing: str | None) -> Sequence[str | None]:
        """Where a step from `thing` leads: NOTHING where it leads nowhere, None where nobody
        knows."""
        if not thing:
            return [thing]
        ends = self._ends.get((phrasing.relation, thing, phrasing.back))
        if ends:
            return sorted(ends)
        of_places = "path" in relations()[phrasing.relation]
        lacks = not phrasing.back and of_places != (thing in self._places)
        return [NOTHING if lacks else None]

    @cached_property
    def _phrasings(self) -> tuple[list[Phrasing], list[Phrasing]]:
        """Those of whole questions, and those of phrases inside one."""
        whole: list[Phrasing] = []
        inner: list[Phrasing] = []
        for relation, rule in heard()["relations"].items():
            spelled = sorted(map(canonical, rule["nouns"]), key=len, reverse=True)
            nouns = "|".join(map(re.escape, spelled))
            own = {
                (True, False): [*heard()["forwards"]["whole"], *rule.get("whole", ())],
                (True, True): [*heard()["backwards"]["whole"], *rule.get("asks", ())],
                (False, False): [*heard()["forwards"]["inner"], *rule.get("inner", ())],
                (False, True): [*heard()["backwards"]["inner"], *rule.get("back", ())],
            }
            written = relations()[relation]
            for way in (*WHOLE, *INNER):
                own[way in WHOLE, way not in AHEAD] += written.get(way, ())
            for (is_whole, back), texts in own.items():
                made = whole if is_whole else inner
                made += [Phrasing(_pattern(text, nouns), relation, back) for text in texts]
        return whole, inner


def _pattern(phrasing: str, nouns: str) -> re.Pattern[str]:
    """What a phrasing matches; its group is what it is about."""
    holes = {"{n}": f"(?:{nouns})", "{any}": r"\w+"}
    parts = []
    for part in _HOLE.split(phrasing):
        words = [holes.get(word) or re.escape(canonical(word)) for word in part.split()]
        parts.append(" ".join(filter(None, words)))
    before, after = parts
    return re.compile(f"{before} (.+) {after}".strip())


def _asked(text: str) -> Iterator[str]:
    """Phrases whose thing a whole question asks for, if the question has that form."""
    text = text.removesuffix(" called")
    if text.startswith("name "):
        yield _BEFORE.sub("", text.removeprefix("name "), count=1)
    if text.startswith("what "):
        for verb in _VERB.finditer(text):
            yield _BEFORE.sub("", text[verb.end() :], count=1)
    if text.startswith("what country "):
        rest = text.removeprefix("what country ")
        yield f"country what {rest}"
        yield f"country whose {rest.removeprefix('s ')}"
    if text.startswith("what only country "):
        yield f"only country what {text.removeprefix('what only country ')}"
