"""Questions of the English world: a chain of facts is written out in one of several phrasings, and a
question's text is read back into the relations that it names. `english.yaml` has the phrasings.
Spelling, case, articles and punctuation do not count when a text is read."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from ssp.base.text import normalise
from ssp.extras.english.facts import Fact, relations
from ssp.extras.english.sources import Sources


class Reading(NamedTuple):
    """A way to read a text: its answer, the facts that lead there, and whether the last one is
    followed back. `answer` None: nobody knows it."""

    answer: str | None
    hops: int
    back: bool = False


@dataclass(frozen=True)
class Hop:
    """One step along a fact: from its subject to its object, or `back`."""

    fact: Fact
    back: bool = False

    @property
    def start(self) -> str:
        """Where the step begins."""
        return self.fact.object if self.back else self.fact.subject

    @property
    def end(self) -> str:
        """Where it leads."""
        return self.fact.subject if self.back else self.fact.object

    @property
    def key(self) -> tuple[str, bool]:
        """Its relation and direction."""
        return self.fact.relation, self.back


Chain = tuple[Hop, ...]
WHOLE, INNER = ("ask", "which", "posed"), ("of", "back", "told")
"""A relation's phrasings that end a question, and those that stand inside one."""
AHEAD = ("ask", "posed", "of")
"""Of both those that lead from a fact's subject to its object."""
ARTICLES = {
    "Islands",
    "Republic",
    "States",
    "Kingdom",
    "Emirates",
    "Netherlands",
    "Philippines",
    "Maldives",
}
"""Last words of names that have an article."""
Pattern = tuple[re.Pattern[str], str, bool]
"""A phrasing, its relation, and whether it leads back."""


def write(chain: Chain, pick: int) -> str:
    """The question that `chain` answers; `pick` (any integer) chooses the phrasings."""

    def phrased(hop: Hop, way: str, thing: str) -> str:
        phrasings: list[str] = relations()[hop.fact.relation][way]
        return phrasings[pick % len(phrasings)].format(x=thing, y=thing)

    text = named(chain[0].start)
    for hop in chain[:-1]:
        text = phrased(hop, "back" if hop.back else "of", text)
    last = chain[-1]
    question = phrased(last, "which" if last.back else "ask", text)
    return question[0].upper() + question[1:]


def named(name: str) -> str:
    """A name as it stands in a sentence, with its article."""
    last = name.split()[-1]
    article = last in ARTICLES and not name.startswith("The ")
    return f"the {name}" if article else name


class Reader:
    """Reads questions against the facts of `sources`, each relation forwards and backwards;
    `widely`: a subject may go by what is said of it besides."""

    def __init__(self, sources: Sources, widely: bool = False) -> None:
        said = sources.said if widely else []
        self._names: dict[str, set[str]] = defaultdict(set)
        """Normalised name → the things that go by it: UK is a country and, with a dot before it, an
        internet code."""
        for fact in said:
            self._names[normalise(fact.object)].add(fact.object)
        for name, aliases in sources.aliases.items():
            for alias in (name, *aliases):
                self._names[normalise(alias)].add(name)
        self._names.pop("", None)

        self._ends: dict[tuple[str, str, bool], set[str]] = defaultdict(set)
        """Relation, where a step begins, whether it leads back → where it ends."""
        for fact in sources.facts:
            self._ends[fact.relation, fact.subject, False].add(fact.object)
        for fact in (*sources.facts, *said):
            self._ends[fact.relation, fact.object, True].add(fact.subject)

    def readings(self, question: str) -> Iterator[Reading]:
        """Every way to read `question` that names something known; none for another text."""
        yield from self._match(WHOLE, normalise(question))

    def _match(self, ways: tuple[str, ...], text: str) -> Iterator[Reading]:
        """Every way to read `text` by these phrasings."""
        for pattern, relation, back in patterns(ways):
            match = pattern.fullmatch(text)
            if match is None:
                continue
            phrase = match[1].strip()
            # the noun phrase is a name, or leads over other facts itself
            starts = [Reading(name, 0) for name in sorted(self._names.get(phrase, ()))]
            starts += self._match(INNER, phrase)
            for start, hops, _ in starts:
                for end in sorted(self._ends.get((relation, start or "", back), ())):
                    yield Reading(end, hops + 1, back)


@cache
def patterns(ways: tuple[str, ...]) -> list[Pattern]:
    """All phrasings of these kinds; spaces around what they are about do not count."""
    made: list[Pattern] = []
    for relation, rule in relations().items():
        for way in ways:
            for phrasing in rule.get(way, ()):
                fixed = re.split(r"\{[xy]\}", phrasing)
                parts = [re.escape(normalise(part)) for part in fixed]
                pattern = r"\s*(.+)\s*".join(parts) if any(parts) else "(.+)"
                made.append((re.compile(pattern), relation, way not in AHEAD))
    return made


def chains(facts: Iterable[Fact], hops: int) -> Iterator[Chain]:
    """Every chain of `hops` facts that runs in no circle. In the middle and at the start a step has
    a phrase for what it leads to, and a step goes back only by what one subject alone has."""
    facts = list(facts)
    rules = relations()
    objects = [(fact.relation, normalise(fact.object)) for fact in facts]
    owners = defaultdict[Any, set[str]](set)
    for fact, thing in zip(facts, objects, strict=True):
        owners[thing].add(fact.subject)
    steps = [Hop(fact) for fact in facts]
    for fact, thing in zip(facts, objects, strict=True):
        if len(owners[thing]) == 1 and "back" in rules[fact.relation]:
            steps.append(Hop(fact, True))
    after: dict[str, list[Hop]] = defaultdict(list)
    for step in steps:
        after[step.start].append(step)

    def grow(chain: Chain) -> Iterator[Chain]:
        if len(chain) == hops:
            yield chain
            return
        way = "back" if chain[-1].back else "of"
        if way not in rules[chain[-1].fact.relation]:
            return
        visited = {chain[0].start, *(hop.end for hop in chain)}
        for step in after[chain[-1].end]:
            # a step back leads to a place, and is the first one only
            if step.end not in visited and not step.back:
                yield from grow((*chain, step))

    for step in steps:
        yield from grow((step,))
