"""How the English world is played by a script that knows its facts: traces of the solver, the
proposer and the referee's verifier for a warm start (docs/warmup.md has their format). Searches are
real ones; a trace whose search does not find the passage that it needs is left out. Tags are those
of the protocol `english`, which `search-r1` shares."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ssp.base.episode import Document
from ssp.base.errors import InvariantError
from ssp.base.seeds import generator
from ssp.base.text import normalise
from ssp.extras.english.facts import relations
from ssp.extras.english.grammar import Chain, Hop, write
from ssp.extras.english.world import TRAIN, English, Run, run_of
from ssp.search.bm25 import build

SEED = 0
"""Of all draws."""
TOPK = 3
"""Documents that a search of a trace shows."""
SOLVER_PER_HOP = {1: 100, 2: 100, 3: 100}
PROPOSER_PER_HOP = {1: 110, 2: 110, 3: 110}
"""Traces of each kind at most, by the hops of their questions, as often as these are evaluated. The
verifier has one for each of the proposer's."""
ALONE_PER_HOP = {1: 260, 2: 260, 3: 260}
"""Traces of the proposer for a policy that plays no other role."""
AIMS_PER_HOP = {1: 500, 2: 500, 3: 500}
"""Rows of the game's targets, drawn like the proposer's traces."""
UNSETTLED = 5
"""One in so many of the verifier's traces asks what the documents do not settle."""
NOISE = 2
"""Documents that the verifier is shown besides."""
TRIES = 6
"""Questions of one run of relations that are looked at for a target."""
DRAWN = 500
"""Questions of each number of hops of which it is counted how they begin."""
AGAIN = 4
"""How often a proposal comes at most: few lead over three facts ahead."""

_normalised = cache(normalise)
"""Texts and targets are compared many times each."""

Trace = dict[str, Any]
Way = tuple[Chain, list[str]]
"""A chain, and the searches that find its facts, the last fact's first."""


class Proposal(NamedTuple):
    """A proposer's trace, and the chain and the text of its question."""

    trace: Trace
    chain: Chain
    text: str


class Script:
    """Plays `world` with a search engine of its own corpus."""

    def __init__(self, world: English) -> None:
        self._world = world
        self._documents = world.documents()
        self._index = build(document.contents for document in self._documents)
        self._shown: dict[str, list[Document]] = {}
        """A query → what its search shows; most come again."""
        self._seeking: list[tuple[str, str]] = []
        """Relations, each with a form of a search for what has a thing by it."""
        for name, rule in relations().items():
            for query in rule.get("seek", ()):
                self._seeking.append((name, query))

    def search(self, query: str) -> list[Document]:
        """What a search shows."""
        if query not in self._shown:
            (rows,) = self._index.search([query], TOPK).rows
            self._shown[query] = [self._documents[row] for row in rows if row >= 0]
        return self._shown[query]

    def traces(self) -> list[Trace]:
        """All traces, mixed. The proposer's targets and the verifier's questions are the proposer's
        traces' own."""
        proposals = list(self.proposals(PROPOSER_PER_HOP))
        rows: list[Trace] = []
        for hops, n in SOLVER_PER_HOP.items():
            drawn = self._world.drawn(TRAIN, hops, 4 * n, SEED)
            solved = (self.solved(chain, text) for chain, text in drawn)
            rows += islice(filter(None, solved), n)
        rows += [proposal.trace for proposal in proposals]
        rows += self._checks(proposals)
        for proposal in self.proposals(ALONE_PER_HOP):
            rows.append({**proposal.trace, "alone": True})
        order = generator(SEED, "english", "traces").permutation(len(rows))
        return [rows[i] for i in order]

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
            documents = self.search(query)
            if hop.fact.passage not in {document.id for document in documents}:
                return None
            trace["turns"].append(f"<search> {query} </search>")
            trace["results"].append(_rows(documents))
        return trace

    def proposals(self, per_hop: Mapping[int, int]) -> Iterator[Proposal]:
        """Proposer's traces, at most `per_hop` of each number of hops, which ask as the evaluations
        do: what is not asked is unlearned.

        As many begin with a fact that is followed back as in drawn questions, and a run of
        relations comes as often as its weight says (`English.weight`). Where too few are known
        they come again, AGAIN times in all. Each proposal is shown another question that begins
        as its own does."""
        rng = generator(SEED, "english", "proposer")
        for hops, n in per_hop.items():
            begun = defaultdict[Any, list[Proposal]](list)
            """Relation and direction of the first hop → the proposals that begin with it."""
            for target in self._world.targets():
                for proposal in self.proposed(target, hops, rng):
                    begun[proposal.chain[0].key].append(proposal)

            for back, share in self._directions(hops).items():
                known: list[Proposal] = []
                for (_, way), group in begun.items():
                    known += group if way == back else []
                ranked = self._ranked(known, rng)
                for proposal in (ranked * AGAIN)[: round(n * share)]:
                    target = proposal.chain[-1].end
                    others = begun[proposal.chain[0].key]
                    examples = [other.text for other in others if not _tells(other, target)]
                    if examples:
                        example = examples[rng.integers(len(examples))]
                        fields = {**proposal.trace["fields"], "examples": example}
                        yield proposal._replace(trace={**proposal.trace, "fields": fields})

    def _directions(self, hops: int) -> dict[bool, float]:
        """Whether a drawn question's first fact is followed back → the share of such questions."""
        drawn = self._world.drawn(TRAIN, hops, DRAWN, SEED)
        counts = Counter(chain[0].back for chain, _ in drawn)
        return {back: count / counts.total() for back, count in counts.items()}

    def _ranked(self, known: Sequence[Proposal], rng: np.random.Generator) -> list[Proposal]:
        """`known` in an order of which each beginning holds the runs of relations by their
        weights."""
        runs = defaultdict[Run, list[Proposal]](list)
        for proposal in known:
            runs[run_of(proposal.chain)].append(proposal)
        turns: list[tuple[float, Proposal]] = []
        for run, group in runs.items():
            places = rng.permutation(len(group)) + rng.random(len(group))
            places /= self._world.weight(TRAIN, run)
            turns += zip(places.tolist(), group, strict=True)
        return [proposal for _, proposal in sorted(turns, key=itemgetter(0))]

    def proposed(self, target: str, hops: int, rng: np.random.Generator) -> Iterator[Proposal]:
        """Proposer's traces for `target`, one for each run of relations that its question can have,
        in `hops` facts and as many searches.

        The first search is for the target, where it shows a fact that says the target of something
        else; otherwise it is for what leads to the target. Each next one is for what leads to the
        thing that the last one showed."""
        ways = self._ways_to(target, hops)
        tried, done = Counter[Any](), set[Any]()
        for i in rng.permutation(len(ways)):
            chain, queries = ways[i]
            text = write(chain, int(rng.integers(1 << 30)))
            key = run_of(chain)
            tried[key] += 1
            if key in done or tried[key] > TRIES:
                continue
            if self._world.answer(text) != target or _normalised(target) in _normalised(text):
                continue
            trace = self._searched(chain[::-1], queries)
            if trace is not None:
                done.add(key)
                fields = {"target": target, "searches": str(hops)}
                trace |= {"role": "proposer", "fields": fields}
                trace["turns"].append(f"<question> {text} </question>")
                yield Proposal(trace, chain, text)

    def aims(self) -> Iterator[dict[str, object]]:
        """What the proposer is asked for, in rows as SSP has them: of proposals that the script
        finds."""
        names = {
            "target": "ground_truth",
            "searches": "search_turns",
            "examples": "sys_question_example",
        }
        for proposal in self.proposals(AIMS_PER_HOP):
            fields = proposal.trace["fields"]
            yield {names[field]: text for field, text in fields.items()}

    def _ways_to(self, target: str, hops: int) -> list[Way]:
        """Ways to ask for `target`, as `proposed` says."""
        ends: dict[str, Hop] = {}
        """Passage → the last step of a question that has the target as its answer."""
        for fact in self._world.leads(target):
            if fact.object == target or fact in self._world.owned:
                ends[fact.passage] = Hop(fact, back=fact.subject == target)

        shown = [document.id for document in self.search(target) if document.id in ends]
        last = ends[shown[0]] if shown else None
        if last is None or last.back:
            return self._ways(target, hops)
        ways: list[Way] = []
        for before, queries in self._ways(last.start, hops - 1):
            ways.append(((*before, last), [target, *queries]))
        return ways

    def _ways(self, place: str, hops: int) -> list[Way]:
        """Ways of `hops` facts that lead to `place`."""
        if hops == 0:
            return [((), [])]
        ways: list[Way] = []
        leads = self._world.leads(place)
        if hops == 1:
            for fact in leads:
                if fact.subject == place and fact in self._world.owned:
                    ways.append(((Hop(fact, True),), [_query(Hop(fact))]))

        adjective = self._world.sources.adjectives.get(place, place)
        for relation, form in self._seeking:
            facts = [fact for fact in leads if fact.relation == relation and fact.object == place]
            if not facts:
                continue
            query = form.format(x=place, d=adjective)
            shown = {document.id for document in self.search(query)}
            for fact in facts:
                if fact.passage in shown:
                    for chain, queries in self._ways(fact.subject, hops - 1):
                        ways.append(((*chain, Hop(fact)), [query, *queries]))
        return ways

    def _checks(self, proposals: Sequence[Proposal]) -> Iterator[Trace]:
        """The verifier's traces: the proposer's documents with others, quotes and the answer; or a
        question that these documents do not settle."""
        rng = generator(SEED, "english", "verifier")
        for number, (trace, chain, text) in enumerate(proposals):
            shown: dict[str, dict[str, str]] = {}
            for rows in trace["results"]:
                shown |= {row["id"]: row for row in rows}
            noise = rng.integers(len(self._documents), size=NOISE)
            documents = [*shown.values(), *_rows([self._documents[i] for i in noise])]
            order = rng.permutation(len(documents))

            if number % UNSETTLED == 0:
                others = [*proposals[number + 1 :], *proposals[:number]]
                question = _other_question(chain, others)
                turn = "<answer> none </answer>"
            else:
                question = text
                facts = [hop.fact for hop in chain]
                quotes = [f'<quote id="{fact.passage}">{fact.quote}</quote>' for fact in facts]
                turn = f"{' '.join(quotes)} <answer> {chain[-1].end} </answer>"
            yield {
                "role": "quoting",
                "fields": {"question": question},
                "documents": [documents[i] for i in order],
                "turns": [turn],
            }


def _other_question(chain: Chain, others: Sequence[Proposal]) -> str:
    """A question of another proposal that asks for the same relation of something else."""
    fact = chain[-1].fact
    for other in others:
        end = other.chain[-1].fact
        if end.relation == fact.relation and end.subject != fact.subject:
            return other.text
    raise InvariantError(f"no other proposal asks for {fact.relation}")


def _query(hop: Hop) -> str:
    return relations()[hop.fact.relation]["query"].format(x=hop.start)


def _rows(documents: Sequence[Document]) -> list[dict[str, str]]:
    return [{"id": document.id, "contents": document.contents} for document in documents]


def _tells(proposal: Proposal, target: str) -> bool:
    """Whether a question says something of `target`."""
    ends = (proposal.chain[-1].end, proposal.chain[0].start)
    return target in ends or _normalised(target) in _normalised(proposal.text)
