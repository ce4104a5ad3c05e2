"""The reference policy of the KL term: the start model, or an average that follows the policy (EMA-PG).

Owns its weights. Promises a float32 master of every weight and buffer, whatever the model's own type, so that no update
is lost to rounding, and that an anchor which equals the policy does not move at all. Refuses to know the KL.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor
from transformers import PreTrainedModel


class Anchor:
    """`model`, frozen. After update t with t mod `every` = 0: ref ← tau ref + (1 - tau) policy (tau 1: never).

    Source: EMA-PG (arXiv 2602.04417); its code averages in the reference's bfloat16, which loses slow drift.
    """

    def __init__(self, model: PreTrainedModel, tau: float = 1.0, every: int = 10) -> None:
        self.model = model.requires_grad_(False)
        self._tau, self._every = tau, every
        self._master = {name: tensor.detach().float() for name, tensor in _tensors(model)}  # itself where float32

    @property
    def moves(self) -> bool:
        """Whether it follows the policy, so that its weights belong into a checkpoint."""
        return self._tau < 1

    @torch.no_grad()
    def follow(self, policy: PreTrainedModel, step: int) -> None:
        """Take in the policy after its update number `step`."""
        if self._tau >= 1 or step <= 0 or step % self._every:
            return
        for name, tensor in _tensors(policy):
            self._master[name].lerp_(tensor.float(), 1.0 - self._tau)
        self._cast()

    @torch.no_grad()
    def take(self, stored: PreTrainedModel) -> None:
        """Become the anchor of a checkpoint."""
        for name, tensor in _tensors(stored):
            self._master[name].copy_(tensor)
        self._cast()

    def _cast(self) -> None:
        for name, tensor in _tensors(self.model):
            if tensor.dtype != torch.float32:
                tensor.copy_(self._master[name])


def _tensors(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Weights and buffers of floating type."""
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_floating_point():
            yield name, tensor
