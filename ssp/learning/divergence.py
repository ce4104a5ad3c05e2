"""The KL of one role's policy to its reference: where it acts, its coefficient, and the reference
itself, which is the start model or an average that follows the policy (EMA-PG).

Nothing is computed while `kl.coef` is 0."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ssp.base.errors import InvariantError
from ssp.base.values import Values
from ssp.config.role import KlConfig
from ssp.learning import kl
from ssp.learning.backends.backend import Backend
from ssp.learning.batch import Batch
from ssp.learning.figures import Figures
from ssp.learning.kl import at, importance
from ssp.learning.memory import measured

Named = Iterable[tuple[str, Tensor]]
"""Tensors by name: whole weights and buffers, or one rank's shards of them. What is not of floating
type is passed over."""


class Average:
    """A running mean of a policy, written into `tensors`. After update t with t mod `every` = 0:
    mean ← tau mean + (1 - tau) policy.

    Source: EMA-PG (arXiv 2602.04417); its code averages in the reference's bfloat16, which loses
    slow drift. Here the means are kept in float32 (`master`, which a checkpoint must keep; a
    float32 tensor is its own) and cast to each tensor's type."""

    def __init__(self, tensors: Named, tau: float, every: int) -> None:
        self._tensors = _floating(tensors)
        self._tau = tau
        self._every = every
        self.master = {name: tensor.float() for name, tensor in self._tensors.items()}

    def follow(self, policy: Named, step: int) -> None:
        """Take in the policy's tensors after its update number `step`. InvariantError as in
        `take`."""
        if step > 0 and step % self._every == 0:
            self.take(policy, 1.0 - self._tau)

    @torch.no_grad()
    def take(self, tensors: Named, share: float = 1.0) -> None:
        """Become these tensors, as those of a checkpoint, or move towards them by `share`.
        InvariantError, with nothing changed, when these are not the tensors of the average by name and shape."""
        given = _floating(tensors)
        ours = {(name, tensor.shape) for name, tensor in self.master.items()}
        theirs = {(name, tensor.shape) for name, tensor in given.items()}
        if ours != theirs:
            odd, _ = min(ours ^ theirs)
            rule = "an average follows tensors of its own names and shapes"
            raise InvariantError(f"{rule}, unlike {odd}")
        for name, master in self.master.items():
            if share == 1.0:
                master.copy_(given[name])
            else:
                master.lerp_(given[name].to(master), share)
            if self._tensors[name].dtype != torch.float32:
                self._tensors[name].copy_(master)


def _floating(tensors: Named) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors if tensor.is_floating_point()}


class Divergence:
    """KL to the model that `adopt` gives. `temperature` divides the logits of both."""

    def __init__(self, config: KlConfig, temperature: float) -> None:
        """InputError for an unknown kind."""
        self._config = config
        self._temperature = temperature
        self._estimator = kl.get(config.kind)
        self._whole = config.kind in kl.WHOLE
        self.coef = config.coef
        """The coefficient as it is now."""
        self.reference: Any = None
        self.moving: Average | None = None
        """The reference's average when it follows the policy: then it is part of a checkpoint."""

    def adopt(self, reference: Any, tensors: Named = ()) -> None:
        """Hold the policy to `reference`, a model as `ssp.learning.forward.score` takes one.
        `tensors`: what this rank keeps of a reference that follows the policy, by name."""
        self.reference = reference
        if self._config.ema_tau < 1:
            self.moving = Average(tensors, self._config.ema_tau, self._config.ema_every)

    @property
    def in_loss(self) -> bool:
        """Whether it is a term of the loss."""
        return self.reference is not None and self._config.place == "loss"

    def penalty(
        self, policy: Backend, batch: Batch, trained: Tensor, figures: Figures
    ) -> Tensor | None:
        """float32 [N, T]: coefficient times KL of each trained token, by the log-probs that it was
        sampled with.

        None without KL, or where it is in the loss. Kinds that need whole distributions do not work
        here."""
        if self.reference is None or self.in_loss:
            return None
        # The backend holds the reference's weights; `self.reference` says which they are.
        reference = measured(trained, policy, batch.ids, self._temperature, of_reference=True)
        out = torch.zeros(trained.shape)
        out[trained] = self._estimator(batch.logprobs[trained], reference[trained])
        # all ranks have it, and figures are summed
        if policy.ranks.rank == 0 and bool(trained.any()):
            figures.add_kl(out[trained])
        return self.coef * out

    def after(self, figures: Values, episodes: int, policy: Named, step: int) -> None:
        """Steer the coefficient and let the anchor follow `policy`'s tensors, once update `step` on
        so many episodes is done. Where the coefficient is steered, `figures` get the one that the
        update was made with."""
        if self._config.target:
            figures["kl/coef"] = self.coef
        if "kl/reference" in figures:
            self.coef = kl.steered(self.coef, self._config, figures["kl/reference"], episodes)
        if self.moving is not None:
            self.moving.follow(policy, step)

    def restore(self, anchor: Named | None, coef: float) -> None:
        """Go on from a checkpoint's anchor, and from its coefficient where that is steered."""
        if self.moving is not None and anchor is not None:
            self.moving.take(anchor)
        if self._config.target:
            self.coef = coef

    def compare(
        self, policy: Tensor, reference: Tensor, sampled: Tensor, behaviour: Tensor | None
    ) -> Tensor:
        """The KL of each token, as `ssp.learning.forward.score` asks for it."""
        if self._whole:
            return self._estimator(policy, reference, sampled, behaviour, self._config.topk)
        logprobs = at(policy, sampled)
        value: Tensor = self._estimator(logprobs, at(reference, sampled))
        return value if behaviour is None else value * importance(logprobs, behaviour)
