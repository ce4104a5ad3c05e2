"""What trains a module: forward, backward, step, and its state on disk. `Backend` does it by torch
alone, in one process.

A loss summed over micro-batches and ranks gives the gradient of the sum; weights and optimizer
state are always float32."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ssp.base import devices
from ssp.base.errors import InvariantError
from ssp.config.role import LearnerConfig
from ssp.learning import prefixes
from ssp.learning.backends.ranks import SOLO, Ranks

WEIGHTS = "weights.safetensors"
ONE_PASS = 2**22
"""Trained numbers from which a CPU makes an optimizer step in one pass over memory, in a third of
the time. A smaller policy gains nothing, and its steps stay the same to the bit."""


def named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Weights and buffers of a model by name."""
    return chain(model.named_parameters(), model.named_buffers())


class Backend:
    """Trains the parameters of `module` that require a gradient, at rate `lr`, together with the
    other ranks. Every method but `layout` is collective.

    `device`: where the weights are (`engine.device`). `shards`: `write` writes the weights too,
    every rank its own part. `parted`: a rank keeps only a part of each weight."""

    shards = parted = False

    def __init__(
        self, module: nn.Module, config: LearnerConfig, lr: float, ranks: Ranks = SOLO
    ) -> None:
        self.device = devices.find(config.device)
        self.ranks = ranks
        self.config = config
        self._lr = lr
        self.module = module.to(self.device)
        size = sum(parameter.numel() for parameter in self._trained())
        self.optimizer = self._adamw(fused=self.device.type == "cuda" or size >= ONE_PASS)

    @property
    def layout(self) -> dict[str, Any]:
        """What a checkpoint must have been written with for `read` to take it."""
        return {"kind": "torch"}

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The module's forward pass; tensors among `args` are moved to `device`. bfloat16: matrix
        products in it, the rest in float32."""
        low = self.config.dtype == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=low):
            return self.module(*self._moved(args), **options)

    def shared(self, ids: Tensor, ends: Tensor) -> Sequence[int]:
        """How many first tokens of rows of `ids` [N, T], which end at `ends` [N], are computed with
        an earlier row: none where rows are not packed."""
        return prefixes.shared(ids, ends).common if self.config.packing else ()

    def zero(self) -> None:
        """Forget the gradient."""
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add the gradient of this rank's `loss`; `last`: none follows before `step`."""
        loss.backward()

    def step(self, lr: float) -> float:
        """One clipped optimizer step on the gradients' sum over the ranks; its norm before
        clipping.

        Not finite: nothing has changed, and the gradient is forgotten."""
        (group,) = self.optimizer.param_groups
        norm = float(nn.utils.clip_grad_norm_(group["params"], self.config.max_grad_norm))
        if not math.isfinite(norm):
            self.zero()
            return norm
        group["lr"] = lr
        self.optimizer.step()
        return norm

    def learn(self, loss: float, lr: float) -> float:
        """`step`, where `loss` (of all ranks) and norm are finite. InvariantError, with nothing
        changed, where not."""
        norm = self.step(lr) if math.isfinite(loss) else math.nan
        if not math.isfinite(norm):
            self.zero()
            sizes = f"loss {loss} and gradient norm {norm}"
            raise InvariantError(f"{sizes} of an update must be finite")
        return norm

    def whole(self, parameters: Sequence[nn.Parameter]) -> AbstractContextManager[Any]:
        """In this context the parameters are whole, on every rank, for reading."""
        return nullcontext()

    def local_tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """What this rank keeps of the module's child `name`, by its own names: weights and buffers,
        or shards of them."""
        return named(self.module.get_submodule(name))

    def write(self, path: Path, weights: bool) -> None:
        """Write the optimizer's state to `path`.pt; with `weights`, write the module's to the folder
        `path` too."""
        with path.with_name(f"{path.name}.pt").open("wb") as file:
            try:
                torch.save(self.optimizer.state_dict(), file)
            except RuntimeError as error:  # of torch's writer, which hides what the disk said
                cause = error.__context__
                raise (cause if isinstance(cause, OSError) else error) from None
        if weights:
            path.mkdir()
            save_file(self.module.state_dict(), path / WEIGHTS)

    def read(self, path: Path, weights: bool) -> None:
        """Read back what `write` wrote, bit for bit, where `layout` is the same. The learning rate
        stays the config's, and whether a step is one pass stays as it was made."""
        state = torch.load(path.with_name(f"{path.name}.pt"), map_location="cpu", weights_only=True)
        if weights:
            self.module.load_state_dict(load_file(path / WEIGHTS))
        (own,) = self.optimizer.param_groups
        (group,) = state["param_groups"]
        group |= {"lr": self._lr, "fused": own["fused"]}
        self.optimizer.load_state_dict(state)

    def _moved(self, args: Sequence[Any]) -> list[Any]:
        return [arg.to(self.device) if isinstance(arg, Tensor) else arg for arg in args]

    def _trained(self) -> list[nn.Parameter]:
        """The parameters that require a gradient."""
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    def _adamw(self, fused: bool) -> torch.optim.AdamW:
        """The optimizer of the trained parameters, in one group."""
        return torch.optim.AdamW(
            self._trained(),
            self._lr,
            betas=(0.9, self.config.beta2),
            weight_decay=self.config.weight_decay,
            fused=fused,
        )
