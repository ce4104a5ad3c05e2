"""Low-rank adapters (LoRA) on a policy, through peft: put on, left out, merged, written and read.

Owns the way between adapter and weights. Promises that a fresh adapter changes nothing and is the same on every rank, that
published weights carry Hugging Face names with the adapter merged in float32, and that `Bare` is the policy without it,
bit for bit, without a second model. Refuses to know what trains it. Source: Hu et al. 2021 (arXiv 2106.09685).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftConfig
from peft import get_peft_model_state_dict, inject_adapter_in_model, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from ssp.base.errors import InputError
from ssp.config.role import LoraConfig

NAME = "default"
PREFIX = "base_model.model."
"""What peft puts before the names of an adapter's tensors in a file."""

Whole = Callable[[Sequence[nn.Parameter]], AbstractContextManager[Any]]
"""See `ssp.learning.backends.backend.Backend.whole`."""


def _peft(config: LoraConfig) -> PeftConfig:
    alpha: Any = config.alpha  # peft says int, and divides it by the rank
    return PeftConfig(r=config.rank, lora_alpha=alpha, target_modules=list(config.targets), task_type="CAUSAL_LM")


def put_on(model: PreTrainedModel, config: LoraConfig, seed: int = 0) -> None:
    """Freeze `model` and give its layers called `config.targets` a trainable adapter. InputError when one has no layer."""
    head = model.get_output_embeddings()  # the log-probs are computed from its weight in chunks
    there = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    }
    unknown = [name for name in config.targets if name not in there]
    if unknown or not config.targets:
        rule = f"learner.lora.targets are linear layers of the model: {', '.join(sorted(there))}"
        raise InputError(
            rule, ", ".join(unknown) or "none", "set learner.lora.targets=[q_proj,v_proj] or others of these"
        )
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(_peft(config), model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapter(name))
    model.eval()


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name belongs to an adapter."""
    return ".lora_" in name


class Bare:
    """`model` without its adapter, for `ssp.learning.forward.score`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._layers = [module for module in model.modules() if isinstance(module, LoraLayer)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def base_model(self, *args: Any, **options: Any) -> Any:
        """The model's body. Only in here are the adapters off: what is computed again later has them on."""
        with self._off():
            return self._model.base_model(*args, **options)

    @contextmanager
    def _off(self) -> Iterator[None]:
        # Not by peft's enable_adapters: it also takes the adapters' requires_grad away, in the middle of an update.
        for layer in self._layers:
            layer._disable_adapters = True
        try:
            yield
        finally:
            for layer in self._layers:
                layer._disable_adapters = False


def weights(model: PreTrainedModel, whole: Whole) -> Iterator[tuple[str, Tensor]]:
    """Parameters by Hugging Face name, adapters merged; each is good until the next one is asked for."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    for name, parameter in model.named_parameters():
        if is_adapter(name):
            continue
        owner, _, rest = name.partition(".base_layer.")
        layer = layers.get(owner) if rest == "weight" else None
        if layer is None:
            with whole([parameter]):
                yield f"{owner}.{rest}" if rest else name, parameter.detach()
            continue
        down: Any = layer.lora_A[NAME]
        up: Any = layer.lora_B[NAME]
        with whole([parameter, down.weight, up.weight]):
            delta = up.weight.detach().float() @ down.weight.detach().float()
            yield f"{owner}.weight", parameter.detach().float() + delta * layer.scaling[NAME]


def adapter(model: PreTrainedModel, whole: Whole) -> dict[str, Tensor]:
    """The adapter's tensors by peft's names, copied to the host in float32."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if is_adapter(name)]
    with whole([parameter for _, parameter in named]):
        found = get_peft_model_state_dict(model, state_dict={n: p.detach() for n, p in named}, adapter_name=NAME)
        return {PREFIX + name: tensor.float().cpu().clone() for name, tensor in found.items()}


def write(folder: Path, tensors: Mapping[str, Tensor], config: LoraConfig) -> None:
    """Write `adapter` to `folder` in peft's layout."""
    folder.mkdir()
    save_file(dict(tensors), folder / SAFETENSORS_WEIGHTS_NAME)
    _peft(config).save_pretrained(str(folder))


def read(folder: Path, model: PreTrainedModel) -> None:
    """The inverse of `write`, where parameters are whole. InputError when an adapter of other shapes is there."""
    tensors = {
        name.removeprefix(PREFIX): tensor for name, tensor in load_file(folder / SAFETENSORS_WEIGHTS_NAME).items()
    }
    ours = get_peft_model_state_dict(model, adapter_name=NAME)
    if {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in ours.items()}:
        raise InputError("the adapter must have the model's shapes", folder, "set learner.lora as it was")
    set_peft_model_state_dict(model, tensors, adapter_name=NAME)
