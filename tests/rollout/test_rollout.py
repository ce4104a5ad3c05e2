"""The rollout loop: what a fault costs, one search call a turn and corpus, slots given back, what a search tells of itself."""

from __future__ import annotations

import pytest
from scripts import ANSWER, LIMITS, QWEN, SEARCH_R1, Books, encode, play, scripted, search, tasks

from ssp.base.episode import Document, Outcome
from ssp.base.errors import Fault
from ssp.engines import ScriptedEngine
from ssp.game.rollout import Settings, rollout
from ssp.search.hits import Answers

SETTINGS = Settings(LIMITS, 1.0, 2)


def test_a_search_fault_voids_only_the_episodes_of_that_call() -> None:
    books, turns = Books(), [[search("a"), ANSWER], [search("a"), ANSWER], [ANSWER]]
    books.down = "train"
    down, up, quick = play(turns, books, corpora=["train", "heldout", "train"])
    assert (down.outcome, down.cause, down.stopped, down.final) == (Outcome.VOID, "retriever_down", "fault", None)
    assert [(episode.final, episode.outcome) for episode in (up, quick)] == [("Paris", None)] * 2


def test_a_fault_of_the_engine_voids_what_was_running_and_slots_are_closed_after_a_bug() -> None:
    def script(history: list[int], seed: int, turn: int) -> list[int]:
        if turn == 1:
            raise error
        return encode(QWEN, ANSWER if seed == 0 else search("a"))

    error: Exception = Fault("engine_died")
    engine = ScriptedEngine(script)
    done, hit = rollout(engine, SEARCH_R1, Books(), tasks(2), SETTINGS)[0]
    assert (done.final, done.outcome) == ("Paris", None)
    assert (hit.outcome, hit.cause) == (Outcome.VOID, "engine_died")
    assert not engine._slots
    error = RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        rollout(engine, SEARCH_R1, Books(), tasks(2), SETTINGS)
    assert not engine._slots


def test_one_search_call_a_turn_and_corpus_with_each_query_once() -> None:
    books = Books()
    corpora = ["train", "train", "train", "heldout", "heldout"]
    episodes = play([[search(word), ANSWER] for word in "aabaa"], books, corpora=corpora)
    assert books.calls == [["a", "b"], ["a"]]
    assert [episode.id for episode in episodes] == [f"t{i}" for i in range(5)]
    assert [episode.queries for episode in episodes] == [["a"], ["a"], ["b"], ["a"], ["a"]]


def test_what_a_search_tells_of_itself_is_handed_on() -> None:
    class Told(Books):
        def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
            found = super().search(queries, k, corpus)
            return Answers(found, {"encode": 0.25, "merge": 1.0})

    engine = scripted([[search(word), search("c"), ANSWER] for word in "ab"])
    made = tasks(2, corpora=["train", "heldout"])
    _, seconds = rollout(engine, SEARCH_R1, Told(), made, SETTINGS)
    assert seconds["search/encode"] == 1.0 and seconds["search/merge"] == 4.0  # two turns, two corpora
    assert not engine._slots
    _, plain = rollout(scripted([[search("a"), ANSWER]]), SEARCH_R1, Books(), tasks(1), SETTINGS)
    assert set(plain) == {"generate", "search"}
