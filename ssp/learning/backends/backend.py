"""What a learner asks of the program that trains a module: forward, backward, step, and its state on disk.

Owns the interface, and the choice by `learner.kind`. Promises that a loss summed over micro-batches and ranks gives the
gradient of the sum, whatever the backend. Refuses to know what is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ssp.config.role import LearnerConfig
from ssp.learning.backends.ranks import SOLO, Ranks


class Backend(Protocol):
    """Trains `module` on `device`, together with the other ranks. Every method but `layout` is collective."""

    module: nn.Module
    device: torch.device
    ranks: Ranks
    local: bool
    """Whether forward and backward need no other rank: then a rank may fail alone, and begin again."""
    shards: bool
    """Whether `write` writes the weights too, every rank its own part."""
    parted: bool
    """Whether a rank keeps only a part of each weight."""

    @property
    def layout(self) -> dict[str, Any]:
        """What a checkpoint must have been written with for `read` to take it."""
        ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The module's forward pass; tensors are moved to `device`."""
        ...

    def zero(self) -> None:
        """Forget the gradient."""
        ...

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add the gradient of this rank's `loss`; `last`: none follows before `step`."""
        ...

    def step(self, lr: float) -> float:
        """One clipped optimizer step on the gradients' sum over the ranks; its norm before clipping.

        Not finite: nothing has changed, and the gradient is forgotten.
        """
        ...

    def whole(self, parameters: Sequence[nn.Parameter]) -> AbstractContextManager[Any]:
        """In this context the parameters are whole, on every rank, for reading."""
        ...

    def local_tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """What this rank keeps of the module's child `name`, by its own names: weights and buffers, or shards of them."""
        ...

    def write(self, path: Path, weights: bool) -> None:
        """Write the optimizer's state, with `weights` also the module's, to files whose names begin with `path`."""
        ...

    def read(self, path: Path, weights: bool) -> None:
        """The inverse of `write`, bit for bit, where `layout` is the same."""
        ...


def make(module: nn.Module, config: LearnerConfig, lr: float, ranks: Ranks = SOLO) -> Backend:
    """The backend that `config.kind` names; trains the parameters of `module` that require a gradient, at rate `lr`."""
    # Here, because DeepSpeed takes seconds to import and is not installed everywhere.
    if config.kind == "deepspeed":
        from ssp.learning.backends.deepspeed_backend import DeepSpeedBackend

        return DeepSpeedBackend(module, config, lr, ranks)
    from ssp.learning.backends.torch_backend import TorchBackend

    return TorchBackend(module, config, lr)


def moved(values: Any, device: torch.device) -> Any:
    """Tensors of an argument list on `device`."""
    if isinstance(values, Tensor):
        return values.to(device)
    if isinstance(values, (tuple, list)):
        return type(values)(moved(value, device) for value in values)
    return values


def trained(module: nn.Module) -> list[nn.Parameter]:
    """Parameters that require a gradient."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]
