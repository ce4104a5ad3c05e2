"""The rollout loop with a scripted engine and a toy search."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from ssp.base.episode import Document, Episode, Outcome, Task
from ssp.base.errors import Fault
from ssp.base.tokenlog import Kind
from ssp.config.role import LimitsConfig
from ssp.engines import ScriptedEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, rollout
from ssp.search.hits import Answers

MINI = protocols.get("mini")
TAGS = [f"<{slash}{kind}>" for kind in MINI.kinds for slash in ("", "/")]
LIMITS = LimitsConfig(searches=2, turn_tokens=12, observation_tokens=20, total_tokens=120)
SEARCH, ANSWER = "<search> {} </search>", "<answer> {} </answer>"


def tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>")


TOKENS = tokenizer(["<pad>", "<eos>", "<unk>", *TAGS, *"? . a b c d e f g h seat none".split()])
SPOKEN, SETTINGS = Renderer(MINI, TOKENS), Settings(LIMITS, 1.0, 2)


class Books:
    """Entity → documents; `down` names a corpus that is out of order."""

    def __init__(self, down: str = "") -> None:
        self.down, self.calls = down, []
        self.texts = {"a": "a seat b . a seat c .", "b": "b seat d .", "c": "c seat e . " * 6}

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        self.calls.append((queries, k, corpus))
        if corpus == self.down:
            raise Fault("retriever_down", "test")
        found = [[Document(word, f'"{word}"\n{text}') for word, text in self.texts.items()] for _ in queries]
        return [
            sorted(documents, key=lambda d: d.id != query)[:k] for query, documents in zip(queries, found, strict=True)
        ]


def tasks(questions: list[str], role: str = "solver", corpora: list[str] | None = None) -> list[Task]:
    field = "question" if role == "solver" else "target"
    corpora = corpora or ["train"] * len(questions)
    return [
        Task(f"t{i}", f"g{i}", role, i, seed=i, fields={field: text}, corpus=corpus)
        for i, (text, corpus) in enumerate(zip(questions, corpora, strict=True))
    ]


def engine_of(turns: list[list[str]]) -> ScriptedEngine:
    """Slot with seed i plays `turns[i]`, one text a turn."""
    engine = ScriptedEngine(lambda history, seed, turn: TOKENS.encode(turns[seed][turn], add_special_tokens=False))
    engine.load({}, 7)
    return engine


def play(turns: list[list[str]], limits: LimitsConfig = LIMITS, **options: object) -> list[Episode]:
    search = options.pop("search", Books())
    made = tasks(["a seat ?"] * len(turns), **options)  # type: ignore[arg-type]
    engine = engine_of(turns)
    episodes, seconds = rollout(engine, SPOKEN, search, made, Settings(limits, 1.0, 2))  # type: ignore[arg-type]
    assert set(seconds) == {"generate", "search"}
    assert not engine._slots, "every slot is closed"
    return episodes


def test_the_log_holds_what_was_sampled_and_nothing_else() -> None:
    (episode,) = play([[SEARCH.format("a"), "<think> a seat b </think> " + ANSWER.format("b")]])
    log = episode.log
    kinds = [Kind.PROMPT] * 5 + [Kind.MODEL] * 3 + [Kind.OBSERVATION] * 14 + [Kind.MODEL] * 8
    assert log.kinds == [int(kind) for kind in kinds]
    assert [v for v, m in zip(log.versions, log.mask, strict=True) if m] == [7] * 11
    assert TOKENS.decode([i for i, m in zip(log.ids, log.mask, strict=True) if m]) == (
        "<search> a </search> <think> a seat b </think> <answer> b </answer>"
    )


@pytest.mark.parametrize(
    ("turns", "stopped", "searches"),
    [
        ([SEARCH.format("a")] * 3, "turns", 2),
        ([SEARCH.format("a"), SEARCH.format("b"), ANSWER.format("d")], "final", 2),
        (["a b <eos>"], "malformed", 0),
        (["<search> </search>"], "malformed", 0),
        (["<question> a seat ? </question>"], "malformed", 0),
        (["a " * 20], "tokens", 0),
        (["<answer> " + "a " * 20 + "</answer>"], "tokens", 0),
    ],
)
def test_how_an_episode_ends(turns: list[str], stopped: str, searches: int) -> None:
    (episode,) = play([turns])
    assert (episode.stopped, len(episode.queries)) == (stopped, searches)
    assert (episode.final is not None) == (stopped == "final")


def test_the_log_never_exceeds_total_tokens() -> None:
    limits = LimitsConfig(searches=9, turn_tokens=12, observation_tokens=20, total_tokens=40)
    (episode,) = play([[SEARCH.format("a")] * 9], limits)
    assert episode.stopped == "tokens"
    assert len(episode.log) <= 40
    (episode,) = play([[ANSWER.format("a")]], LimitsConfig(1, turn_tokens=12, observation_tokens=20, total_tokens=10))
    assert (episode.stopped, len(episode.log)) == ("tokens", 5)


def test_a_search_fault_voids_only_the_episodes_of_that_call() -> None:
    turns = [[SEARCH.format("a"), ANSWER.format("b")], [SEARCH.format("a"), ANSWER.format("b")], [ANSWER.format("c")]]
    down, up, quick = play(turns, corpora=["train", "heldout", "train"], search=Books(down="train"))
    assert (down.outcome, down.cause, down.stopped, down.final) == (Outcome.VOID, "retriever_down", "fault", None)
    assert [episode.final for episode in (up, quick)] == ["b", "c"]
    assert up.outcome is quick.outcome is None


def test_a_fault_of_the_engine_voids_what_was_running() -> None:
    def script(history: list[int], seed: int, turn: int) -> list[int]:
        if turn == 1:
            raise Fault("engine_died")
        return TOKENS.encode(ANSWER.format("b") if seed == 0 else SEARCH.format("a"), add_special_tokens=False)

    engine = ScriptedEngine(script)
    done, hit = rollout(engine, SPOKEN, Books(), tasks(["a ?", "a ?"]), SETTINGS)[0]
    assert (done.final, done.outcome) == ("b", None)
    assert (hit.outcome, hit.cause) == (Outcome.VOID, "engine_died")
    assert not engine._slots


def test_slots_are_closed_when_something_breaks() -> None:
    def script(history: list[int], seed: int, turn: int) -> list[int]:
        raise RuntimeError("a bug")

    engine = ScriptedEngine(script)
    with pytest.raises(RuntimeError):
        rollout(engine, SPOKEN, Books(), tasks(["a ?"]), SETTINGS)
    assert not engine._slots


def test_one_search_call_a_turn_and_corpus_with_each_query_once() -> None:
    search = Books()
    turns = [[SEARCH.format(word), ANSWER.format("b")] for word in "aabaa"]
    episodes = play(turns, corpora=["train", "train", "train", "heldout", "heldout"], search=search)
    assert search.calls == [(["a", "b"], 2, "train"), (["a"], 2, "heldout")]
    assert [episode.id for episode in episodes] == [f"t{i}" for i in range(5)]
    assert [episode.queries for episode in episodes] == [["a"], ["a"], ["b"], ["a"], ["a"]]


def test_what_a_search_tells_of_itself_is_handed_on() -> None:
    class Told(Books):
        def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
            found = super().search(queries, k, corpus)
            return Answers(found, 0.5 if queries == ["b"] else 1.0, {"encode": 0.25, "merge": 1.0})

    turns = [[SEARCH.format(word), SEARCH.format("c"), ANSWER.format("b")] for word in "ab"]
    made = tasks(["a seat ?"] * 2, corpora=["train", "heldout"])
    _, seconds = rollout(engine_of(turns), SPOKEN, Told(), made, SETTINGS)
    assert seconds["search/encode"] == 1.0 and seconds["search/merge"] == 4.0  # two turns, two corpora
    assert seconds["search/coverage"] == 0.5
