"""The KL of one role's policy to its reference: where it acts, its coefficient, and the reference itself.

Owns the way from `kl.*` to a term of the loss or a penalty on tokens. Promises one coefficient and one anchor a role, and
that nothing is computed while `kl.coef` is 0. Refuses to know the policy loss and the estimator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ssp.config.role import KlConfig
from ssp.learning import kl
from ssp.learning.anchor import Average, Named
from ssp.learning.backends.backend import Backend
from ssp.learning.batch import Batch
from ssp.learning.figures import Figures
from ssp.learning.forward import Compare
from ssp.learning.kl import TopK, importance
from ssp.learning.memory import Memory
from ssp.learning.pieces import measured


class Divergence:
    """KL to the model that `adopt` gives. `temperature` divides the logits of both."""

    def __init__(self, config: KlConfig, temperature: float) -> None:
        """InputError for an unknown kind."""
        self._config, self._temperature = config, temperature
        self._estimator = kl.get(config.kind)
        self._top = TopK(config.topk, config.variant, config.weight_low, config.weight_high)
        self._control = kl.Controller(config.coef, config.target, config.horizon)
        self._anchor: Average | None = None
        self.reference: Any = None

    def adopt(self, reference: Any, tensors: Named = ()) -> None:
        """Hold the policy to `reference`, a model as `ssp.learning.forward.score` takes one. `tensors`: what of it this
        rank keeps, by name, where it is to follow the policy."""
        self.reference = reference
        self._anchor = Average(tensors, self._config.ema_tau, self._config.ema_every)

    @property
    def coef(self) -> float:
        """The coefficient as it is now."""
        return self._control.coef

    @property
    def moving(self) -> Average | None:
        """The reference's average when it follows the policy: then it is part of a checkpoint."""
        return self._anchor if self._anchor is not None and self._anchor.moves else None

    @property
    def in_loss(self) -> bool:
        """Whether it is a term of the loss."""
        return self.reference is not None and self._config.place == "loss"

    def against(self, behaviour: Tensor) -> tuple[Compare, Tensor | None]:
        """What the policy's forward pass needs to compare tokens that were drawn with log-probs `behaviour` [M]."""
        return self._compare, behaviour if self._config.weight else None

    def penalty(
        self, policy: Backend, batch: Batch, trained: Tensor, memory: Memory, figures: Figures
    ) -> Tensor | None:
        """float32 [N, T]: coefficient times KL of each trained token, by the log-probs that it was sampled with.

        None without KL, or where it is in the loss. Kinds that need whole distributions do not work here.
        """
        if self.reference is None or self.in_loss:
            return None
        reference = measured(trained, memory, policy, batch.ids, self._temperature, of_reference=True)
        out = torch.zeros(trained.shape)
        out[trained] = self._estimator(batch.logprobs[trained], reference[trained])
        if policy.ranks.rank == 0 and bool(trained.any()):  # all ranks have it, and figures are summed
            figures.add_kl(out[trained])
        return self.coef * out

    def figures(self) -> dict[str, float]:
        """The coefficient by its metric name, where it is steered."""
        return {"kl/coef": self.coef} if self._config.target else {}

    def after(self, figures: Mapping[str, float], episodes: int, policy: Named, step: int) -> None:
        """Steer the coefficient and let the anchor follow `policy`'s tensors, once update `step` on so many episodes is
        done."""
        if self._anchor is not None:
            if "kl" in figures:
                self._control.update(figures["kl"], episodes)
            self._anchor.follow(policy, step)

    def restore(self, anchor: Named | None, coef: float | None) -> None:
        """Go on from a checkpoint's anchor and, where the coefficient is steered, its coefficient."""
        if self._anchor is not None and anchor is not None:
            self._anchor.take(anchor)
        if self._config.target and coef is not None:
            self._control.coef = coef

    def _compare(self, policy: Tensor, reference: Tensor, sampled: Tensor, behaviour: Tensor | None) -> Tensor:
        if getattr(self._estimator, "distributions", False):
            value: Tensor = self._estimator(policy, reference, sampled, behaviour, self._top)
            return value
        own = policy.gather(1, sampled[:, None]).squeeze(1)
        value = self._estimator(own, reference.gather(1, sampled[:, None]).squeeze(1))
        return value if behaviour is None else value * importance(own, behaviour, self._top.low, self._top.high)
