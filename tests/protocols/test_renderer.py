"""Protocols in the words of small tokenizers of the Qwen and the Llama 3 family: layouts, ends of turn, what is refused."""

from __future__ import annotations

import families
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer

QWEN, LLAMA = families.qwen(), families.llama()
QUESTION = {"question": "Which river?"}
DOCUMENT = Document("1", '"Seine"\n A "river" of France. \n')


def renderer(name: str, tokenizer: PreTrainedTokenizerBase, template: str = "") -> Renderer:
    return Renderer(protocols.get(name), tokenizer, template)


def ends(spoken: Renderer) -> list[str]:
    return [spoken.decode([id_]) for id_ in spoken.ends]


@pytest.mark.parametrize("name", ["search-r1", "chat-tools", "research"])
def test_ends_of_turn_are_the_familys(name: str) -> None:
    assert ends(renderer(name, QWEN)) == ["<|im_end|>", "<|endoftext|>"]
    assert ends(renderer(name, LLAMA)) == ["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"]


def test_a_policy_cannot_write_past_a_stop_that_is_one_token() -> None:
    ids, words = renderer("recall", QWEN).stops("solver")
    (tool_call,) = QWEN("</tool_call>", add_special_tokens=False)["input_ids"]
    assert tool_call in ids and words is not None and words.strings == ("</tool_call>",)
    spelt = [i for piece in ("</tool", "_call", ">") for i in QWEN(piece, add_special_tokens=False)["input_ids"]]
    assert tool_call not in spelt and words.hit(spelt) and not words.hit(spelt[:-1])


def test_prompts_open_the_policys_turn() -> None:
    assert renderer("search-r1", QWEN).prompt("solver", QUESTION).endswith("?\n<|im_end|>\n<|im_start|>assistant\n")
    llama = renderer("search-r1", LLAMA).prompt("solver", QUESTION)
    assert llama.startswith("<|begin_of_text|>") and llama.count("<|begin_of_text|>") == 1
    assert "26 Jul 2024" in llama, "a prompt does not depend on the day"
    assert llama.endswith("?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")
    assert renderer("ssp", QWEN).prompt("solver", QUESTION) == protocols.get("ssp").render("solver", QUESTION)


def test_a_base_model_gets_the_opening_token_that_its_tokenizer_adds() -> None:
    plain = protocols.get("search-r1").render("solver", QUESTION, "plain")
    assert renderer("search-r1", QWEN, "plain").prompt("solver", QUESTION) == plain
    assert renderer("search-r1", LLAMA, "plain").prompt("solver", QUESTION) == "<|begin_of_text|>" + plain


def test_what_follows_a_turn() -> None:
    qwen, llama, text = renderer("chat-tools", QWEN), renderer("chat-tools", LLAMA), renderer("search-r1", QWEN)
    shown = 'Doc 1 (Title: "Seine")\n A "river" of France.'
    assert qwen.framed(f"\n{shown}\n", ended=True) == (
        "\n<|im_start|>user\n<tool_response>\n",
        shown,
        "\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    )
    assert qwen.framed(shown, ended=False)[0].startswith("<|im_end|>\n<|im_start|>user\n")
    before, inner, after = llama.framed(shown, ended=True)
    assert before == '<|start_header_id|>ipython<|end_header_id|>\n\n"'
    assert inner == 'Doc 1 (Title: \\"Seine\\")\\n A \\"river\\" of France.', "this template shows replies as JSON"
    assert after == '"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n'
    assert text.framed("\n\nx\n", ended=False) == ("", "\n\nx\n", "")
    assert text.framed("x", ended=True) == ("\n<|im_start|>assistant\n", "x", ""), (
        "a turn that was closed is opened again"
    )
    assert text.observation([DOCUMENT]) == protocols.get("search-r1").observation([DOCUMENT])
    assert qwen.observation([DOCUMENT]) == "".join(qwen.framed(shown, ended=True))


@pytest.mark.parametrize(
    ("name", "tokenizer", "template", "said"),
    [
        ("search-r1", families.qwen(families.NEVER_THINKS), "", "set template to plain"),
        ("chat-tools", families.qwen(families.WITHOUT_TOOLS), "", r"shows the tools.*Next: take .*\(search-r1\)"),
        ("chat-tools", QWEN, "chatml", "shows the tools.*with tools and template=tokenizer"),
        ("chat-tools", families.qwen("{{ messages[0].content }}"), "", "what the policy wrote"),
        ("chat-tools", families.qwen("{{ raise_exception('no system role') }}"), "", "no system role"),
        ("chat-tools", families.qwen("{% if x %}"), "", "cannot lay out"),
        ("search-r1", families.qwen(None), "", "a tokenizer with a chat template"),
        ("llama3p1", QWEN, "", r"no <\|eot_id\|>"),
        ("ssp", LLAMA, "", r"no <\|im_end\|>"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    name: str, tokenizer: PreTrainedTokenizerBase, template: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        renderer(name, tokenizer, template)


def test_a_template_that_trims_or_forgets_only_what_the_log_never_renders_is_fine() -> None:
    trimming = renderer("chat-tools", families.qwen(families.TRIMMING))
    assert trimming.framed(" x\n", ended=True)[1] == "x"
    for tokenizer in (
        families.qwen(families.FORGETFUL),
        families.qwen(families.AS_SAID),
        families.deepseek(thinks=True),
        families.glm(thinks=False),
    ):
        assert "</search>" in renderer("search-r1", tokenizer).stops("solver")[1].strings  # type: ignore[union-attr]


def test_a_token_that_ends_the_whole_text_follows_no_turn() -> None:
    spoken = renderer("search-r1", families.qwen(families.ENDS_ALL, eos_token="<|endoftext|>"))
    assert ends(spoken) == ["<|im_end|>", "<|endoftext|>"]
    assert spoken.framed("x", ended=True) == ("\n<|im_start|>assistant\n", "x", "")


def words(vocabulary: list[str]) -> PreTrainedTokenizerFast:
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(["<unk>", "<eos>", *vocabulary])}, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>")


def test_a_model_that_cannot_write_the_protocol_is_refused() -> None:
    tags = ["<q>", "</q>", "<target>", "</target>", "<answer>", "</answer>", "<search>", "</question>"]
    with pytest.raises(InputError, match="a word of the solver's prompt cannot"):
        Renderer(protocols.get("ssp"), words(tags), "plain").stops("solver")
    with pytest.raises(InputError, match="</search> cannot"):
        Renderer(protocols.get("mini"), words(tags)).stops("solver")
    ids, strings = Renderer(protocols.get("mini"), words([*tags, "</search>"])).stops("solver")
    assert strings is None and len(ids) == 4, "whole words need no search for strings"
