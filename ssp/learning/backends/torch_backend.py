"""Training by torch alone, in one process: AdamW.

Promises float32 weights and optimizer state whatever the computation's type. Refuses to know what is trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ssp.config.role import LearnerConfig
from ssp.learning.anchor import named
from ssp.learning.backends.backend import moved, trained
from ssp.learning.backends.ranks import SOLO, Ranks, device


class TorchBackend:
    """See `Backend`. On a GPU where there is one, else on as many threads as torch is set to."""

    local, shards, parted = True, False, False

    ranks: Ranks = SOLO

    def __init__(self, module: nn.Module, config: LearnerConfig, lr: float) -> None:
        self.device = device()
        self.module = module.to(self.device)
        self._config, self._lr, self._low = config, lr, config.dtype == "bfloat16"
        self._parameters = trained(self.module)
        self.optimizer = torch.optim.AdamW(
            self._parameters,
            lr=lr,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            fused=self.device.type == "cuda",
        )

    @property
    def layout(self) -> dict[str, Any]:
        """See `Backend`."""
        return {"kind": "torch"}

    def __call__(self, *args: Any, **options: Any) -> Any:
        """See `Backend`. bfloat16: matrix products in it, the rest in float32."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._low):
            return self.module(*moved(args, self.device), **options)

    def zero(self) -> None:
        """See `Backend`."""
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor, last: bool) -> None:
        """See `Backend`."""
        loss.backward()

    def step(self, lr: float) -> float:
        """See `Backend`."""
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self._config.max_grad_norm))
        if not math.isfinite(norm):
            self.zero()
            return norm
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        return norm

    def whole(self, parameters: Sequence[nn.Parameter]) -> AbstractContextManager[Any]:
        """See `Backend`."""
        return nullcontext()

    def local_tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """See `Backend`."""
        return named(self.module.get_submodule(name))

    def write(self, path: Path, weights: bool) -> None:
        """See `Backend`: one file."""
        state = self.optimizer.state_dict()
        torch.save({"net": self.module.state_dict(), "optimizer": state} if weights else state, _file(path))

    def read(self, path: Path, weights: bool) -> None:
        """See `Backend`. The learning rate stays the config's."""
        state = torch.load(_file(path), map_location="cpu", weights_only=True)
        if weights:
            self.module.load_state_dict(state["net"])
            state = state["optimizer"]
        self.optimizer.load_state_dict(state)
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr


def _file(path: Path) -> Path:
    return path.with_name(f"{path.name}.pt")
