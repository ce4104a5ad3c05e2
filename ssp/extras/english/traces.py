"""How the English world is played by a script that knows its facts: traces of the solver, the
proposer and the referee's verifier for a warm start (docs/warmup.md has their format). Searches are
real ones; a trace whose search does not find the passage that it needs is left out. Tags are those
of the protocol `english`, which `search-r1` shares."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, starmap
from operator import itemgetter
from typing import Any

import numpy as np

from ssp.base.episode import Document
from ssp.base.errors import InvariantError
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
        self._seeking: list[tuple[str, str]] = []
        """Relations, each with a form of a search for what has a thing by it."""
        for name, rule in grammar()["relations"].items():
            for query in rule.get("seek", ()):
                self._seeking.append((name, query))

    def found(self, query: str) -> list[Document]:
        """What a search shows."""
        (rows,) = self._index.search([query], TOPK).rows
        return [self._documents[row] for row in rows if row >= 0]

    def traces(self) -> list[Trace]:
        """All traces, mixed. The proposer's targets and the verifier's questions are the proposer's
        traces' own."""
        proposals = list(self._proposals(PROPOSER_PER_HOP))
        rows = list(self._answers())
        rows += [trace for trace, _, _ in proposals]
        rows += self._checks(proposals)
        rows += [{**trace, "alone": True} for trace, _, _ in self._proposals(ALONE_PER_HOP)]
        return [rows[i] for i in generator(self._seed, "english", "traces").permutation(len(rows))]

    def solved(self, chain: Chain, question: str) -> Trace | None:
        """A solver's trace: one search a hop, then the answer. None where a search does not find
        the hop's passage."""
        trace = self._searched(chain, [_query(hop) for hop in chain])
        if trace is not None:
            trace |= {"role": "solver", "fields": {"question": question}}
            trace["turns"].append(f"<answer> {chain[-1].end} </answer>")
        return trace

    def _searched(self, chain: Sequence[Hop], queries: list[str]) -> Trace | None:
        """A trace of these searches, of no role yet and without an end. None where one does not
        find the passage of its hop."""
        trace: Trace = {"role": "", "fields": {}, "turns": [], "results": []}
        for hop, query in zip(chain, queries, strict=True):
            documents = self.found(query)
            if hop.fact.passage not in {document.id for document in documents}:
                return None
            trace["turns"].append(f"<search> {query} </search>")
            trace["results"].append(_rows(documents))
        return trace

    def _answers(self) -> Iterator[Trace]:
        for hops, n in SOLVER_PER_HOP.items():
            drawn = self._world.drawn(TRAIN, hops, 4 * n, self._seed)
            yield from islice(filter(None, starmap(self.solved, drawn)), n)

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
            for _, (trace, chain, text) in sorted(turns, key=itemgetter(0))[:n]:
                like: list[str] = []
                for _, ends, other in begun[chain[0].key]:
                    if _far(ends, other, chain[-1].end):
                        like.append(other)
                if like:
                    trace["fields"]["examples"] = like[rng.integers(len(like))]
                    yield trace, chain, text

    def proposed(self, target: str, hops: int, rng: np.random.Generator) -> Iterator[Proposal]:
        """Proposer's traces for `target`, one for each relation that its question can begin with,
        in `hops` facts and as many searches: the first is for the target, or where nothing found
        says that it is something of another for what leads to it, each next for what leads to the
        thing just found."""
        ahead = {hop.fact.passage: hop for hop in self._ends(target)}
        saying = [document.id for document in self.found(target) if document.id in ahead]
        last = ahead[saying[0]] if saying else None
        ways: list[tuple[Chain, list[str]]] = []
        if last is None or last.back:
            ways = self._ways(target, hops)
        else:
            for before, queries in self._ways(last.start, hops - 1):
                ways.append(((*before, last), [target, *queries]))

        tried, done = Counter[Any](), set[Any]()
        for i in rng.permutation(len(ways)):
            chain, queries = ways[i]
            text = write(chain, int(rng.integers(1 << 30)))
            key = chain[0].key
            tried[key] += 1
            if key in done or tried[key] > TRIES or self._world.answer(text) != target:
                continue
            told = normalise(target) in normalise(text)
            trace = None if told else self._searched(chain[::-1], queries)
            if trace is not None:
                done.add(key)
                fields = {"target": target, "searches": str(hops)}
                trace |= {"role": "proposer", "fields": fields}
                trace["turns"].append(f"<question> {text} </question>")
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
        leads = self._world.leads(place)
        for fact in leads if hops == 1 else ():
            if fact.subject == place and fact in self._world.owned:
                ways.append(((Hop(fact, True),), [_query(Hop(fact))]))
        adjective = self._world.sources.adjectives.get(place, place)
        for relation, form in self._seeking:
            facts = [one for one in leads if one.relation == relation and one.object == place]
            query = form.format(x=place, d=adjective)
            shown = {document.id for document in self.found(query)} if facts else set()
            for fact in facts:
                if fact.passage in shown:
                    for chain, queries in self._ways(fact.subject, hops - 1):
                        ways.append(((*chain, Hop(fact)), [query, *queries]))
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
            own: dict[str, dict[str, str]] = {}
            for rows in trace["results"]:
                own |= {row["id"]: row for row in rows}
            quotes = [f'<quote id="{hop.fact.passage}">{hop.fact.quote}</quote>' for hop in chain]
            turn = f"{' '.join(quotes)} <answer> {chain[-1].end} </answer>"
            if number % UNSETTLED == 0:
                text = self._other(chain, proposals, number)
                turn = "<answer> none </answer>"
            noise = [self._documents[i] for i in rng.integers(len(self._documents), size=NOISE)]
            shown = [*own.values(), *_rows(noise)]
            documents = [shown[i] for i in rng.permutation(len(shown))]
            fields = {"question": text}
            yield {"role": "quoting", "fields": fields, "documents": documents, "turns": [turn]}

    def _other(self, chain: Chain, proposals: Sequence[Proposal], number: int) -> str:
        """A question of another proposal that asks for the same relation of something else."""
        fact = chain[-1].fact
        for _, other, text in [*proposals[number + 1 :], *proposals[:number]]:
            end = other[-1].fact
            if end.relation == fact.relation and end.subject != fact.subject:
                return text
        raise InvariantError(f"no other proposal asks for {fact.relation}")


def _query(hop: Hop) -> str:
    return grammar()["relations"][hop.fact.relation]["query"].format(x=hop.start)


def _rows(documents: Sequence[Document]) -> list[dict[str, str]]:
    return [{"id": document.id, "contents": document.contents} for document in documents]


def _far(chain: Chain, text: str, target: str) -> bool:
    """Whether a question tells nothing of `target`."""
    ends = (chain[-1].end, chain[0].start)
    return target not in ends and normalise(target) not in normalise(text)
