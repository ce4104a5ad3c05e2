"""Traces have the form of play: the protocol reads them, the search gave their observations, facts are true."""

from __future__ import annotations

import numpy as np
import pytest

from ssp.game import protocols
from ssp.game.world import World
from ssp.learning.coldstart import traces
from ssp.learning.coldstart.traces import Trace, TraceMaker
from ssp.search import Router, in_memory, local

MINI = protocols.get("mini")


@pytest.fixture(scope="module")
def maker() -> TraceMaker:
    return TraceMaker(World(5), np.random.default_rng(0))


def text_of(trace: Trace) -> str:
    return " ".join(text for text, _ in trace.pieces)


def quotes(trace: Trace) -> list[str]:
    return [segment.text for segment in MINI.parse(text_of(trace)) if segment.kind == "think"]


@pytest.fixture(scope="module")
def search(maker: TraceMaker) -> Router:
    return local("c", in_memory(maker.world.documents()))


def check_play(trace: Trace, search: Router, role: str) -> None:
    """The trace is what the rollout would log: prompt, turns that search, observations of the real search, a final."""
    text = ""
    for place, (piece, wrote) in enumerate(trace.pieces):
        if place == 0:
            assert not wrote and MINI.parse(piece)[0].closed
        elif not wrote:
            (query,) = MINI.queries(text)
            assert piece == MINI.observation(search.search([query], traces.TOPK, "c")[0])
            assert piece.split()[1] == query  # the entity's own document comes first
        text += piece + " "
    assert trace.pieces[-1][1] and MINI.final(role, text) is not None


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_solver_traces_are_play(maker: TraceMaker, search: Router, hops: int) -> None:
    early = right = 0
    for _ in range(200):
        trace = maker.solver(hops)
        check_play(trace, search, "solver")
        question = MINI.parse(text_of(trace))[0].text
        facts = [tuple(quote.split()) for quote in quotes(trace)]
        assert facts and all(maker.world.facts[s][r] == o for s, r, o in facts)
        assert MINI.final("solver", text_of(trace)) == facts[-1][2]
        early += len(facts) < hops
        right += MINI.final("solver", text_of(trace)) == maker.world.answer(question)
    assert right < 200
    expected = 1 - (1 - traces.STOP_EARLY) ** (hops - 1)
    assert abs(early / 200 - expected) < 0.15


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_proposer_traces_are_play_and_mostly_true(maker: TraceMaker, search: Router, hops: int) -> None:
    true = 0
    for _ in range(200):
        trace = maker.proposer(hops)
        check_play(trace, search, "proposer")
        target = MINI.parse(text_of(trace))[0].text
        true += not maker.world.is_junk(MINI.final("proposer", text_of(trace)) or "", target)
    assert 0.8 < true / 200 < 0.99


def test_verifier_traces_answer_from_their_documents_only(maker: TraceMaker) -> None:
    none = 0
    for _ in range(200):
        trace = maker.verifier(2)
        documents, question = (segment.text for segment in MINI.parse(text_of(trace))[:2])
        assert trace.pieces[0][0] == MINI.render("verifier", {"documents": documents, "question": question})
        answer = MINI.final("verifier", text_of(trace))
        assert all(f"{quote} ." in documents for quote in quotes(trace))
        none += answer == "none"
        assert answer == "none" or answer == maker.world.answer(question)
    assert abs(none / 200 - traces.CORRUPTED) < 0.12


def test_the_mix_has_its_shares_and_a_seed_gives_it_again() -> None:
    made = traces.mixture(traces.makers(1), 300)
    again = traces.mixture(traces.makers(1), 300)
    other = traces.mixture(traces.makers(2), 300)
    assert [text_of(t) for t in made] == [text_of(t) for t in again] != [text_of(t) for t in other]
    assert abs(sum(t.kind == "block" for t in made) / len(made) - traces.BLOCK_SHARE) < 0.02
    assert abs(sum(map(sum, traces.MIX.values())) - 1.0) < 1e-9
