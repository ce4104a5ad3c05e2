"""A GGUF file made into a Hugging Face folder, which engines and learners read.

transformers and the library gguf read the file. This module refuses what they would read as another
model than the one that was packed, and promises that the folder is there whole or not at all.
Weights become bfloat16: it rounds off far less than 4 or 8 bits have lost, engine and learner
compute in it where the processor can, and it takes half the place."""

import contextlib
import io
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ssp.base import cache
from ssp.base.errors import InputError, hold, holding
from ssp.base.files import digest
from ssp.base.shape import FAMILIES
from ssp.engines.architecture import Architecture
from ssp.record.manifest import read_record, seal, sound

_OTHER = (
    "take another file of the model, or its Hugging Face folder: ssp download org/name --type model"
)
_LEFT = ("quantization_config", "_model_name_or_path")
_PLAIN = {"scaling.type": "none", "scaling.factor": 1, "scale_linear": 1}


def convert(path: Path, folder: Path, sha256: str = "") -> bool:
    """Make `folder` of the GGUF `path`, whose digest is `sha256` where that is known. False: it is
    there already. InputError for a file that is missing, cut short, no GGUF, of another digest or
    of a model that the engine does not compute, for a library that is missing, and for a folder
    that holds something else."""
    hold(
        path.is_file(),
        "a GGUF is an existing file",
        path,
        "give its path, or see ssp download --list",
    )
    with path.open("rb") as opened:
        start = opened.read(4)
    hold(
        start == b"GGUF",
        "a GGUF file begins with the letters GGUF",
        f"{path} begins with {start!r}",
        _OTHER,
    )
    found = digest(path)
    again = "install the package again, in the version that is known"
    hold(
        found == (sha256 or found),
        f"the published file has the SHA-256 {sha256}",
        f"{path}: {found}",
        again,
    )
    ours = not folder.exists() or (folder.is_dir() and read_record(folder).get("gguf", "") == found)
    rule = "a model gets a folder of its own: new, empty, or made from the same file"
    hold(
        ours or (folder.is_dir() and not any(folder.iterdir())),
        rule,
        folder,
        "give another folder: --to",
    )
    whole = partial(sound, what="gguf")
    if whole(folder):
        return False
    split = _check(path)
    try:
        cache.put(folder, lambda aside: _write(path, aside, found, split), whole)
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise InputError(
            "the folder can be written", f"{folder}: {error.strerror}", "give another: --to"
        ) from error
    return True


def _check(path: Path) -> Any:
    """How text is split before its merges, None: as transformers does it. InputError for a file
    that is cut short, and for a model that would be read as another one."""
    rule = "GGUF files are read by the package gguf, and by transformers from 5.19 on"
    with holding(ImportError, rule, str, "pip install 'ssp[english]'"):
        from gguf import GGUFReader
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
    torn = (ValueError, IndexError, KeyError, TypeError, OverflowError, OSError)
    with holding(torn, "a GGUF file is whole", f"{path} is not", "copy or download it again"):
        reader = GGUFReader(path)
        names = {tensor.name for tensor in reader.tensors}
        said = {
            key: field.contents() for key, field in reader.fields.items() if len(field.data) == 1
        }
    family = said.get("general.architecture")
    rule = f"a GGUF holds a model that the torch engine computes: {', '.join(FAMILIES.values())}"
    hold(family in FAMILIES, rule, f"{path} holds the family {family}", _OTHER)
    # transformers drops all of these without a word, and makes up what is not said.
    told = {key: said.get(f"{family}.rope.{key}", plain) for key, plain in _PLAIN.items()}
    scaled = "rope_freqs.weight" in names or any(
        told[key] not in (plain, 0) for key, plain in _PLAIN.items()
    )
    hold(
        not scaled,
        "positions of a GGUF are plain",
        f"{path} scales them, which transformers does not read",
        _OTHER,
    )
    biased = {name for name in names if name.endswith(".bias")}
    biased = {
        name
        for name in biased
        if family != "qwen2" or name.split(".")[-2] not in ("attn_q", "attn_k", "attn_v")
    }
    hold(
        not biased,
        "of a GGUF only qwen2's q, k and v have biases",
        f"{path} has {min(biased, default='')}",
        _OTHER,
    )
    for key in ("context_length", "attention.layer_norm_rms_epsilon"):
        hold(f"{family}.{key}" in said, f"a GGUF says its {key}", f"{path} does not", _OTHER)
    hold(
        not said.get(f"{family}.expert_count"), "a GGUF holds a model without experts", path, _OTHER
    )
    kind = said.get("tokenizer.ggml.pre") if said.get("tokenizer.ggml.model") == "gpt2" else "gpt-2"
    # unknown to transformers, which would leave digits together and spaces before them apart
    if kind == "smollm":
        from tokenizers import pre_tokenizers as pre

        return pre.Sequence(
            [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]
        )
    rule = (
        "it is known how the tokenizer of a GGUF splits text (gpt-2, smollm, llama-bpe, qwen2, ...)"
    )
    hold(kind == "gpt-2" or kind in GGUF_PRE_TOKENIZER_SPLITS, rule, f"{path} names {kind}", _OTHER)
    return None


def _write(path: Path, folder: Path, found: str, split: Any) -> None:
    """Fill the new `folder`: configuration, weights, tokenizer with its chat template, record."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    given: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    told: dict[str, Any] = {"dtype": torch.bfloat16, "output_loading_info": True}
    # A folder where it is alone: transformers prefers another model's files that lie beside it.
    with (
        TemporaryDirectory() as alone,
        holding(Exception, "transformers can read the GGUF file", path, _OTHER),
    ):
        Path(alone, path.name).symlink_to(path.absolute())
        with contextlib.redirect_stderr(io.StringIO()):  # bars that no setting turns off
            model, info = AutoModelForCausalLM.from_pretrained(
                alone, trust_remote_code=False, **told, **given
            )
            tokenizer: Any = AutoTokenizer.from_pretrained(alone, trust_remote_code=False, **given)
    config = {key: value for key, value in model.config.to_dict().items() if key not in _LEFT}
    shape, weights = Architecture.of(config), model.state_dict()
    for name, size in shape.tensors().items():
        tensor = weights.get(name, torch.empty(0))
        whole = (
            name not in info["missing_keys"]
            and tuple(tensor.shape) == size
            and bool(tensor.isfinite().all())
        )
        hold(whole, f"a GGUF holds {name} as finite numbers of shape {size}", path, _OTHER)
    kept = {name: weights[name].contiguous() for name in shape.tensors()}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    type(model.config).from_dict(
        {**config, "architectures": [type(model).__name__]}
    ).save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    if split is not None:
        tokenizer.backend_tokenizer.pre_tokenizer = split
    tokenizer.model_max_length = shape.context
    tokenizer.save_pretrained(folder)
    seal(folder, {"gguf": found, "protocol": ""})
