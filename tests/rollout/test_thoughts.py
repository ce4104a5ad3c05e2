"""Chat templates of reasoning models: a switch for thoughts, thoughts that are kept or forgotten, and one tool turn in the
ways of each family (templates and tokenizers written here)."""

from __future__ import annotations

from pathlib import Path

import families
import numpy as np
import pytest
from scripts import Books, encode, limits, pieces, play

from ssp.base.episode import Document, Episode, Outcome
from ssp.base.errors import InputError
from ssp.config.role import LimitsConfig
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.game import protocols
from ssp.game.protocols.calls import SEARCH
from ssp.game.protocols.renderer import Renderer
from ssp.learning.batch import collate
from ssp.selfplay.workers import build

CHAT = protocols.get("chat-tools")
ASKED = {"question": "Which city is it?"}
BOOKS = [Document("1", '"Paris"\nParis is the capital.')]
JSON = '<tool_call>\n{"name": "search", "arguments": {"query": "city"}}\n</tool_call>'
XML = "<tool_call>\n<function=search>\n<parameter=query>\ncity\n</parameter>\n</function>\n</tool_call>"
KEYS = "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>city</arg_value>\n</tool_call>"
V3 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n"
    '{"query": "city"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
V31 = '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "city"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>"
    '{"query": "city"}<|tool_call_end|><|tool_calls_section_end|>'
)
GLM4 = 'search\n{"query": "city"}'


def seen(renderer: Renderer, turns: list[str], sizes: LimitsConfig | None = None) -> tuple[Episode, list[str]]:
    """An episode of `turns`, and what its policy read before each of them."""
    read: list[str] = []

    def script(history: list[int], seed: int, turn: int) -> list[int]:
        read.append(renderer.decode(history))
        return encode(renderer.tokenizer, turns[len(read) - 1])

    (episode,) = play([[""]], Books(BOOKS), renderer, sizes or limits(), ScriptedEngine(script))
    return episode, read


def shown(renderer: Renderer, said: list[str], **switch: bool) -> str:
    """The template's own rendering of the conversation so far, each turn answered, the next one opened."""
    reply = {"role": "tool", "content": CHAT.observation(BOOKS).strip()}
    messages = [*CHAT.messages("solver", ASKED)]
    for text in said:
        messages += [{"role": "assistant", "content": text}, reply]
    return str(
        renderer.tokenizer.apply_chat_template(
            messages, tools=[SEARCH.function], tokenize=False, add_generation_prompt=True, **switch
        )  # type: ignore[arg-type]
    )


CASES = {
    # name: (tokenizer, template, what a turn writes before its call, call, end of turn, switch, forgets)
    "qwen3": (families.qwen3(), "tokenizer", "<think>\nI look.\n</think>\n\n", JSON, "<|im_end|>", {}, False),
    "qwen3 thinking": (
        families.qwen3(), "thinking", "<think>\nI look.\n</think>\n\n", JSON, "<|im_end|>", {"enable_thinking": True}, False,
    ),
    "qwen3 direct": (families.qwen3(), "direct", "", JSON, "<|im_end|>", {"enable_thinking": False}, True),
    "qwen3.5": (families.qwen3p5(), "tokenizer", "I look.\n</think>\n\n", XML, "<|im_end|>", {}, False),
    "qwen3.5 direct": (families.qwen3p5(), "direct", "", XML, "<|im_end|>", {"enable_thinking": False}, False),
    "qwen3.5, small": (families.qwen3(families.SILENT), "tokenizer", "", XML, "<|im_end|>", {}, False),
    "qwen3.5, small, thinking": (
        families.qwen3(families.SILENT), "thinking", "I look.\n</think>\n\n", XML, "<|im_end|>", {"enable_thinking": True}, False,
    ),
    "nemotron": (families.qwen3(families.AS_SAID), "tokenizer", "I look.\n</think>\n\n", XML, "<|im_end|>", {}, False),
    "an end on its own line": (families.qwen(families.OWN_LINE), "", "", JSON, "\n<|im_end|>", {}, False),
    "kimi": (families.qwen(families.KIMI), "", "", KIMI, "<|im_end|>", {}, False),
    "hermes": (families.qwen(families.CALLS), "", "", JSON, "<|im_end|>", {}, False),
    "deepseek-v3": (families.deepseek(), "tokenizer", "", V3, "<｜end▁of▁sentence｜>", {}, False),
    "deepseek-v3.1, not asked": (families.deepseek(thinks=True), "tokenizer", "", V31, "<｜end▁of▁sentence｜>", {}, False),
    "deepseek-v3.1": (families.deepseek(thinks=True), "direct", "", V31, "<｜end▁of▁sentence｜>", {"thinking": False}, False),
    "glm-4": (families.glm(thinks=False), "tokenizer", "\n", GLM4, "<|observation|>", {}, False),
    "glm-4.6": (families.glm(), "thinking", "\n<think>I look.</think>\n", KEYS, "<|observation|>", {"enable_thinking": True}, False),
    "glm-4.6 direct": (families.glm(), "direct", "\n", KEYS, "<|observation|>", {"enable_thinking": False}, False),
    "r1": (families.qwen3(families.FORGETS_OPENED), "tokenizer", "I look.\n</think>\n\n", JSON, "<|im_end|>", {}, True),
    "forgetful": (families.qwen(families.FORGETFUL), "", "<think>\nI look.\n</think>\n\n", JSON, "<|im_end|>", {}, True),
    "never": (families.qwen(families.NEVER_THINKS), "", "<think>\nI look.\n</think>\n\n", JSON, "<|im_end|>", {}, True),
}  # fmt: skip


@pytest.mark.parametrize(("name", "told"), [("small-qwen", "small-qwen"), ("", "a model without a name")])
def test_who_has_no_chat_template_is_named(name: str, told: str) -> None:
    tokenizer = families.qwen(None)
    tokenizer.name_or_path = name
    with pytest.raises(InputError, match=f"needs a tokenizer with a chat template. Found: none in {told}. Next"):
        Renderer(CHAT, tokenizer)


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"algorithm": "gae"}, True),
        ({"algorithm": "grpo_turns"}, True),
        ({"algorithm": "grpo"}, False),
        ({"algorithm": "gae", "policy": "frozen"}, False),
    ],
)
def test_one_advantage_an_episode_is_asked_for_where_thoughts_are_forgotten(
    changes: dict[str, str], refused: bool, tmp_path: Path
) -> None:
    """Before a run starts: its tokens lie in several contexts."""
    families.qwen(families.FORGETFUL).save_pretrained(tmp_path)
    cfg = Config(protocol="chat-tools")
    block = cfg.block("solver")
    block.engine.kind = block.learner.kind = "simulated"  # so that no weights are needed
    block.model = str(tmp_path)
    for key, value in changes.items():
        setattr(block, key, value)
    if not refused:
        build.check_policy(cfg, "solver", tmp_path)
        return
    rule = r"forgets thoughts needs one advantage an episode \(solver\).*Next: set solver.algorithm=grpo"
    with pytest.raises(InputError, match=rule):
        build.check_policy(cfg, "solver", tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_each_turn_is_trained_after_the_prompt_that_the_policy_saw(name: str) -> None:
    """Two tool turns and an answer. What it saw is what the template shows of the turns before, with their thoughts or
    without; and what stands before the trained tokens of each context is what it saw."""
    tokenizer, template, thought, call, end, switch, forgets = CASES[name]
    renderer = Renderer(CHAT, tokenizer, template)
    turns = [thought + call + end, thought + call + end, thought + "<answer> Paris </answer>"]
    episode, read = seen(renderer, turns)
    assert (episode.final, episode.queries, episode.hits) == ("Paris", ["city", "city"], [1, 1])
    opened = renderer.opening
    said = [(opened + thought).lstrip() + call] * 2
    assert read == [shown(renderer, said[:done], **switch) for done in range(3)]

    log = episode.log
    assert bool(log.drops) == forgets
    after = [renderer.encode([text])[0] for text in read]
    for positions, trained in log.views():
        ids = [log.ids[at] for at in positions]
        begins = [at for at in np.flatnonzero(trained) if not trained[at - 1]]
        for begin in begins:
            assert ids[:begin] == after.pop(0), "the tokens before a trained turn are those of its prompt"
    assert not after and sum(trained.sum() for _, trained in log.views()) == log.mask.sum()
    assert "".join(turns) == "".join(text for kind, text in pieces(episode, tokenizer) if kind == "model"), (
        "all is trained"
    )
    assert episode.response.startswith(opened + thought), "a thought is whole for who reads it"


@pytest.mark.parametrize("name", ["forgetful", "qwen3 direct", "r1"])
def test_a_batch_has_a_row_for_each_context(name: str) -> None:
    tokenizer, template, thought, call, end, _, _ = CASES[name]
    turns = [thought + call + end, thought + "<answer> Paris </answer>"]
    episode, read = seen(Renderer(CHAT, tokenizer, template), turns)
    episode.outcome = Outcome.SCORED
    batch = collate([episode], [1.0], [0])
    rows = [[int(id_) for id_ in row[: int(batch.mask[at].nonzero()[0])]] for at, row in enumerate(batch.ids)]
    assert rows == [encode(tokenizer, text) for text in read]


def test_a_thought_without_a_begin_or_an_end() -> None:
    """A turn that never thinks keeps all it says; one that thinks twice loses all up to the last end."""
    renderer = Renderer(CHAT, families.qwen(families.FORGETFUL))
    twice = "<think>\na\n</think>\n\n<think>\nb\n</think>\n\n"
    episode, read = seen(renderer, [f"Well. {JSON}<|im_end|>", f"{twice}{JSON}<|im_end|>", "<answer> x </answer>"])
    assert read[1] == shown(renderer, [f"Well. {JSON}"])
    assert read[2] == shown(renderer, [f"Well. {JSON}", twice + JSON])
    assert len(episode.log.views()) == 2 and episode.final == "x"


def test_forgetting_makes_room_and_the_rest_may_still_overflow() -> None:
    """What the policy no longer reads counts for no limit."""
    renderer = Renderer(CHAT, families.qwen(families.FORGETFUL))
    thought = "<think>\n" + "so it goes " * 10 + "\n</think>\n\n"
    turns = [thought + JSON + "<|im_end|>"] * 3 + ["<answer> x </answer>"]
    room = (
        len(encode(renderer.tokenizer, shown(renderer, [JSON] * 3))) + len(encode(renderer.tokenizer, turns[0])) + 150
    )
    episode, read = seen(renderer, turns, limits(total_tokens=room, turn_tokens=150))
    assert episode.final == "x" and len(episode.log) > room >= max(len(encode(renderer.tokenizer, one)) for one in read)
    kept = Renderer(CHAT, families.qwen())
    assert seen(kept, turns, limits(total_tokens=room, turn_tokens=150))[0].stopped == "tokens"


@pytest.mark.parametrize(
    ("tokenizer", "template", "said"),
    [
        (families.qwen(), "thinking", "a switch for thinking"),
        (families.deepseek(), "direct", "a switch for thinking"),
        (families.qwen(None), "direct", "a tokenizer with a chat template"),
        (families.deepseek(thinks=True), "thinking", "rewrites a turn"),
        (families.qwen3(families.FORGETS_ALL_BUT_TWO), "", "rewrites a turn when more messages follow.*search-r1"),
        (families.qwen(families.PYTHONIC), "", r"a call of a tool is JSON.*writes \"\[search.*search-r1"),
    ],
)
def test_what_cannot_be_followed_is_refused(tokenizer: object, template: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Renderer(CHAT, tokenizer, template)  # type: ignore[arg-type]


def test_a_search_as_text_is_none_of_the_templates_calls(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("id: own\nversion: 1\ninherits: search-r1\nobservation: {as_turn: true}\n")
    Renderer(protocols.get(str(file)), families.qwen(families.PYTHONIC))
