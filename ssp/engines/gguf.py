"""A GGUF file made into a Hugging Face folder, which engines and learners read.

transformers and the library gguf read the file. This module refuses what they would read as another
model than the one that was packed, and promises that the folder is there whole or not at all.
Weights become bfloat16: it rounds off far less than 4 or 8 bits have lost, engine and learner
compute in it where the processor can, and it takes half the place."""

import contextlib
import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ssp.base.errors import hold, holding
from ssp.base.files import digest
from ssp.base.shape import FAMILIES, NAMES
from ssp.engines.architecture import Architecture
from ssp.record.manifest import filled, seal

_OTHER = (
    "take another file of the model, or its Hugging Face folder: ssp download org/name --type model"
)
_LEFT = ("quantization_config", "_model_name_or_path")
"""Keys of the configuration that are left out."""
_PLAIN = {"scaling.type": "none", "scaling.factor": 1, "scale_linear": 1}
_BIASED = ("attn_q", "attn_k", "attn_v")


def convert(path: Path, folder: Path, sha256: str = "") -> bool:
    """Make `folder` of the GGUF `path`, whose digest is `sha256` where that is known. False: it is
    there already. InputError for a file that is missing, cut short, no GGUF, of another digest or
    of a model that the engine does not compute, for a library that is missing, and for a folder
    that holds something else."""
    step = "give its path, or see ssp download --list"
    hold(path.is_file(), "a GGUF is an existing file", path, step)
    with path.open("rb") as opened:
        start = opened.read(4)
    rule = "a GGUF file begins with the letters GGUF"
    hold(start == b"GGUF", rule, f"{path} begins with {start!r}", _OTHER)
    sha = digest(path)
    rule = f"the published file has the SHA-256 {sha256}"
    step = "install the package again, in the version that is known"
    hold(sha256 in ("", sha), rule, f"{path}: {sha}", step)

    return filled(folder, "gguf", sha, lambda aside: _write(path, aside, sha, _check(path)))


def _check(path: Path) -> Any:
    """How text is split before its merges; None: as transformers does it. InputError for a file
    that is cut short, and for a model that would be read as another one."""
    rule = "GGUF files are read by the package gguf, and by transformers from 5.19 on"
    with holding(ImportError, rule, str, "pip install 'ssp[english]'"):
        from gguf import GGUFReader
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
    torn = (ValueError, IndexError, KeyError, TypeError, OverflowError, OSError)
    with holding(torn, "a GGUF file is whole", f"{path} is not", "copy or download it again"):
        reader = GGUFReader(path)
        names = {tensor.name for tensor in reader.tensors}
        single = {key: field for key, field in reader.fields.items() if len(field.data) == 1}
        facts = {key: field.contents() for key, field in single.items()}

    family = str(facts.get("general.architecture"))
    rule = f"a GGUF holds a model that the torch engine computes: {NAMES}"
    hold(family in FAMILIES, rule, f"{path} holds the family {family}", _OTHER)
    # transformers drops all of these without a word, and makes up what is not said.
    scaled = "rope_freqs.weight" in names
    for key, plain in _PLAIN.items():
        scaled = scaled or facts.get(f"{family}.rope.{key}", plain) not in (plain, 0)
    rule = "positions of a GGUF are plain"
    hold(not scaled, rule, f"{path} scales them, which transformers does not read", _OTHER)
    biased = {name for name in names if name.endswith(".bias")}
    if FAMILIES[family].bias:
        biased = {name for name in biased if name.split(".")[-2] not in _BIASED}
    rule = "of a GGUF only q, k and v of a family with biases have biases"
    hold(not biased, rule, f"{path} has {min(biased, default='')}", _OTHER)
    for key in ("context_length", "attention.layer_norm_rms_epsilon"):
        hold(f"{family}.{key}" in facts, f"a GGUF says its {key}", f"{path} does not", _OTHER)
    experts = facts.get(f"{family}.expert_count")
    hold(not experts, "a GGUF holds a model without experts", path, _OTHER)

    kind: Any = "gpt-2"
    if facts.get("tokenizer.ggml.model") == "gpt2":
        kind = facts.get("tokenizer.ggml.pre")
    if kind == "smollm":
        # transformers does not know it, and would leave digits together and spaces before them
        # apart
        from tokenizers import pre_tokenizers as pre

        digits = pre.Digits(individual_digits=True)
        return pre.Sequence([digits, pre.ByteLevel(add_prefix_space=False)])
    kinds = "gpt-2, smollm, llama-bpe, qwen2, ..."
    rule = f"it is known how the tokenizer of a GGUF splits text ({kinds})"
    hold(kind == "gpt-2" or kind in GGUF_PRE_TOKENIZER_SPLITS, rule, f"{path} names {kind}", _OTHER)
    return None


def _write(path: Path, folder: Path, sha: str, split: Any) -> None:
    """Fill the new `folder`: configuration, weights, tokenizer with its chat template, record."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    given: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    rule = "transformers can read the GGUF file"
    # A folder where it is alone: transformers prefers another model's files that lie beside it.
    with TemporaryDirectory() as alone, holding(Exception, rule, path, _OTHER):
        Path(alone, path.name).symlink_to(path.absolute())
        with contextlib.redirect_stderr(io.StringIO()):  # bars that no setting turns off
            model, info = AutoModelForCausalLM.from_pretrained(
                alone,
                trust_remote_code=False,
                dtype=torch.bfloat16,
                output_loading_info=True,
                **given,
            )
            tokenizer: Any = AutoTokenizer.from_pretrained(alone, trust_remote_code=False, **given)
    config = {key: value for key, value in model.config.to_dict().items() if key not in _LEFT}
    shape = Architecture.of(config)
    weights = model.state_dict()
    kept = dict[str, Any]()
    for name, size in shape.tensors().items():
        tensor = weights.get(name, torch.empty(0))
        there = name not in info["missing_keys"] and tuple(tensor.shape) == size
        whole = there and bool(tensor.isfinite().all())
        hold(whole, f"a GGUF holds {name} as finite numbers of shape {size}", path, _OTHER)
        kept[name] = tensor.contiguous()
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    config["architectures"] = [type(model).__name__]
    type(model.config).from_dict(config).save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    if split is not None:
        tokenizer.backend_tokenizer.pre_tokenizer = split
    tokenizer.model_max_length = shape.context
    tokenizer.save_pretrained(folder)
    seal(folder, {"gguf": sha, "protocol": ""})
