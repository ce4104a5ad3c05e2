"""Tool calls through a model's own chat template: what the log holds is what the template shows of the same conversation."""

from __future__ import annotations

from pathlib import Path

import families
import pytest
from scripts import Books, encode, pieces, play
from transformers import PreTrainedTokenizerBase

from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.game import protocols
from ssp.game.protocols.calls import SEARCH
from ssp.game.protocols.renderer import Renderer
from ssp.selfplay.settings import load

CHAT = protocols.get("chat-tools")
FAMILIES = {
    "qwen": (
        families.qwen(),
        '<think>\nI look.\n</think>\n\n<tool_call>\n{"name": "search", "arguments": {"query": "city"}}\n</tool_call>',
        "<|im_end|>",
    ),
    "llama": (families.llama(), '{"name": "search", "parameters": {"query": "city"}}', "<|eot_id|>"),
    "llama, which may end a call so": (families.llama(), '{"name": "search", "parameters": {"query": "city"}}', "<|eom_id|>"),
    "llama, with its tag": (families.llama(), '<|python_tag|>{"name": "search", "parameters": {"query": "city"}}', "<|eot_id|>"),
    "qwen, trimming": (families.qwen(families.TRIMMING), '<tool_call>{"name": "search", "arguments": {"query": "city"}}</tool_call>', "<|im_end|>"),
}  # fmt: skip
DOCUMENTS = [Document("1", '"Paris"\n\nParis, "the city". \n'), Document("2", '"Seine"\nA <answer>river</answer>🙂')]
QUESTION = {"question": "Which city is it?"}


def ids_of(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tools=[SEARCH.function], tokenize=False, date_string="26 Jul 2024")  # type: ignore[arg-type]
    return encode(tokenizer, str(text))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_log_is_the_templates_rendering_of_the_conversation(family: str) -> None:
    tokenizer, call, end = FAMILIES[family]
    answer = "<answer> Paris </answer>"
    books = Books(DOCUMENTS)
    turns = [[call + end, "I am lost." + end, call + end, answer + " and more"]]
    (episode,) = play(turns, books, Renderer(CHAT, tokenizer))
    assert (books.calls, episode.final, episode.invalid) == ([["city"], ["city"]], "Paris", 1)
    result = {"role": "tool", "content": CHAT.observation(DOCUMENTS).strip()}
    told = {"role": "tool", "content": CHAT.retry.replace("{final}", "answer")}
    said = [{"role": "assistant", "content": text} for text in (call, "I am lost.", call, answer)]
    conversation = [*CHAT.messages("solver", QUESTION), said[0], result, said[1], told, said[2], result, said[3]]
    shown = ids_of(tokenizer, conversation)
    if end in ("<|eom_id|>",):  # the template shows each turn's usual end
        (usual,), (other,) = encode(tokenizer, "<|eot_id|>"), encode(tokenizer, end)
        assert [usual if id_ == other else id_ for id_ in episode.log.ids] == shown[: len(episode.log)]
    else:
        assert episode.log.ids == shown[: len(episode.log)]
    tail = tokenizer.decode(shown[len(episode.log) :])
    assert tail.strip() in ("<|im_end|>", "<|eot_id|>"), "nothing but the end of the last turn is missing"
    assert [kind for kind, _ in pieces(episode, tokenizer)] == (
        ["prompt", "model"] + ["template", "observation", "template", "model"] * 3
    )


def test_a_turn_that_did_not_end_is_ended_before_the_next_message() -> None:
    tokenizer = families.qwen()
    (episode,) = play([["<answer> </answer>", "<answer> x </answer>"]], Books(), Renderer(CHAT, tokenizer))
    kinds = [kind for kind, _ in pieces(episode, tokenizer)]
    assert kinds == ["prompt", "model", "template", "observation", "template", "model"]
    assert pieces(episode, tokenizer)[2][1].startswith("<|im_end|>\n<|im_start|>user\n")
    assert episode.final == "x"


def test_several_calls_in_one_turn_and_a_call_that_cannot_be_read() -> None:
    tokenizer = families.qwen()
    call = '<tool_call>\n{"name": "search", "arguments": {"query": "%s"}}\n</tool_call>'
    both, broken = call % "a" + "\n" + call % "b", call % "a" + '<tool_call>{"name": </tool_call>'
    books = Books(DOCUMENTS)
    turns = [[f"{both}<|im_end|>", f"{broken}<|im_end|>", "<answer> x </answer>"]]
    (episode,) = play(turns, books, Renderer(CHAT, tokenizer))
    assert (books.calls, episode.queries, episode.invalid, episode.final) == ([["a", "b"]], ["a", "b"], 1, "x")
    assert "\n---\n" in episode.response


def test_nobody_searches_himself_in_a_turn_that_a_search_ends() -> None:
    given = ["protocol=chat-tools", "game.questions=dataset", "data.questions=world:train"]
    load("quickstart", given)
    with pytest.raises(InputError, match="solver.search.kind is retriever"):
        load("quickstart", [*given, "solver.search.kind=entropy"])


def test_one_answer_is_framed_for_each_turn_as_that_turn_ended(tmp_path: Path) -> None:
    """Two attempts search for the same in one step; one has closed its turn, the other was stopped by a word."""
    file = tmp_path / "mine.yaml"
    file.write_text("id: mine\nversion: 1\ninherits: chat-tools\nroles: {solver: {stops: [<done>, </answer>]}}\n")
    renderer = Renderer(protocols.get(str(file)), families.qwen())
    call = '<tool_call>{"name": "search", "arguments": {"query": "city"}}</tool_call>'
    turns = [[f"{call}{end}", "<answer> Paris </answer>"] for end in ("<|im_end|>", "<done>")]
    for order in (turns, turns[::-1]):
        books = Books(DOCUMENTS)
        together = play(order, books, renderer)
        assert books.calls == [["city"]] and [one.final for one in together] == ["Paris", "Paris"]
        alone = [play([one], Books(DOCUMENTS), renderer)[0] for one in order]
        assert [one.log.ids for one in together] == [one.log.ids for one in alone]
        assert [text.count("<|im_end|>") for text in (one.text for one in together)] == [4, 4]
