"""Who answers a search: the retriever, the policy itself, the first K, or as its uncertainty says (SSRL)."""

from __future__ import annotations

import math

import families
import pytest
from scripts import ANSWER, LIMITS, QWEN, Books, encode, play

from ssp.base.episode import Episode
from ssp.base.tokenlog import Kind
from ssp.config.role import SourceConfig
from ssp.engines import Generation, Sampling, ScriptedEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import passages
from ssp.game.rollout.table import Source, sampled_entropy

SSRL = Renderer(protocols.get("ssrl"), QWEN)
SELF = SourceConfig(kind="self")


def recalled(episode: Episode) -> str:
    return QWEN.decode([i for i, kind in zip(episode.log.ids, episode.log.kinds, strict=True) if kind == Kind.RECALLED])


@pytest.mark.covers("SS-01")
def test_a_self_searching_policy_plays_in_one_generation_without_a_request() -> None:
    books, generations = Books(), []
    turn = (
        "<think> a </think> <search> q </search> <information> Paris,\nsays memory. </information> "
        f"<think> b </think> {ANSWER} more"
    )

    def script(history: list[int], seed: int, turn_: int) -> list[int]:
        generations.append(turn_)
        return encode(QWEN, turn)

    (episode,) = play([[""]], books, SSRL, engine=ScriptedEngine(script), source=SELF)
    assert (books.calls, generations, episode.queries, episode.documents) == ([], [0], [], [])
    assert (episode.final, episode.stopped) == ("Paris", "final")
    assert episode.response == turn.removesuffix(" more")
    assert recalled(episode).strip() == "<information> Paris,\nsays memory. </information>"
    assert not episode.log.mask[[kind == Kind.RECALLED for kind in episode.log.kinds]].any()


def test_a_self_search_that_ends_the_turn_is_answered_by_nobody() -> None:
    books = Books()
    (episode,) = play([["<think> a </think> <search> q </search><|im_end|>", ANSWER]], books, SSRL, source=SELF)
    assert (books.calls, episode.queries, episode.invalid, episode.final) == ([], [], 1, "Paris")


def test_information_of_a_retriever_is_not_recalled() -> None:
    (real,) = play([[f"<search> q </search>{ANSWER}", ANSWER]], Books(), SSRL)
    assert recalled(real) == "" and int(Kind.OBSERVATION) in real.log.kinds


OPEN, CLOSE = "<information>", "</information>"
BLOCKS = {
    "one line": ("a [[<information> b </information>]] c"),
    "several lines": ("a [[<information>\nb\n\nb\n</information>]]\nc"),
    "repeated": ("[[<information> b </information>]] c [[<information> b </information>]] c"),
    "the same text before": ("b b </information> b [[<information> b </information>]]"),
    "unclosed, to the end": ("a [[<information> b b b]]"),
    "unclosed, to another tag": ("a [[<information> b ]]<think> c </think> [[<information> b ]]<search> c </search> d"),
    "opened twice": ("a [[<information> b ]][[<information> b </information>]] c"),
    "another closing tag inside": ("a [[<information> b </think> b </information>]] c"),
    "characters of several bytes": ("é🙂 [[<information> 答🙂 é </information>]]🙂 c"),
}


@pytest.mark.covers("SS-04")
@pytest.mark.parametrize("what", BLOCKS)
def test_tokens_of_recalled_information_by_their_offsets(what: str) -> None:
    marked = f"{BLOCKS[what]}{'' if 'end' in what else ANSWER}"
    parts = marked.replace("]]", "[[").split("[[")
    turn, wanted, at = "".join(parts), set(), 0
    for n, part in enumerate(parts):
        wanted |= set(range(at, at + len(part))) if n % 2 else set()
        at += len(part)
    encoded = QWEN(turn, add_special_tokens=False, return_offsets_mapping=True)
    golden = [bool(wanted & set(range(*offsets))) for offsets in encoded["offset_mapping"]]
    (episode,) = play([[turn]], Books(), SSRL, source=SELF)
    prompt = episode.log.kinds.count(int(Kind.PROMPT))
    assert episode.log.ids[prompt:] == encoded["input_ids"]
    assert [kind == Kind.RECALLED for kind in episode.log.kinds[prompt:]] == golden
    assert any(golden)


@pytest.mark.parametrize("tokenizer", [QWEN, families.llama()])
def test_places_of_tokens(tokenizer: object) -> None:
    assert callable(tokenizer)

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids))  # type: ignore[attr-defined]

    text = "Grüße, 🙂🙂 答案!\n\n<information> é</information>" * 5
    for ids in (encode(tokenizer, text), encode(tokenizer, "🙂" * 60), encode(tokenizer, "é🙂")[1:] * 20):  # type: ignore[arg-type]
        places, whole = passages.ends(ids, decode), decode(ids)
        assert len(places) == len(ids) and sorted(places) == places and places[-1] >= len(whole) - 1
        for at in range(len(ids)):
            piece = decode(ids[: at + 1])
            assert places[at] == len(piece) - piece.endswith("\ufffd")
    assert passages.tokens([2, 5, 9], 2, 5) == (1, 2)
    assert passages.tokens([2, 5, 9], 3, 6) == (1, 3)
    assert passages.tokens([2, 5, 9], 9, 9) == (3, 3)
    assert passages.tokens([2, 2, 5], 0, 3) == (0, 3)


STEPS = [f"<think> t{i} </think> <search> q{i} </search>" for i in range(5)]


def always_searching(history: list[int], seed: int, turn: int) -> list[int]:
    """Searches five times, writes its own information where nothing stopped it, then answers."""
    said = QWEN.decode(history)
    done = said.count("</search>") - SSRL.prompt("solver", {"question": "?"}).count("</search>")
    own = f" <information> mine {done - 1} </information> " if said.endswith("</search>") else ""
    rest = "".join(f"{step} <information> mine {i} </information> " for i, step in enumerate(STEPS) if i >= done)
    return encode(QWEN, own + rest + ANSWER)


@pytest.mark.covers("SS-05", "SS-06")
@pytest.mark.parametrize("real", [1, 3, 5])
def test_the_first_searches_are_real_and_later_information_is_the_policys_own(real: int) -> None:
    books = Books()
    source = SourceConfig(kind=f"first_{real}")
    limits = type(LIMITS)(**{**vars(LIMITS), "searches": 9})
    (episode,) = play([[""]], books, SSRL, limits, ScriptedEngine(always_searching), source=source)
    count = min(real, 5)
    assert books.calls == [[f"q{i}"] for i in range(count)]
    shown = SSRL.protocol.observation(books.documents)
    wanted = [
        step + (shown if i < count else f" <information> mine {i} </information> ") for i, step in enumerate(STEPS)
    ]
    assert episode.response == "".join(wanted) + ANSWER
    assert recalled(episode).count("mine") == 5 - count
    (bounded,) = play([[""]], Books(), SSRL, LIMITS, ScriptedEngine(always_searching), source=source)
    assert len(bounded.queries) == min(real, LIMITS.searches)
    assert bounded.stopped == ("final" if real <= LIMITS.searches else "turns")


def test_who_has_used_up_its_real_searches_takes_one_turn_at_a_time_as_others_do() -> None:
    """In the second step one episode's first search is real while the other writes its own information."""
    step, own = "<search> q </search>", " <information> mine </information> "
    turns = [["words<|im_end|>", step, own + ANSWER], [step, own + ANSWER]]
    first, second = play(turns, Books(), SSRL, source=SourceConfig(kind="first_1"))
    assert [(e.final, e.invalid, e.queries) for e in (first, second)] == [("Paris", 1, ["q"]), ("Paris", 0, ["q"])]


@pytest.mark.covers("SS-07")
def test_a_search_is_real_when_its_uncertainty_has_risen() -> None:
    def decisions(*uncertainties: float) -> list[bool]:
        source = Source(SourceConfig(kind="entropy"))
        return [source.real(uncertainty) for uncertainty in uncertainties]

    assert decisions(0.5, 0.4, 0.7, 0.6) == [True, False, True, False]
    assert decisions(0.5, 0.5, 0.5) == [True, False, False], "a tie is not a rise"
    assert decisions(0.0, 0.1) == [True, True]
    assert decisions(0.5, 0.1, 0.3) == [True, False, True], "against the search before, real or not"


def logprob_of(bits: float) -> float:
    """The log-prob whose -p log2 p is `bits` (at most 0.53), by bisection on p > 1/e."""
    low, high = 1 / math.e, 1.0
    for _ in range(80):
        p = (low + high) / 2
        low, high = (p, high) if -p * math.log2(p) > bits else (low, p)
    return math.log(low)


class Uncertain(ScriptedEngine):
    """Searches in each turn; its n-th query has the given uncertainty, all that surrounds it is far more uncertain."""

    def __init__(self, uncertainties: list[float]) -> None:
        super().__init__(always_searching)
        self._bits = uncertainties

    def step(self, slots: list[int], pending: list[list[int]], samplings: Sampling) -> list[Generation]:
        generations = super().step(slots, pending, samplings)
        for generation in generations:
            text = QWEN.decode(generation.ids)
            begin, end = (
                text.rfind("<search>") + len("<search>") if "<search>" in text else len(text),
                text.rfind("</search>"),
            )
            offsets = QWEN(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            bits = self._bits[int(text[begin:end].strip(" q") or 0)]
            values = [bits if low < end and high > begin else None for low, high in offsets]
            generation.logprobs = [logprob_of(0.53 if value is None else value) for value in values]
        return generations


@pytest.mark.covers("SS-07")
def test_entropy_guided_search_in_a_rollout() -> None:
    assert sampled_entropy([math.log(0.5), 0.0]) == 0.25 and sampled_entropy([]) == 0.0
    books, engine = Books(), Uncertain([0.5, 0.4, 0.52, 0.45, 0.45])
    limits = type(LIMITS)(**{**vars(LIMITS), "searches": 9})
    source = SourceConfig(kind="entropy")
    (episode,) = play([[""]], books, SSRL, limits, engine, source=source)
    assert books.calls == [["q0"], ["q2"]], "real, self, real, self, self"
    assert [f"mine {i}" in episode.response for i in range(5)] == [False, True, False, True, True]
    assert (episode.final, episode.queries) == ("Paris", ["q0", "q2"])
