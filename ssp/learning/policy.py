"""The policy as one module: what a backend wraps, hooks and calls."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from ssp.learning.forward import Scores, score


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

    def forward(self, *args: Any, reference: bool = False, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        """`ssp.learning.forward.score` of the policy, or of the reference; the fields of its `Scores` in order."""
        scores = score(self.held_to if reference else self.model, *args, **options)
        return scores.logprobs, scores.entropy, scores.kl


def scores(given: tuple[Tensor, Tensor, Tensor]) -> Scores:
    """What `Policy.forward` gave, by name. It gives a tuple because backends put hooks on tensors that they can see."""
    return Scores(*given)


def checkpoint_layers(model: nn.Module) -> None:
    """Keep of each layer only its input; its activations are computed again in the backward pass. Same gradient.

    transformers does so in layers that are in training mode; their parts stay in evaluation mode, without dropout.
    """
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # type: ignore[operator]
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True
