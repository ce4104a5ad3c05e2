"""A mini-wikipedia from a seed: entities, facts, documents, and multi-hop questions with a gold
chain and one answer each. Worlds of different seeds share names, and draw their facts
independently. The oracle (`answer`, `is_junk`) serves metrics and data, never a reward."""

from dataclasses import dataclass

import numpy as np

from ssp.base.episode import Document
from ssp.base.errors import hold
from ssp.base.seeds import generator
from ssp.game.world.vocabulary import ARTICLE, ASK, COUNTS, NAMES, SCHEMA, STOP

Fact = tuple[str, str, str]
"""(subject, relation, object)"""

MAX_HOPS = 4


@dataclass(frozen=True)
class WorldQuestion:
    """`text`: the path `entity relation ... ?`, the inner relation first. `chain`: the facts that
    lead to `answer`. `form`: the class of a question beside its hops, "" for none."""

    text: str
    answer: str
    hops: int
    chain: tuple[Fact, ...]
    form: str = ""


class World:
    """One world. `types`: name → type; `facts`: subject → relation → object; `entities`: names, in
    document order."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = generator(seed, "world")
        names = [NAMES[i] for i in rng.permutation(len(NAMES))]
        self.entities = names[: sum(COUNTS.values())]
        self.types: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        begin = 0
        for kind, count in COUNTS.items():
            members = self.entities[begin : begin + count]
            self._members[kind] = members
            self.types |= dict.fromkeys(members, kind)
            begin += count
        self.facts = {name: self._draw_facts(name, rng) for name in self.entities}
        self._documents = [self._document(row, name, rng) for row, name in enumerate(self.entities)]

    def _draw_facts(self, name: str, rng: np.random.Generator) -> dict[str, str]:
        """Relation → object. Objects are uniform over the relation's type, distinct within one
        entity, and never the entity itself."""
        facts: dict[str, str] = {}
        for relation, kind in SCHEMA[self.types[name]].items():
            taken = {name, *facts.values()}
            free = [other for other in self._members[kind] if other not in taken]
            facts[relation] = free[int(rng.integers(len(free)))]
        return facts

    def _document(self, row: int, name: str, rng: np.random.Generator) -> Document:
        """The document of an entity. Every sentence repeats the subject, so that a look-up is a
        match of two tokens (subject, relation)."""
        facts = list(self.facts[name].items())
        sentences = [f"{name} {ARTICLE} {self.types[name]} {STOP}"]
        for at in rng.permutation(len(facts)):
            relation, target = facts[at]
            sentences.append(f"{name} {relation} {target} {STOP}")
        return Document(f"w{self.seed}-{row:03d}", f'"{name}"\n{" ".join(sentences)}')

    def documents(self) -> list[Document]:
        """The corpus: a document for each of the 390 entities."""
        return list(self._documents)

    def targets(self) -> list[str]:
        """Entities that a question can lead to, in document order: the objects of facts."""
        objects: set[str] = set()
        for facts in self.facts.values():
            objects.update(facts.values())
        return [name for name in self.entities if name in objects]

    def follow(self, start: str, relations: list[str]) -> tuple[Fact, ...] | None:
        """The chain of facts from `start` along `relations`; None where one does not exist."""
        chain = []
        for relation in relations:
            target = self.facts.get(start, {}).get(relation)
            if target is None:
                return None
            chain.append((start, relation, target))
            start = target
        return tuple(chain)

    def answer(self, question: str) -> str | None:
        """The true answer of a question's text; None when it is malformed or leads nowhere."""
        words = question.split()
        if len(words) < 3 or words[-1] != ASK:
            return None
        chain = self.follow(words[0], words[1:-1])
        return chain[-1][2] if chain else None

    def hops(self, question: str) -> int:
        """The number of relations in a question's text: its words without the entity and question
        marks."""
        words = [word for word in question.split() if word != ASK]
        return max(len(words) - 1, 0)

    def is_junk(self, question: str, target: str) -> bool:
        """Whether the question's true answer is not `target`."""
        return self.answer(question) != target

    def truths(self, question: str) -> list[str] | None:
        """The one right answer, or none; None for a text without a relation."""
        if self.hops(question) == 0:
            return None
        answer = self.answer(question)
        return [] if answer is None else [answer]

    def classes(self, question: str) -> list[str]:
        """The number of relations, as `2hop`."""
        hops = self.hops(question)
        return [f"{hops}hop"] if hops else []

    def paths(self, hops: int) -> list[tuple[str, list[str]]]:
        """All (name, relations) of that many hops by the schema, in a fixed order; some run in a
        circle."""
        paths: list[tuple[str, str, list[str]]] = []
        for name in self.entities:
            paths.append((name, self.types[name], []))
        for _ in range(hops):
            longer = []
            for name, kind, relations in paths:
                for relation, target_kind in SCHEMA[kind].items():
                    longer.append((name, target_kind, [*relations, relation]))
            paths = longer
        return [(name, relations) for name, _, relations in paths]

    def questions(self, hops: int, n: int, seed: int) -> list[WorldQuestion]:
        """`n` distinct questions of `hops` 1..4, in an order drawn from `seed`. No entity occurs
        twice in a chain. The first n of a seed are the same for every n. InputError when the world
        has fewer than `n`."""
        candidates = self.paths(hops)
        order = generator(seed, "questions", self.seed, hops).permutation(len(candidates))
        questions: list[WorldQuestion] = []
        for at in order:
            if len(questions) == n:
                break
            start, relations = candidates[at]
            chain = self.follow(start, relations)
            if chain is None:
                continue
            targets = [target for _, _, target in chain]
            if len({start, *targets}) == hops + 1:
                text = " ".join([start, *relations, ASK])
                questions.append(WorldQuestion(text, targets[-1], hops, chain))
        rule = f"this world has {len(questions)} questions of {hops} hops"
        hold(len(questions) >= n, rule, n, "ask for fewer")
        return questions
