"""Questions of the English world: a chain of facts written out in one of several phrasings, and a
question's text read back into the relations that it names. `english.yaml` has the phrasings;
spelling, case, articles and punctuation do not count when a text is read."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ssp.base.text import normalise
from ssp.extras.english.sources import Fact, Sources, grammar


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
WAYS = {
    "ask": "whole",
    "which": "whole",
    "posed": "whole",
    "of": "inner",
    "back": "inner",
    "told": "inner",
}
"""A relation's phrasings → whether they end a question, or stand inside one."""


def write(chain: Chain, pick: int) -> str:
    """The question that `chain` answers; `pick` (any integer) chooses the phrasings."""
    text = named(chain[0].start)
    for hop in chain[:-1]:
        text = _chosen("back" if hop.back else "of", hop, pick).format(x=text, y=text)
    question = _chosen("which" if chain[-1].back else "ask", chain[-1], pick).format(x=text, y=text)
    return question[0].upper() + question[1:]


def _chosen(way: str, hop: Hop, pick: int) -> str:
    phrasings: list[str] = grammar()["relations"][hop.fact.relation][way]
    return phrasings[pick % len(phrasings)]


def named(name: str) -> str:
    """A name as it stands in a sentence, with its article."""
    last = name.split()[-1]
    article = last in (
        "Islands",
        "Republic",
        "States",
        "Kingdom",
        "Emirates",
        "Netherlands",
        "Philippines",
        "Maldives",
    )
    return f"the {name}" if article and not name.startswith("The ") else name


class Reader:
    """Reads questions against the facts of `sources`, each relation forwards and backwards;
    `widely`: a subject may go by what is said of it besides."""

    def __init__(self, sources: Sources, widely: bool = False) -> None:
        said = sources.said if widely else []
        self._names = _meanings({**{fact.object: [] for fact in said}, **sources.aliases})
        self._ahead: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._back: dict[tuple[str, str], set[str]] = defaultdict(set)
        for fact in sources.facts:
            self._ahead[fact.relation, fact.subject].add(fact.object)
        for fact in (*sources.facts, *said):
            self._back[fact.relation, fact.object].add(fact.subject)

    @cached_property
    def _patterns(self) -> dict[str, list[tuple[re.Pattern[str], str, bool]]]:
        """Phrasings that end a question, and those inside one: pattern, relation, whether it leads
        back."""
        found: dict[str, list[tuple[re.Pattern[str], str, bool]]] = {"whole": [], "inner": []}
        for relation, rule in grammar()["relations"].items():
            for way, kind in WAYS.items():
                for text in rule.get(way, ()):
                    before, _, after = re.sub(r"\{[xy]\}", "\0", text).partition("\0")
                    parts = [re.escape(normalise(part)) for part in (before, after)]
                    pattern = (
                        r"\s*".join([parts[0], "(.+)", parts[1]])
                        if parts[0] or parts[1]
                        else "(.+)"
                    )
                    found[kind].append(
                        (re.compile(pattern), relation, way not in ("ask", "posed", "of"))
                    )
        return found

    def readings(self, question: str) -> Iterator[tuple[str, int]]:
        """(answer, hops) of every way to read `question` that names something known; none for
        another text."""
        yield from self._match("whole", normalise(question))

    def _match(self, kind: str, text: str) -> Iterator[tuple[str, int]]:
        for pattern, relation, back in self._patterns[kind]:
            if found := pattern.fullmatch(text):
                for start, hops in self._things(found[1].strip()):
                    for end in sorted(
                        (self._back if back else self._ahead).get((relation, start), ())
                    ):
                        yield end, hops + 1

    def _things(self, text: str) -> Iterator[tuple[str, int]]:
        """What a noun phrase means, and the hops that it takes."""
        for name in self._names.get(text, ()):
            yield name, 0
        yield from self._match("inner", text)


def _meanings(aliases: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Normalised name → the things that go by it: UK is a country and, with a dot before it, an
    internet code."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, more in aliases.items():
        for alias in (name, *more):
            found[normalise(alias)].add(name)
    return {key: sorted(names) for key, names in found.items() if key}


def chains(facts: Iterable[Fact], hops: int) -> Iterator[Chain]:
    """Every chain of `hops` facts that runs in no circle: in the middle and at the start a step has
    a phrase for what it leads to, and back goes only what one subject alone has."""
    facts = list(facts)
    rules = grammar()["relations"]
    owners: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fact in facts:
        owners[fact.relation, normalise(fact.object)].add(fact.subject)
    alone = [fact for fact in facts if len(owners[fact.relation, normalise(fact.object)]) == 1]
    steps = [
        *map(Hop, facts),
        *(Hop(fact, True) for fact in alone if "back" in rules[fact.relation]),
    ]
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
        been = {chain[0].start, *(hop.end for hop in chain)}
        for step in after[chain[-1].end]:
            # back leads to a place, and is the first step alone
            if step.end not in been and not step.back:
                yield from grow((*chain, step))

    for step in steps:
        yield from grow((step,))
