"""A mini-wikipedia from a seed: entities, facts, documents, multi-hop questions with gold chains,
each with one answer. Worlds of different seeds share names but draw their facts independently. The
oracle (`answer`, `is_junk`) is for metrics and for making data, never for a reward."""

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
    """`text` is the path `entity relation ... ?` (inner relation first); `chain` the facts that
    lead to `answer`."""

    text: str
    answer: str
    hops: int
    chain: tuple[Fact, ...]


class World:
    """One world. `types`: name → type; `facts`: subject → relation → object; `entities`: names, in
    document order."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = generator(seed, "world")
        self.entities: list[str] = [NAMES[i] for i in rng.permutation(len(NAMES))][
            : sum(COUNTS.values())
        ]
        kinds = [kind for kind, count in COUNTS.items() for _ in range(count)]
        self.types: dict[str, str] = dict(zip(self.entities, kinds, strict=True))
        self._members = {
            kind: [name for name in self.entities if self.types[name] == kind] for kind in COUNTS
        }
        self.facts: dict[str, dict[str, str]] = {
            name: self._draw_facts(name, rng) for name in self.entities
        }
        self._documents = [self._document(row, name, rng) for row, name in enumerate(self.entities)]

    def _draw_facts(self, name: str, rng: np.random.Generator) -> dict[str, str]:
        """Objects are uniform over the relation's type, distinct within one entity, never the
        entity itself."""
        facts: dict[str, str] = {}
        for relation, kind in SCHEMA[self.types[name]].items():
            free = [
                other
                for other in self._members[kind]
                if other != name and other not in facts.values()
            ]
            facts[relation] = free[int(rng.integers(len(free)))]
        return facts

    def _document(self, row: int, name: str, rng: np.random.Generator) -> Document:
        """The subject is repeated in every sentence: a look-up is then a two-token match (subject,
        relation)."""
        facts = list(self.facts[name].items())
        sentences = [f"{name} {ARTICLE} {self.types[name]} {STOP}"]
        sentences += [
            f"{name} {facts[i][0]} {facts[i][1]} {STOP}" for i in rng.permutation(len(facts))
        ]
        return Document(id=f"w{self.seed}-{row:03d}", contents=f'"{name}"\n{" ".join(sentences)}')

    def documents(self) -> list[Document]:
        """The corpus: one document an entity, 390 in all."""
        return list(self._documents)

    def targets(self) -> list[str]:
        """Entities that are the object of at least one fact, in document order: those a question
        can lead to."""
        objects = {target for facts in self.facts.values() for target in facts.values()}
        return [name for name in self.entities if name in objects]

    def follow(self, start: str, relations: list[str]) -> tuple[Fact, ...] | None:
        """The chain of facts from `start` along `relations`; None where one does not exist."""
        chain: list[Fact] = []
        for relation in relations:
            target = self.facts.get(start, {}).get(relation)
            if target is None:
                return None
            chain.append((start, relation, target))
            start = target
        return tuple(chain)

    def answer(self, question: str) -> str | None:
        """The oracle: the true answer of a question's text, None when it is malformed or leads
        nowhere."""
        words = question.split()
        if len(words) < 3 or words[-1] != ASK:
            return None
        chain = self.follow(words[0], words[1:-1])
        return chain[-1][2] if chain else None

    def hops(self, question: str) -> int:
        """Relations that a question's text names: its words without the entity and the question
        mark; at least 0."""
        return max(len([word for word in question.split() if word != ASK]) - 1, 0)

    def is_junk(self, question: str, target: str) -> bool:
        """True when the question's true answer is not `target`."""
        return self.answer(question) != target

    def paths(self, hops: int) -> list[tuple[str, list[str]]]:
        """Every (name, relations) of that many hops by the schema, in a fixed order; some may run
        in a circle."""
        found: list[tuple[str, str, list[str]]] = [
            (name, self.types[name], []) for name in self.entities
        ]
        for _ in range(hops):
            found = [
                (name, after, [*path, rel])
                for name, kind, path in found
                for rel, after in SCHEMA[kind].items()
            ]
        return [(name, path) for name, _, path in found]

    def questions(self, hops: int, n: int, seed: int) -> list[WorldQuestion]:
        """`n` distinct questions of `hops` 1..4, in an order drawn from `seed`; no entity occurs
        twice in a chain. The first n of a seed are the same for every n. InputError when the world
        has fewer than `n`."""
        candidates = self.paths(hops)
        found: list[WorldQuestion] = []
        for i in generator(seed, "questions", self.seed, hops).permutation(len(candidates)):
            if len(found) == n:
                break
            start, relations = candidates[i]
            chain = self.follow(start, relations)
            if chain is not None and len({chain[0][0], *(fact[2] for fact in chain)}) == hops + 1:
                found.append(
                    WorldQuestion(" ".join([start, *relations, ASK]), chain[-1][2], hops, chain)
                )
        hold(
            len(found) >= n,
            f"this world has {len(found)} questions of {hops} hops",
            n,
            "ask for fewer",
        )
        return found
