"""What the embedded policy learns from: traces of both roles and of the verifier, deliberately mediocre.

A trace has the form that play has in a generated world (same prompts, same observations of the real search), and only
what a policy writes is marked as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ssp.base.episode import PROPOSER, SOLVER, Document
from ssp.base.seeds import derive, generator
from ssp.game import protocols
from ssp.game.world import Fact, World
from ssp.game.world.vocabulary import ASK, NONE, RELATIONS
from ssp.search import bm25

T = TypeVar("T")

VERIFIER = "verifier"
TOPK = 3
NOISE = 2
STOP_EARLY = 0.42
"""Chance that a solver trace answers after a hop that is not the last: 3-hop play starts near 0.1, room to learn."""
WRONG_RELATION = 0.05
BAD_QUESTION = 0.10
"""Share of proposer traces whose question is wrong: another relation, another entity, or the answer in it."""
CORRUPTED = 0.35
"""Share of verifier questions that the documents do not answer; the right output is `none`."""
EASY_CORRUPTED = 0.15


@dataclass
class Trace:
    """`pieces`: text and whether a policy wrote it (and is trained on it), in order. `kind`: role and hops."""

    kind: str
    pieces: list[tuple[str, bool]] = field(default_factory=list)

    def add(self, text: str, wrote: bool = True) -> None:
        """Add text that the policy wrote, or the environment."""
        self.pieces.append((text, wrote))


class TraceMaker:
    """Makes traces in one world; every draw comes from `rng`."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng = world, rng
        self.protocol = protocols.get("mini")
        self._documents = world.documents()
        index = bm25.build(document.contents for document in self._documents)
        self.found = {
            name: [self._documents[row] for row, _ in hits]
            for name, hits in zip(world.entities, index.search(world.entities, TOPK).lists(), strict=True)
        }
        self._paths = {hops: world.paths(hops) for hops in (1, 2, 3)}
        self._targets = [name for name in world.targets() if self._mentions(name)]

    def solver(self, hops: int) -> Trace:
        """A question and its search, fact by fact; it often answers too early and sometimes reads a wrong relation."""
        start, relations = self._pick(self._paths[hops])
        trace = Trace(f"solver{hops}")
        trace.add(self.protocol.render(SOLVER, {"question": " ".join([start, *relations, ASK])}), wrote=False)
        entity = start
        for hop, relation in enumerate(relations):
            facts = self.world.facts[entity]
            if relation not in facts:
                break  # an earlier wrong relation led to an entity of another type: answer with what is there
            self._search(trace, entity)
            if self.rng.random() < WRONG_RELATION:
                relation = self._pick([other for other in facts if other != relation])
            trace.add(f"<think> {entity} {relation} {facts[relation]} </think>")
            entity = facts[relation]
            if hop + 1 < hops and self.rng.random() < STOP_EARLY:
                break
        trace.add(f"<answer> {entity} </answer>")
        return trace

    def proposer(self, hops: int) -> Trace:
        """From the target backwards over documents that mention it, then the question; one in ten is wrong."""
        chain = self._backwards(hops)
        target, start = chain[0][2], chain[-1][0]
        trace = Trace(f"proposer{len(chain)}")
        trace.add(self.protocol.render(PROPOSER, {"target": target}), wrote=False)
        for subject, relation, entity in chain:
            self._search(trace, entity)
            trace.add(f"<think> {subject} {relation} {entity} </think>")
        relations = [relation for _, relation, _ in reversed(chain)]
        if self.rng.random() < BAD_QUESTION:
            way = int(self.rng.integers(3))
            if way == 0:
                place = int(self.rng.integers(len(relations)))
                relations[place] = self._pick([relation for relation in RELATIONS if relation != relations[place]])
            else:
                start = self._pick(self.world.entities) if way == 1 else target
        trace.add(f"<question> {' '.join([start, *relations, ASK])} </question>")
        return trace

    def verifier(self, hops: int) -> Trace:
        """The proposer's documents with noise, and its question, true or corrupted."""
        chain = self._backwards(hops)
        documents = self._materials(chain, int(self.rng.integers(0, NOISE + 2)))
        words = [chain[-1][0], *(relation for _, relation, _ in reversed(chain))]
        return self._examine(f"verifier{len(chain)}", documents, [words], CORRUPTED)

    def block(self, questions: int) -> Trace:
        """One set of documents and many questions on it: many look-ups for the price of one reading."""
        documents = self._materials(self._backwards(int(self.rng.integers(1, 4))), int(self.rng.integers(0, NOISE + 1)))
        asked = [self._ask(documents, longest=3) for _ in range(questions)]
        return self._examine("block", documents, asked, CORRUPTED)

    def easy(self, questions: int) -> Trace:
        """The curriculum's form: one to three documents, one-hop questions on them."""
        rows = self.rng.permutation(len(self._documents))[: int(self.rng.integers(1, 4))]
        documents = [self._documents[row] for row in rows]
        asked = [self._ask(documents, longest=1) for _ in range(questions)]
        return self._examine("easy", documents, asked, EASY_CORRUPTED)

    def _search(self, trace: Trace, entity: str) -> None:
        trace.add(f"<search> {entity} </search>")
        trace.add(self.protocol.observation(self.found[entity]), wrote=False)

    def _mentions(self, entity: str) -> list[Fact]:
        # Facts with it as their object, in the documents that a search for it shows.
        shown = (document.title for document in self.found[entity] if document.title != entity)
        return [(name, rel, entity) for name in shown for rel, obj in self.world.facts[name].items() if obj == entity]

    def _backwards(self, hops: int) -> list[Fact]:
        """Facts from a random target backwards, last fact first; shorter than `hops` when nothing mentions one."""
        chain: list[Fact] = []
        entity = self._pick(self._targets)
        seen = {entity}
        while len(chain) < hops:
            facts = [fact for fact in self._mentions(entity) if fact[0] not in seen]
            onward = [fact for fact in facts if self._mentions(fact[0])]
            if not facts:
                break
            chain.append(self._pick(onward if onward and len(chain) + 1 < hops else facts))
            entity = chain[-1][0]
            seen.add(entity)
        return chain

    def _materials(self, chain: Sequence[Fact], noise: int) -> list[Document]:
        """The documents of the searches along `chain`, once each, and `noise` others, shuffled as the referee does."""
        arrived = [document for _, _, entity in chain for document in self.found[entity]]
        unique = list({document.id: document for document in arrived}.values())
        others = (self._documents[i] for i in self.rng.permutation(len(self._documents)))
        seen = {document.id for document in unique}
        shown = unique + [document for document in others if document.id not in seen][:noise]
        return [shown[i] for i in self.rng.permutation(len(shown))]

    def _ask(self, documents: Sequence[Document], longest: int) -> list[str]:
        """Words of a question that `documents` answer, of up to `longest` hops, without its question mark."""
        titles = {document.title for document in documents}
        entity = self._pick([document.title for document in documents])
        words = [entity]
        while len(words) <= longest and entity in titles:
            facts = self.world.facts[entity]
            onward = [relation for relation, target in facts.items() if target in titles]
            relation = self._pick(onward) if onward and len(words) < longest else self._pick(list(facts))
            words.append(relation)
            entity = facts[relation]
        return words

    def _examine(self, kind: str, documents: Sequence[Document], asked: list[list[str]], corrupted: float) -> Trace:
        """A trace that reads `documents` and answers each question from them alone, fact by fact, or says `none`."""
        trace = Trace(kind)
        titles = {document.title for document in documents}
        for place, words in enumerate(asked):
            if self.rng.random() < corrupted:
                words = next(changed for changed in self._changes(words) if self._follow(changed, titles)[1] == NONE)
            question = " ".join([*words, ASK])
            prompt = {"documents": self.protocol.bodies(documents)} if place == 0 else {}
            role = VERIFIER if place == 0 else SOLVER
            trace.add(self.protocol.render(role, {**prompt, "question": question}), wrote=False)
            facts, answer = self._follow(words, titles)
            thoughts = [f"<think> {s} {r} {o} </think>" for s, r, o in facts]
            trace.add(" ".join([*thoughts, f"<answer> {answer} </answer>"]))
        return trace

    def _follow(self, words: list[str], titles: set[str]) -> tuple[list[Fact], str]:
        """The facts that documents called `titles` hold along a question, and the answer or `none`."""
        entity = words[0]
        facts: list[Fact] = []
        for relation in words[1:]:
            target = self.world.facts[entity].get(relation) if entity in titles else None
            if target is None:
                return facts, NONE
            facts.append((entity, relation, target))
            entity = target
        return facts, entity

    def _changes(self, words: list[str]) -> Iterator[list[str]]:
        """Questions near `words`."""
        while True:
            place = int(self.rng.integers(len(words) + 1))
            other = self._pick(self.world.entities) if place == 0 else self._pick(RELATIONS)
            yield [*words[:place], other, *words[place + 1 :]]

    def _pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]


MIX = {
    "solver": (0.18, 0.20, 0.18),
    "proposer": (0.15, 0.13, 0.06),
    "verifier": (0.04, 0.04, 0.02),
}
"""Shares of traces of 1, 2 and 3 hops."""
BLOCK_SHARE = 0.18
QUESTIONS_A_BLOCK = 5
WORLDS = 4


def makers(seed: int) -> list[TraceMaker]:
    """One maker for each world of the lessons; no run plays in them."""
    worlds = (derive(seed, "coldstart", "world", i) for i in range(WORLDS))
    return [TraceMaker(World(world), generator(world, "traces")) for world in worlds]


def curriculum(makers: Sequence[TraceMaker], n: int) -> list[Trace]:
    """`n` easy traces."""
    return [makers[i % len(makers)].easy(QUESTIONS_A_BLOCK) for i in range(n)]


def mixture(makers: Sequence[TraceMaker], n: int) -> list[Trace]:
    """`n` traces of the main mix, in the shares of `MIX` and `BLOCK_SHARE` to the nearest trace."""
    blocks = round(n * BLOCK_SHARE)
    made = [makers[i % len(makers)].block(QUESTIONS_A_BLOCK) for i in range(blocks)]
    for role, shares in MIX.items():
        for hops, share in enumerate(shares, 1):
            made += [getattr(makers[i % len(makers)], role)(hops) for i in range(round((n - blocks) * share))]
    return made
