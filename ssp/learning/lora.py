"""Low-rank adapters (LoRA) on a policy, through peft: put on, left out, merged, written and read.

A fresh adapter changes nothing and is the same on every rank; published weights carry Hugging Face
names with the adapter merged in float32. Source: Hu et al. 2021 (arXiv 2106.09685)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from ssp.base.errors import hold
from ssp.config.role import LoraConfig

if TYPE_CHECKING:
    from peft import LoraConfig as PeftConfig

NAME = "default"
FILE = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What peft puts before the names of an adapter's tensors in `FILE`."""

Whole = Callable[[Sequence[nn.Parameter]], AbstractContextManager[Any]]  # see `Backend.whole`


def _peft(config: LoraConfig) -> PeftConfig:
    from peft import LoraConfig as PeftConfig  # here, because it takes a second to import

    return PeftConfig(
        r=config.rank,
        lora_alpha=config.rank,
        target_modules=list(config.targets),
        task_type="CAUSAL_LM",
    )


def put_on(model: PreTrainedModel, config: LoraConfig, seed: int = 0) -> None:
    """Freeze `model` and give its layers called `config.targets` a trainable adapter. InputError
    when one has no layer."""
    settings = _peft(config)
    from peft import inject_adapter_in_model

    head = model.get_output_embeddings()  # the log-probs are computed from its weight in chunks
    there = set()
    for name, part in model.named_modules():
        if isinstance(part, nn.Linear) and part is not head:
            there.add(name.rpartition(".")[2])
    rule = f"adapters lie on linear layers of the model: {', '.join(sorted(there))}"
    fits = there.issuperset(config.targets)
    hold(fits, rule, ", ".join(config.targets), "leave learner.lora.rank at 0")
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(settings, model)
    for layer in _layers(model).values():
        # Else peft widens what autocast then narrows again, and keeps the wide copy.
        layer.cast_input_dtype_enabled = False
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter(name))
    model.eval()


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name belongs to an adapter."""
    return ".lora_" in name


def _layers(model: nn.Module) -> dict[str, Any]:
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


class Bare:
    """`model` without its adapter, bit for bit, for `ssp.learning.forward.score`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._layers = _layers(model).values()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def base_model(self, *args: Any, **options: Any) -> Any:
        """The model's body. Only in here are the adapters off: what is computed again later has
        them on."""
        for layer in self._layers:
            layer.enable_adapters(False)
        try:
            return self._model.base_model(*args, **options)
        finally:
            for layer in self._layers:
                layer.enable_adapters(True)  # gives the adapters their requires_grad back, too


def weights(model: PreTrainedModel, whole: Whole) -> Iterator[tuple[str, Tensor]]:
    """Parameters by Hugging Face name, adapters merged; each is good until the next one is asked
    for."""
    layers = _layers(model)
    for name, parameter in model.named_parameters():
        if is_adapter(name):
            continue
        plain = name.replace(".base_layer.", ".")
        owner, _, rest = name.partition(".base_layer.")
        if rest != "weight":
            with whole([parameter]):
                yield plain, parameter.detach()
            continue
        layer = layers[owner]
        down = layer.lora_A[NAME].weight
        up = layer.lora_B[NAME].weight
        with whole([parameter, down, up]):
            delta = up.detach().float() @ down.detach().float()
            yield plain, parameter.detach().float() + delta * layer.scaling[NAME]


def adapter(model: PreTrainedModel, whole: Whole) -> Iterator[tuple[str, Tensor]]:
    """The adapter's tensors by peft's names; each is good until the next one is asked for."""
    for name, parameter in _adapters(model).items():
        with whole([parameter]):
            yield PREFIX + name, parameter.detach()


def _adapters(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The adapter's parameters by peft's names in a file, which leave the adapter's own name out."""
    named = [(name, p) for name, p in model.named_parameters() if is_adapter(name)]
    return {name.replace(f".{NAME}.", "."): parameter for name, parameter in named}


def write(folder: Path, tensors: Mapping[str, Tensor], config: LoraConfig) -> None:
    """Write `adapter` to `folder` in peft's layout."""
    folder.mkdir()
    save_file(dict(tensors), folder / FILE)
    _peft(config).save_pretrained(str(folder))


@torch.no_grad()
def read(folder: Path, model: PreTrainedModel) -> None:
    """The inverse of `write`, where parameters are whole. InputError when an adapter of other
    shapes is there."""
    tensors = load_file(folder / FILE)
    ours = {PREFIX + name: parameter for name, parameter in _adapters(model).items()}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    fits = shapes == {name: parameter.shape for name, parameter in ours.items()}
    rule = "the adapter must have the model's shapes"
    step = "set learner.lora as it was"
    hold(fits, rule, folder, step)
    for name, parameter in ours.items():
        parameter.copy_(tensors[name])
