"""How the English world is played by a script that knows its facts: traces of the solver, the
proposer and the referee's verifier for a warm start (docs/warmup.md has their format). Searches are
real ones; a trace whose search does not find the passage that it needs is left out. Tags are those
of the protocol `english`, which `search-r1` shares."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ssp.base.episode import Document
from ssp.base.seeds import generator
from ssp.base.text import normalise
from ssp.extras.english.grammar import Chain, Hop, write
from ssp.extras.english.sources import grammar
from ssp.extras.english.world import TRAIN, English
from ssp.search.bm25 import build

TOPK = 3
"""Documents that a search of a trace shows."""
SOLVER_PER_HOP = {1: 60, 2: 160, 3: 80}
PROPOSER_PER_HOP = {1: 60, 2: 180, 3: 90}
"""Traces of each kind at most, by the hops of their questions. The verifier has one for each of the
proposer's."""
ALONE_PER_HOP = {1: 120, 2: 340, 3: 325}
"""The proposer's of these are for a policy that plays no other role."""
AIMS_PER_HOP = {1: 300, 2: 700, 3: 330}
"""Rows of the game's targets, drawn like the proposer's traces."""
UNSETTLED = 5
"""Of so many verifier's traces one asks what the documents do not settle."""
NOISE = 2
TRIES = 6
"""Questions by one relation that are looked at for a target."""

Trace = dict[str, Any]
Proposal = tuple[Trace, Chain, str]
"""A proposer's trace, and the chain and the text of its question."""


class Script:
    """Plays `world` with a search engine of its own corpus. `seed`: of all draws."""

    def __init__(self, world: English, seed: int = 0) -> None:
        self._world, self._seed = world, seed
        self._documents = world.documents()
        self._index = build(document.contents for document in self._documents)
        relations = grammar()["relations"].items()
        self._seeking = [
            (name, query) for name, rule in relations for query in rule.get("seek", ())
        ]

    def found(self, query: str) -> list[Document]:
        """What a search shows."""
        (rows,) = self._index.search([query], TOPK).rows
        return [self._documents[row] for row in rows if row >= 0]

    def traces(self) -> list[Trace]:
        """All traces, mixed. The proposer's targets and the verifier's questions are the proposer's
        traces' own."""
        proposals = list(self._proposals(PROPOSER_PER_HOP))
        kinds = [
            list(self._answers()),
            [trace for trace, _, _ in proposals],
            list(self._checks(proposals)),
        ]
        kinds.append([{**trace, "alone": True} for trace, _, _ in self._proposals(ALONE_PER_HOP)])
        rows = [trace for kind in kinds for trace in kind]
        return [rows[i] for i in generator(self._seed, "english", "traces").permutation(len(rows))]

    def solved(self, chain: Chain, question: str) -> Trace | None:
        """A solver's trace: one search a hop, then the answer. None where a search does not find
        the hop's passage."""
        queries = [_query(hop) for hop in chain]
        return self._trace(
            "solver", {"question": question}, chain, queries, "answer", chain[-1].end
        )

    def _trace(
        self,
        role: str,
        fields: dict[str, str],
        chain: Sequence[Hop],
        queries: list[str],
        tag: str,
        result: str,
    ) -> Trace | None:
        """Searches, then the result between its tags. None where a search does not find the passage
        of its hop."""
        results = [self.found(query) for query in queries]
        shown = [{document.id for document in documents} for documents in results]
        if any(hop.fact.passage not in ids for hop, ids in zip(chain, shown, strict=True)):
            return None
        turns = [
            *(f"<search> {query} </search>" for query in queries),
            f"<{tag}> {result} </{tag}>",
        ]
        return {
            "role": role,
            "fields": fields,
            "turns": turns,
            "results": [_rows(found) for found in results],
        }

    def _answers(self) -> Iterator[Trace]:
        for hops, n in SOLVER_PER_HOP.items():
            made = (
                self.solved(*drawn) for drawn in self._world.drawn(TRAIN, hops, 4 * n, self._seed)
            )
            yield from islice((trace for trace in made if trace is not None), n)

    def _proposals(self, per_hop: Mapping[int, int]) -> Iterator[Proposal]:
        """Proposer's traces with the chain and the text of their questions. Each relation begins as
        many while it has some, one that leads to a place from outside of it (a person, a city, a
        partner) twice as many as its own. Each is shown another question that begins so."""
        rng = generator(self._seed, "english", "proposer")
        for hops, n in per_hop.items():
            begun = defaultdict[Any, list[Proposal]](list)
            for target in self._world.targets():
                for proposal in self.proposed(target, hops, rng):
                    begun[proposal[1][0].key].append(proposal)
            turns: list[tuple[float, Proposal]] = []
            for (_, back), group in begun.items():
                places = (rng.permutation(len(group)) + rng.random(len(group))) * (2 if back else 1)
                turns += zip(places.tolist(), group, strict=True)
            for _, (trace, chain, text) in sorted(turns, key=lambda pair: pair[0])[:n]:
                like = [
                    other
                    for _, ends, other in begun[chain[0].key]
                    if _far(ends, other, chain[-1].end)
                ]
                if like:
                    trace["fields"]["examples"] = like[rng.integers(len(like))]
                    yield trace, chain, text

    def proposed(self, target: str, hops: int, rng: np.random.Generator) -> Iterator[Proposal]:
        """Proposer's traces for `target`, one for each relation that its question can begin with,
        in `hops` facts and as many searches: the first is for the target, or where nothing found
        says that it is something of another for what leads to it, each next for what leads to the
        thing just found."""
        ahead = {hop.fact.passage: hop for hop in self._ends(target)}
        last = next(
            (ahead[document.id] for document in self.found(target) if document.id in ahead), None
        )
        if last is None or last.back:
            ways = self._ways(target, hops)
        else:
            ways = [
                ((*before, last), [target, *queries])
                for before, queries in self._ways(last.start, hops - 1)
            ]
        tried, done = Counter[Any](), set[Any]()
        for i in rng.permutation(len(ways)):
            chain, queries = ways[i]
            text = write(chain, int(rng.integers(1 << 30)))
            tried[key := chain[0].key] += 1
            if key in done or tried[key] > TRIES or self._world.answer(text) != target:
                continue
            if normalise(target) in normalise(text):
                continue
            fields = {"target": target, "searches": str(hops)}
            trace = self._trace("proposer", fields, chain[::-1], queries, "question", text)
            if trace is not None:
                done.add(key)
                yield trace, chain, text

    def aims(self) -> Iterator[dict[str, object]]:
        """What the proposer is asked for, in rows as SSP has them: of proposals that the script
        finds."""
        names = {
            "target": "ground_truth",
            "searches": "search_turns",
            "examples": "sys_question_example",
        }
        for trace, _, _ in self._proposals(AIMS_PER_HOP):
            yield {names[field]: text for field, text in trace["fields"].items()}

    def _ways(self, place: str, hops: int) -> list[tuple[Chain, list[str]]]:
        """Chains of `hops` facts that lead to `place`, with the searches that find them, the last
        fact's first."""
        if hops == 0:
            return [((), [])]
        ways: list[tuple[Chain, list[str]]] = []
        if hops == 1:
            about = [
                fact
                for fact in self._world.leads(place)
                if fact.subject == place and fact in self._world.owned
            ]
            ways += [((Hop(fact, True),), [_query(Hop(fact))]) for fact in about]
        for relation, form in self._seeking:
            facts = [
                fact
                for fact in self._world.leads(place)
                if fact.relation == relation and fact.object == place
            ]
            query = form.format(x=place, d=self._world.sources.adjectives.get(place, place))
            found = {document.id for document in self.found(query)} if facts else set()
            for fact in facts:
                if fact.passage in found:
                    more = self._ways(fact.subject, hops - 1)
                    ways += [((*chain, Hop(fact)), [query, *queries]) for chain, queries in more]
        return ways

    def _ends(self, target: str) -> list[Hop]:
        """Last steps of questions that have `target` as their answer."""
        leads = self._world.leads(target)
        facts = [fact for fact in leads if fact.object == target or fact in self._world.owned]
        return [Hop(fact, back=fact.subject == target) for fact in facts]

    def _checks(self, proposals: Sequence[Proposal]) -> Iterator[Trace]:
        """The verifier's traces: the proposer's documents with others, quotes and the answer; or a
        question that these documents do not settle."""
        rng = generator(self._seed, "english", "verifier")
        for number, (trace, chain, text) in enumerate(proposals):
            own = {row["id"]: row for found in trace["results"] for row in found}
            settled = number % UNSETTLED != 0
            if not settled:
                text = self._other(chain, proposals, number)
            noise = [self._documents[i] for i in rng.integers(len(self._documents), size=NOISE)]
            shown = [*own.values(), *_rows(noise)]
            quotes = [f'<quote id="{hop.fact.passage}">{hop.fact.quote}</quote>' for hop in chain]
            turn = (
                f"{' '.join(quotes)} <answer> {chain[-1].end} </answer>"
                if settled
                else "<answer> none </answer>"
            )
            documents = [shown[i] for i in rng.permutation(len(shown))]
            yield {
                "role": "quoting",
                "fields": {"question": text},
                "documents": documents,
                "turns": [turn],
            }

    def _other(self, chain: Chain, proposals: Sequence[Proposal], number: int) -> str:
        """A question of another proposal that asks for the same relation of something else."""
        fact, others = chain[-1].fact, [*proposals[number + 1 :], *proposals[:number]]
        alike = ((other[-1].fact, text) for _, other, text in others)
        return next(
            text
            for end, text in alike
            if end.relation == fact.relation and end.subject != fact.subject
        )


def _query(hop: Hop) -> str:
    return grammar()["relations"][hop.fact.relation]["query"].format(x=hop.start)


def _rows(documents: Sequence[Document]) -> list[dict[str, str]]:
    return [{"id": document.id, "contents": document.contents} for document in documents]


def _far(chain: Chain, text: str, target: str) -> bool:
    """Whether a question tells nothing of `target`."""
    return target not in (chain[-1].end, chain[0].start) and normalise(target) not in normalise(
        text
    )
