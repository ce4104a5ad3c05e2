"""The reference policy of the KL term: the start model, or an average that follows the policy (EMA-PG).

Owns its weights. Promises a float32 master of every weight and buffer, whatever the model's own type, so that no update
is lost to rounding, and that an anchor which equals the policy does not move at all. An average works tensor by tensor, so
each rank of a sharded policy may keep the average of its own shards. Refuses to know the KL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import torch
from torch import Tensor, nn

from ssp.base.errors import InvariantError

Named = Iterable[tuple[str, Tensor]]
"""Tensors by name: whole weights, or one rank's shards of them. What is not of floating type is passed over."""


class Average:
    """`tensors`, written in place. After update t with t mod `every` = 0: mean ← tau mean + (1 - tau) policy (tau 1: never).

    Source: EMA-PG (arXiv 2602.04417); its code averages in the reference's bfloat16, which loses slow drift. Here the mean
    is kept in float32 (a float32 tensor is its own master) and cast to each tensor's type.
    """

    def __init__(self, tensors: Named, tau: float = 1.0, every: int = 10) -> None:
        self._tensors = dict(_floating(tensors))
        self._tau, self._every = tau, every
        self._master = {name: tensor.float() for name, tensor in self._tensors.items()} if tau < 1 else {}

    @property
    def moves(self) -> bool:
        """Whether it follows the policy, so that its weights belong into a checkpoint."""
        return self._tau < 1

    @property
    def master(self) -> dict[str, Tensor]:
        """The float32 means by name, which are what a checkpoint must keep; empty for one that does not move."""
        return self._master

    def due(self, step: int) -> bool:
        """Whether update number `step` is taken in, so that a caller gathers the policy's tensors only then."""
        return self.moves and step > 0 and step % self._every == 0

    @torch.no_grad()
    def follow(self, policy: Named, step: int) -> None:
        """Take in the policy's tensors after its update number `step`.

        InvariantError, with nothing changed, when they are not those of the average by name and shape.
        """
        if not self.due(step):
            return
        for name, tensor in self._matched(policy).items():
            self._master[name].lerp_(tensor.to(self._master[name]), 1.0 - self._tau)
        self._cast()

    @torch.no_grad()
    def take(self, stored: Named) -> None:
        """Become what a checkpoint holds. InvariantError as in `follow`."""
        goal = self._master or self._tensors
        for name, tensor in self._matched(stored).items():
            goal[name].copy_(tensor)
        self._cast()

    def _cast(self) -> None:
        for name, master in self._master.items():
            if self._tensors[name].dtype != torch.float32:
                self._tensors[name].copy_(master)

    def _matched(self, tensors: Named) -> dict[str, Tensor]:
        given = dict(_floating(tensors))
        ours = {name: tensor.shape for name, tensor in self._tensors.items()}
        if {name: tensor.shape for name, tensor in given.items()} != ours:
            odd = sorted(name for name in {*ours, *given} if name not in given or ours.get(name) != given[name].shape)
            raise InvariantError(f"an average follows tensors of its own names and shapes, unlike {', '.join(odd[:3])}")
        return given


def named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Weights and buffers of a model by name."""
    return chain(model.named_parameters(), model.named_buffers())


def _floating(tensors: Named) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors:
        if tensor.is_floating_point():
            yield name, tensor.detach()
