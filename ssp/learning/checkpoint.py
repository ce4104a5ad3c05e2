"""Model folders and checkpoints: the Hugging Face layout, `ssp.json`, and what a learner adds to go
on from it.

A checkpoint folder appears whole or not at all (written aside, then renamed), its model part loads
with `AutoModelForCausalLM`, and a changed, missing or foreign file is refused by name before
anything is taken (laws 6, 8)."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from ssp.base.errors import InputError, InvariantError, hold, holding
from ssp.base.files import sync
from ssp.base.imports import without
from ssp.base.models import TOKENIZER_FILES, WEIGHTS
from ssp.engines.folder import OTHER_FAMILY, PLAIN_LOGITS, ModelFolder
from ssp.learning.backends.ranks import SOLO, Ranks
from ssp.record.manifest import EXACT, check_files, seal

GENERATION = "generation_config.json"
_OF_CONFIGURATIONS = (
    ValueError,
    OSError,
    RecursionError,
    TypeError,
    LookupError,
    AttributeError,
    ImportError,
)
"""What the model library raises of a configuration with values of other kinds, or for a package
that is not here."""


def load_model(folder: Path) -> PreTrainedModel:
    """The folder's model in float32, eval mode (no dropout). InputError naming the file that is
    missing, broken or not as it was written."""
    source = ModelFolder(folder)
    source.check_logits()
    check_files(folder)
    transformers_logging.disable_progress_bar()
    step = "use another checkpoint"
    try:
        with source.plain() as plain:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                plain,
                dtype=torch.float32,
                trust_remote_code=False,
                local_files_only=True,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are refused below, by name
                output_loading_info=True,
            )
    except (SafetensorError, StrictDataclassError, *_OF_CONFIGURATIONS) as error:
        broken = folder / WEIGHTS if isinstance(error, SafetensorError) else folder
        raise InputError("a model folder must load", f"{broken}: {error}", step) from error
    model, info = loaded
    # transformers fills what the file lacks with random numbers and only warns.
    absent = sorted(info["missing_keys"]) or sorted(map(str, info["mismatched_keys"]))
    if absent:
        rule = "weights must hold every parameter in its shape"
        raise InputError(rule, f"{folder} lacks {absent[0]}", step)
    for name, parameter in model.named_parameters():
        fits = bool(torch.isfinite(parameter).all())
        hold(fits, "weights must be finite numbers", f"{name} in {folder} is not", step)
    # The folder's own may be one that transformers refuses to save. `write_policy` copies the file.
    model.generation_config = GenerationConfig.from_model_config(model.config)
    _hold_logits(model.eval(), folder)
    return model


def _hold_logits(model: PreTrainedModel, folder: Path) -> None:
    """InputError for a family that scales or caps its logits, which `forward.py` would leave out
    without a word, and for a model that cannot read two tokens."""
    ids = torch.zeros(1, 2, dtype=torch.long)
    rule = "a model folder's configuration must agree with its weights"
    odd = holding((RuntimeError, *_OF_CONFIGURATIONS), rule, folder, "use another checkpoint")
    with odd, torch.no_grad():
        logits = model(ids).logits
        ours = model.get_output_embeddings()(model.base_model(ids).last_hidden_state)
    gap = float((logits - ours).abs().max())
    family = f"{folder} of the family {model.config.model_type}: up to {gap:.3g} apart"
    hold(gap <= 1e-3, PLAIN_LOGITS, family, OTHER_FAMILY)


def write(
    folder: Path, fill: Callable[[Path], None], record: Mapping[str, Any], ranks: Ranks = SOLO
) -> None:
    """Write a checkpoint to `folder`: every rank's `fill` writes its part aside, then all is
    renamed at once.

    `ssp.json` is `record` plus the SHA-256 of every other file. InvariantError when `folder`
    exists: versions are never used twice. On any failure the unfinished folder is removed and the
    error goes on."""

    def begin() -> Path:
        if folder.exists():
            raise InvariantError(f"a checkpoint folder is written once, but {folder} exists")
        aside = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        return aside

    def finish() -> None:
        seal(aside, record)
        for path in (*aside.rglob("*"), aside):  # what state.json will name is on the disk before
            sync(path)
        os.rename(aside, folder)
        sync(folder.parent)

    aside = ranks.agree(begin)
    try:
        fill(aside)
        ranks.total([0.0])  # all have written
        ranks.agree(finish)
    except BaseException:
        if ranks.rank == 0:
            shutil.rmtree(aside, ignore_errors=True)
        raise


def write_policy(
    folder: Path, model: PreTrainedModel, weights: Mapping[str, Tensor], source: Path
) -> None:
    """Write `weights`, by the names of `model`, in the Hugging Face layout.

    What is not learned is copied from `source`: the tokenizer's files, and the settings for
    generation."""
    folder.mkdir(exist_ok=True)
    # The library would import it only to see whether the model is one of its own.
    with without("deepspeed"):
        model.save_pretrained(folder, state_dict=dict(weights))
    for name in (*TOKENIZER_FILES, EXACT, GENERATION):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
