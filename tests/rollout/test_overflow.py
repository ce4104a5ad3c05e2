"""Length limits: whole documents, closing tags, and what leaves the context when it is full."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scripts import ANSWER, QWEN, SEARCH_R1, Books, Chain, encode, limits, pieces, play, search, with_tokens

from ssp.base.episode import Document, Episode
from ssp.base.errors import InputError
from ssp.base.tokenlog import Kind
from ssp.config.role import LimitsConfig
from ssp.engines import ScriptedEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.learning.coldstart import ARTEFACT
from ssp.selfplay.workers.build import tokenizer

LONG = [Document(str(n), f'"Title {n}"\n' + f"passage {n} " * 12) for n in range(3)]


@pytest.mark.covers("SR-23")
def test_a_long_observation_loses_whole_documents_and_keeps_its_closing_tag() -> None:
    sizes = [len(encode(QWEN, SEARCH_R1.observation(LONG[:n]))) for n in range(4)]
    for kept in (3, 2, 1, 0):
        (episode,) = play([[search("a"), ANSWER]], Books(LONG), limits=limits(observation_tokens=sizes[kept]))
        assert (episode.hits, episode.documents) == ([kept], LONG[:kept])
        assert pieces(episode)[2] == ("observation", SEARCH_R1.observation(LONG[:kept]))
    (episode,) = play([[search("a"), ANSWER]], Books(LONG), limits=limits(observation_tokens=sizes[3] - 1))
    assert episode.hits == [2]
    (none,) = play([[search("a"), ANSWER]], Books(LONG), limits=limits(observation_tokens=1))
    assert pieces(none)[2] == ("observation", "\n\n<information></information>\n\n")


@pytest.mark.covers("SR-23")
def test_a_first_passage_that_is_too_long_is_cut_at_a_token_border() -> None:
    long = Document("a", '"Long"\n' + "naïve passages 🙂 of many words " * 40)
    short = Document("b", '"Short"\nfew words.')
    (episode,) = play([[search("q"), ANSWER]], Books([long, short]), limits=limits(observation_tokens=90))
    (shown,), (_, observation) = episode.documents, pieces(episode)[2]
    assert (episode.hits, episode.cuts, shown.id) == ([1], 1, "a")
    assert observation == SEARCH_R1.observation([shown]) and long.contents.startswith(shown.contents)
    assert 88 <= len(encode(QWEN, observation)) <= 90 and "\ufffd" not in observation
    whole = limits(observation_tokens=len(encode(QWEN, SEARCH_R1.observation([long, short]))))
    (all_of_it,) = play([[search("q"), ANSWER]], Books([long, short]), limits=whole)
    assert (all_of_it.documents, all_of_it.cuts) == ([long, short], 0)


@pytest.mark.parametrize("most", [61, 74, 90, 133])
def test_a_passage_that_is_cut_is_the_longest_that_fits(most: int) -> None:
    """With its next token it would be too long."""
    long = Document("a", '"Long"\n' + "naïve passages of many words " * 40)
    borders = [end for _, end in QWEN(long.contents, return_offsets_mapping=True)["offset_mapping"]]
    (episode,) = play([[search("q"), ANSWER]], Books([long]), limits=limits(observation_tokens=most))
    (shown,) = episode.documents
    end = min(border for border in borders if border > len(shown.contents))
    more = replace(shown, contents=long.contents[:end])
    assert len(encode(QWEN, SEARCH_R1.observation([shown]))) <= most < len(encode(QWEN, SEARCH_R1.observation([more])))


def contexts(renderer: Renderer, turns: list[str], sizes: LimitsConfig) -> tuple[Episode, list[str]]:
    """An episode of `turns`, and what its policy read before each of them."""
    read: list[str] = []

    def script(history: list[int], seed: int, turn: int) -> list[int]:
        read.append(renderer.decode(history))
        return encode(QWEN, turns[len(read) - 1])

    (episode,) = play([[""]], Books(LONG), renderer, sizes, ScriptedEngine(script))
    return episode, read


@pytest.mark.covers("SR-23")
def test_overflow_drops_the_oldest_observation_and_never_the_question() -> None:
    observation = len(encode(QWEN, SEARCH_R1.observation(LONG)))
    prompt = SEARCH_R1.prompt("solver", {"question": "Which city is it?"})
    size = len(encode(QWEN, prompt)) + 2 * observation + 200
    sizes = limits(searches=5, observation_tokens=observation, turn_tokens=100, total_tokens=size, overflow="drop")
    turns = [search(f"q{n}") for n in range(4)] + [ANSWER]
    episode, read = contexts(SEARCH_R1, turns, sizes)
    assert (episode.final, episode.hits) == ("Paris", [3, 3, 3, 3])
    assert [text.count("<information>Doc") for text in read] == [0, 1, 2, 2, 2]
    assert read[3] == prompt + turns[0] + turns[1] + SEARCH_R1.observation(LONG) + turns[2] + SEARCH_R1.observation(
        LONG
    )
    assert all(text.startswith(prompt) for text in read)
    assert len(episode.log) > size, "the log keeps what the context has lost"
    assert [len(encode(QWEN, text)) <= size - 100 for text in read] == [True] * 5
    stopped, _ = contexts(SEARCH_R1, turns, limits(**{**vars(sizes), "overflow": "stop"}))
    assert (stopped.stopped, stopped.log.drops) == ("tokens", []) and len(stopped.log) <= size
    tight, read = contexts(SEARCH_R1, turns, limits(**{**vars(sizes), "total_tokens": len(encode(QWEN, prompt)) + 90}))
    assert (tight.stopped, read) == ("tokens", []), "without room for a turn, the question does not give way"


@pytest.mark.parametrize("name", ["search-r1", "chat-tools"])
def test_where_one_more_turn_fits_the_policy_is_told_to_answer(name: str) -> None:
    """With what it found where that fits too; a policy that searches all the same is at its end."""
    spoken = Renderer(protocols.get(name), QWEN)
    call = '<tool_call>\n{"name": "search", "arguments": {"query": "q"}}\n</tool_call><|im_end|>'
    asks = call if name == "chat-tools" else search("q")
    told = "No room is left for a search. Write the result between <answer> and </answer>."
    prompt = spoken.prompt("solver", {"question": "Which city is it?"})
    found = len(encode(QWEN, asks + spoken.observation(LONG)))
    first, room = len(encode(QWEN, prompt)) + found, found + len(encode(QWEN, f"\n\n{told}\n")) + 160
    sizes = limits(searches=9, turn_tokens=150, observation_tokens=1000, total_tokens=first + room, overflow="answer")
    episode, read = contexts(spoken, [asks, asks, ANSWER], sizes)
    assert (episode.final, episode.hits) == ("Paris", [3, 3]) and told not in read[1]
    assert read[2].count("passage 0") == 2 * 12 and read[2].count(told) == 1, "what it found, then what it is to do"
    assert len(episode.log) <= sizes.total_tokens
    assert told not in "".join(text for kind, text in pieces(episode) if kind == "model")
    again, _ = contexts(spoken, [asks, asks, asks], sizes)
    assert (again.stopped, again.final, len(again.queries)) == ("tokens", None, 2)
    narrow = replace(sizes, total_tokens=len(encode(QWEN, prompt + asks + told)) + 150 + 60)
    without, shown = contexts(spoken, [asks, ANSWER], narrow)
    assert (without.final, without.hits) == ("Paris", [0]) and told in shown[1] and "passage 0" not in shown[1]
    lost, shown = contexts(spoken, ["I am lost.<|im_end|>", ANSWER], narrow)
    assert lost.final == "Paris" and (told in shown[1] or name == "search-r1")
    stopped, _ = contexts(spoken, [asks], replace(sizes, total_tokens=first + 100, overflow="stop"))
    assert stopped.stopped == "tokens"


def test_words_that_the_policy_cannot_read_are_refused() -> None:
    with pytest.raises(InputError, match="a word of `last` cannot"):
        Renderer(protocols.get("mini"), tokenizer(ARTEFACT)).last("solver")


@pytest.mark.covers("SR-23")
def test_a_dropped_message_leaves_its_frame() -> None:
    spoken = Renderer(protocols.get("chat-tools"), QWEN)
    call = '<tool_call>\n{"name": "search", "arguments": {"query": "q"}}\n</tool_call><|im_end|>'
    shown = spoken.observation(LONG)
    prompt = spoken.prompt("solver", {"question": "Which city is it?"})
    size = len(encode(QWEN, prompt)) + len(encode(QWEN, shown)) + 300
    sizes = limits(searches=5, observation_tokens=1000, turn_tokens=150, total_tokens=size, overflow="drop")
    episode, read = contexts(spoken, [call, call, ANSWER], sizes)
    frame = "\n<|im_start|>user\n<tool_response>\n\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert read[2] == prompt + call + frame + call + shown
    assert {Kind.TEMPLATE, Kind.OBSERVATION} < set(episode.log.kinds) and episode.final == "Paris"


@pytest.mark.covers("SR-23")
def test_each_view_is_the_context_in_which_its_tokens_were_sampled() -> None:
    steps = ["<search>", " city ", "</search>"]
    tokens = with_tokens(*steps)
    chain = Chain(tokens, dict(zip([":", ">", *steps[:-1]], ["<search>", *steps], strict=True)), strength=16.0)
    spoken = Renderer(protocols.get("research"), tokens, "plain")
    books = Books([Document("1", '"Paris"\n' + "Paris lies in France. " * 12)])
    observation = len(spoken.encode([spoken.observation(books.documents)])[0])
    prompt = len(spoken.encode([spoken.prompt("solver", {"question": "Which city is it?"})])[0])
    room = prompt + 2 * observation + 60
    sizes = limits(searches=6, observation_tokens=observation, turn_tokens=30, total_tokens=room, overflow="drop")
    (episode,) = play([[""]], books, spoken, sizes, chain.engine())
    assert (episode.stopped, len(episode.queries), len(episode.log.drops)) == ("turns", 6, 4)
    log, seen = episode.log, np.zeros(len(episode.log), int)
    views = log.views()
    for positions, trained in views:
        full = chain.logprobs([log.ids[at] for at in positions])
        assert np.abs(full[trained] - np.asarray(log.logprobs)[positions[trained]]).max() < 1e-4
        seen[positions[trained]] += 1
    assert len(views) == 5 and (seen == log.mask).all(), "every sampled token in exactly one view"
    whole = chain.logprobs(log.ids)
    assert np.abs(whole[log.mask] - np.asarray(log.logprobs)[log.mask]).max() > 1e-3, "the context makes a difference"
