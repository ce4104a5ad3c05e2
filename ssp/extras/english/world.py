"""The English world: real passages, the facts that they state, questions of one to three hops, and
an oracle that reads questions back. Each place, and each thing that no place is known of, is held
out or is not. A question is held out when everything between its ends is, and learned from when
nothing is."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from operator import itemgetter

from ssp.base.episode import Document
from ssp.base.seeds import generator
from ssp.base.text import normalise
from ssp.extras.english.facts import Fact
from ssp.extras.english.grammar import Chain, Reader, Reading, chains, write
from ssp.extras.english.heard import Listener
from ssp.extras.english.sources import Sources, read
from ssp.game.world.generator import WorldQuestion

HELD = 0.3
"""Share of the places that is held out."""
TRAIN, HELDOUT = "train", "heldout"
FORWARDS, BACKWARDS = "forwards", "backwards"
"""Forms of a question of one fact: it asks for the object, or for the subject."""
MAX_HOPS = 3
SHARE = 0.1
"""Share of drawn questions that may look the same thing up. Without it 46 % of the held-out ones
with three hops would need the United Kingdom, and whether a policy says "UK" would count more than
all that it learns."""


Run = tuple[tuple[str, bool], ...]
"""The relations of a chain, each with its direction."""
Groups = dict[tuple[str, int], dict[Run, list[Chain]]]
"""(split, hops) → its chains by their run."""


class English:
    """One world, from what is installed."""

    def __init__(self, sources: Sources | None = None) -> None:
        self.sources = sources or read()
        self._reader, self._wide = Reader(self.sources), Reader(self.sources, widely=True)
        self._listener = Listener(self.sources)
        self._homes: dict[str, str] = {}
        self._about: dict[str, list[Fact]] = defaultdict(list)
        """Thing → the facts that it is subject or object of."""
        for fact in self.sources.facts:
            if fact.relation in ("home", "country"):
                self._homes[fact.subject] = fact.object
            self._about[fact.object].append(fact)
            self._about[fact.subject].append(fact)

    def documents(self) -> list[Document]:
        """The corpus."""
        return list(self.sources.documents)

    def answer(self, question: str) -> str | None:
        """The oracle: the one answer of a question's text; None when it cannot be read, or has
        several."""
        return _only_answer(self._reader, question)

    def hops(self, question: str) -> int:
        """Facts that a question's text names, by all that the book says; 0 for a text that cannot
        be read."""
        return max((reading.hops for reading in self._readings(question)), default=0)

    def is_junk(self, question: str, target: str) -> bool:
        """True when the question's true answer is not `target`, and when nobody knows, since the
        question cannot be read by all that the book says."""
        answer = self.answer(question)
        if answer is None:
            answer = _only(reading.answer for reading in self._readings(question))
        spellings = self.answers(answer) if answer else ()
        return normalise(target) not in map(normalise, spellings)

    def truths(self, question: str) -> list[str] | None:
        """All right answers by all that the book says, in all their spellings; None for a text that
        cannot be read."""
        readings = self._readings(question)
        if not readings:
            return None
        names = dict.fromkeys(reading.answer for reading in readings if reading.answer)
        return [spelling for name in names for spelling in self.answers(name)]

    def classes(self, question: str) -> list[str]:
        """The number of facts, as `2hop`, and of one fact whether it is asked forwards or
        backwards."""
        readings = self._readings(question)
        hops = {reading.hops for reading in readings}
        classes = [f"{one}hop" for one in hops if len(hops) == 1]
        ways = {reading.back for reading in readings}
        if hops == {1} and len(ways) == 1:
            classes.append(f"form.{BACKWARDS if True in ways else FORWARDS}")
        return classes

    def _readings(self, question: str) -> Sequence[Reading]:
        """Every way to read a text by all that the book says; where the world's own phrasings do
        not fit, by others."""
        return [*self._wide.readings(question)] or self._listener.readings(question)

    def answers(self, name: str) -> list[str]:
        """All right spellings of an answer, its own name first."""
        aliases = self.sources.aliases.get(name, ())
        return [name, *filter(normalise, aliases)]

    def split(self, thing: str) -> str:
        """The part that a place, or what no place is known of, belongs to."""
        home = self._homes.get(thing, thing)
        digest = hashlib.sha256(normalise(home).encode()).digest()
        return HELDOUT if int.from_bytes(digest[:4]) < HELD * 2**32 else TRAIN

    def part(self, chain: Chain) -> str | None:
        """The split of a question: that of all things between its ends, or for one hop that of the
        fact's subject. None when these are of both."""
        between = [hop.end for hop in chain[:-1]]
        return _only(map(self.split, between or [chain[0].fact.subject]))

    @cached_property
    def _chains(self) -> Groups:
        grouped: Groups = defaultdict(dict)
        for hops in range(1, MAX_HOPS + 1):
            for chain in chains(self.sources.facts, hops):
                part = self.part(chain)
                if part is not None:
                    grouped[part, hops].setdefault(run_of(chain), []).append(chain)
        return grouped

    def weight(self, part: str, run: Run) -> float:
        """How often the split asks by `run`, against other runs of as many facts: the square root
        of its number of chains, so that no relation fills a set; 1 where it has none."""
        return max(1, len(self._chains[part, len(run)].get(run, ()))) ** 0.5

    def drawn(self, part: str, hops: int, n: int, seed: int) -> Iterator[tuple[Chain, str]]:
        """At most `n` distinct chains of the split with their questions.

        A run of relations comes as often as its `weight` says, and no thing fills the set (SHARE).
        A question has one answer, also by all that the book says, and does not say it itself."""
        rng = generator(seed, "english", part, hops)
        turns: list[tuple[float, Chain]] = []
        for run, group in self._chains[part, hops].items():
            places = rng.permutation(len(group)) + rng.random(len(group))
            places /= self.weight(part, run)
            turns += zip(places.tolist(), group, strict=True)

        texts, looked_up = set[str](), Counter[str]()
        most = max(1, SHARE * n)
        for _, chain in sorted(turns, key=itemgetter(0)):
            if len(texts) >= n:
                return
            text = write(chain, int(rng.integers(1 << 30)))
            things = {hop.fact.subject for hop in chain}
            common = any(looked_up[thing] >= most for thing in things)
            if text in texts or common:
                continue
            answer = chain[-1].end
            if _only_answer(self._wide, text) == answer and not self._told(text, answer):
                texts.add(text)
                looked_up.update(things)
                yield chain, text

    def _told(self, text: str, answer: str) -> bool:
        """Whether the question says its own answer: Kuwait City is the capital of Kuwait."""
        words = f" {normalise(text)} "
        return any(f" {normalise(name)} " in words for name in self.answers(answer))

    def questions(self, part: str, hops: int, n: int, seed: int) -> list[WorldQuestion]:
        """Questions of a split: see `drawn`."""
        made = []
        for chain, text in self.drawn(part, hops, n, seed):
            facts = [hop.fact for hop in chain]
            triples = tuple((fact.subject, fact.relation, fact.object) for fact in facts)
            form = BACKWARDS if chain[-1].back else FORWARDS
            alone = form if hops == 1 else ""
            made.append(WorldQuestion(text, chain[-1].end, hops, triples, alone))
        return made

    @cached_property
    def owned(self) -> set[Fact]:
        """Facts whose subject a question can name by the object, which no other subject has."""
        steps = [chain[0] for chain in chains(self.sources.facts, 1)]
        return {step.fact for step in steps if step.back}

    def leads(self, target: str) -> list[Fact]:
        """Facts of the training split about `target`, as subject or object: what a question can end
        with."""
        return [fact for fact in self._about[target] if self.split(fact.subject) == TRAIN]

    def targets(self) -> list[str]:
        """What a question of the training split can have as its answer, in the order of the
        facts."""
        names: list[str] = []
        for fact in self.sources.facts:
            if self.split(fact.subject) == TRAIN:
                names.append(fact.object)
                if fact.relation == "capital":  # a question can lead back to the place that has it
                    names.append(fact.subject)
        return list(dict.fromkeys(names))


def run_of(chain: Chain) -> Run:
    """The run of a chain."""
    return tuple(hop.key for hop in chain)


def _only_answer(reader: Reader, question: str) -> str | None:
    return _only(reading.answer for reading in reader.readings(question))


def _only(names: Iterable[str | None]) -> str | None:
    """The one name that comes; None where several do, or none."""
    others = set(names)
    return others.pop() if len(others) == 1 else None
