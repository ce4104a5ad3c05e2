"""Tokenizers of our own policies as plain `AutoTokenizer` reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer, Qwen2Config

from ssp.game import protocols
from ssp.game.world import World
from ssp.game.world.tokenizer import save
from ssp.game.world.vocabulary import VOCABULARY
from ssp.learning.checkpoint import load_model, write_policy
from ssp.learning.coldstart import ARTEFACT
from ssp.learning.tiny import policy
from ssp.selfplay.workers import build

TEXTS = (
    " ".join(VOCABULARY[:200]),
    "<search> river of bela </search>\n<information>Doc 1: x</information><answer> 42 </answer>",
    "Zebra's naïve café costs 12,345.67 € — didn't it?\r\n\t  two  spaces   日本語 🙂",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><eos><pad><unk>",
    "",
)
TALK = [{"role": "system", "content": "s"}, {"role": "user", "content": "who?"}]


def folder(name: str, tmp_path: Path) -> Path:
    """A policy folder without practice: its tokenizer, and the model's configuration."""
    if name == "coldstart":
        return ARTEFACT
    tokens = policy.tokenizer(protocols.get(name), World(3))
    save(tokens, tmp_path)
    Qwen2Config(vocab_size=len(tokens), eos_token_id=tokens.eos_token_id).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("trusting", [False, True])
@pytest.mark.parametrize("name", ["coldstart", *protocols.names()])
def test_plain_transformers_gives_our_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, trusting: bool
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    made = folder(name, tmp_path / "policy")
    ours, theirs = build.tokenizer(made), AutoTokenizer.from_pretrained(made, trust_remote_code=trusting)
    assert theirs.backend_tokenizer.to_str() == ours.backend_tokenizer.to_str()
    for text in TEXTS:
        ids = ours.encode(text)
        assert theirs.encode(text) == ids == theirs(text)["input_ids"]
        for hidden in (False, True):
            assert theirs.decode(ids, skip_special_tokens=hidden) == ours.decode(ids, skip_special_tokens=hidden)
    for one in ("eos_token_id", "pad_token_id", "unk_token_id", "bos_token_id", "all_special_ids", "chat_template"):
        assert getattr(theirs, one) == getattr(ours, one), one
    if ours.chat_template:
        given = {"tokenize": True, "add_generation_prompt": True}
        assert theirs.apply_chat_template(TALK, **given) == ours.apply_chat_template(TALK, **given)


def test_a_checkpoint_has_the_tokenizer_of_what_it_was_trained_from(tmp_path: Path) -> None:
    model = load_model(ARTEFACT)
    write_policy(tmp_path, model, model.state_dict(), ARTEFACT)
    assert AutoTokenizer.from_pretrained(tmp_path).encode(TEXTS[0]) == list(range(200))
