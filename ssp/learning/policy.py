"""The policy as one module: what a backend wraps, hooks and calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from ssp.config.role import LearnerConfig
from ssp.learning import checkpoint
from ssp.learning.forward import score
from ssp.learning.packing import enable_packing


class Policy(nn.Module):
    """`model` and, with KL, `reference`: a frozen model, or the same model without its adapter (`lora.Bare`)."""

    def __init__(self, model: PreTrainedModel, reference: Any = None) -> None:
        super().__init__()
        self.model = model
        self.reference = reference if isinstance(reference, nn.Module) else None
        self._bare = None if isinstance(reference, nn.Module) else reference
        self.shapes = {
            name.replace(".base_layer.", "."): list(parameter.shape)
            for name, parameter in model.named_parameters()
            if ".lora_" not in name
        }
        self.adapted = any(".lora_" in name for name, _ in model.named_parameters())

    @property
    def held_to(self) -> Any:
        """The reference, None without KL."""
        return self._bare if self.reference is None else self.reference

    def forward(self, *args: Any, of_reference: bool = False, **options: Any) -> tuple[Tensor, ...]:
        """`ssp.learning.forward.score` of the policy, where it is compared with its reference, or of the reference. A plain
        tuple, because backends put hooks on tensors that they can see."""
        if of_reference:
            return tuple(score(self.held_to, *args))
        return tuple(score(self.model, *args, reference=self.held_to, **options))


def make(source: Path, config: LearnerConfig, held: bool) -> Policy:
    """The model of the folder `source` as `config` has it trained, with what it is `held` to."""
    model = checkpoint.load_model(source)
    reference: Any = None
    if config.lora.rank:
        # Here, because peft takes a second to import.
        from ssp.learning import lora

        lora.put_on(model, config.lora)
        reference = lora.Bare(model) if held else None
    elif held:
        reference = checkpoint.load_model(source).requires_grad_(False)
    prepare(model, config)
    if config.packing and isinstance(reference, nn.Module):
        enable_packing(reference)
    return Policy(model, reference)


def prepare(model: PreTrainedModel, config: LearnerConfig) -> None:
    """Lay rows side by side, and keep of each layer only its input, where `config` says so. Same gradient.

    transformers computes a layer's activations again where the layer is in training mode; its parts stay in evaluation
    mode, without dropout.
    """
    if config.packing:
        enable_packing(model)
    if config.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for module in model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = True
