"""The KL of one role's policy to its reference: where it acts, its coefficient, and the reference itself.

Owns the way from `kl.*` to a term of the loss or a penalty on tokens. Promises one coefficient and one anchor a role, and
that nothing is computed while `kl.coef` is 0. Refuses to know the policy loss and the estimator.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ssp import kl
from ssp.config.role import KlConfig
from ssp.kl_full import TopK, importance
from ssp.learning.anchor import Anchor
from ssp.learning.batch import Batch, lengths, micro_batches
from ssp.learning.figures import Figures
from ssp.learning.forward import Versus, score


class Divergence:
    """KL to the model that `adopt` gives. `temperature` divides the logits of both."""

    def __init__(self, config: KlConfig, temperature: float) -> None:
        """InputError for an unknown kind."""
        self._config, self._temperature = config, temperature
        self._estimator = kl.get(config.kind)
        self._top = TopK(config.topk, config.variant, config.weight_low, config.weight_high)
        self._control = kl.Controller(config.coef, config.target, config.horizon)
        self._anchor: Anchor | None = None

    def adopt(self, reference: PreTrainedModel) -> None:
        """Take `reference` as what the policy is held to."""
        self._anchor = Anchor(reference, self._config.ema_tau, self._config.ema_every)

    @property
    def coef(self) -> float:
        """The coefficient as it is now."""
        return self._control.coef

    @property
    def reference(self) -> PreTrainedModel | None:
        """The reference model, None without KL."""
        return None if self._anchor is None else self._anchor.model

    @property
    def moving(self) -> PreTrainedModel | None:
        """The reference model when it follows the policy: then it is part of a checkpoint."""
        return self._anchor.model if self._anchor is not None and self._anchor.moves else None

    @property
    def in_loss(self) -> bool:
        """Whether it is a term of the loss."""
        return self._anchor is not None and self._config.place == "loss"

    def versus(self, behaviour: Tensor) -> Versus:
        """What `score` needs to compare tokens that were drawn with log-probs `behaviour` [M]."""
        assert self._anchor is not None
        return Versus(self._anchor.model, self._compare, behaviour if self._config.weight else None)

    def penalty(self, batch: Batch, trained: Tensor, token_budget: int, figures: Figures) -> Tensor | None:
        """float32 [N, T]: coefficient times KL of each trained token, by the log-probs that it was sampled with.

        None without KL. Kinds that need whole distributions do not work here (`ssp.config.rules`).
        """
        if self._anchor is None:
            return None
        out, ends = torch.zeros(trained.shape), lengths(trained)
        rows = torch.nonzero(trained.any(dim=1)).squeeze(1)
        for part in micro_batches(ends, rows, token_budget):
            length = int(ends[part].max())
            mask, here = trained[part, :length], torch.zeros(len(part), length)
            with torch.no_grad():
                reference = score(self._anchor.model, batch.ids[part, :length], mask, self._temperature).logprobs
            here[mask] = self._estimator(batch.logprobs[part, :length][mask], reference)
            figures.add_kl(here[mask])
            out[part, :length] = self.coef * here
        return out

    def figures(self) -> dict[str, float]:
        """The coefficient by its metric name, where it is steered."""
        return {"kl/coef": self.coef} if self._config.target else {}

    def after(self, figures: Mapping[str, float], episodes: int, policy: PreTrainedModel, step: int) -> None:
        """Steer the coefficient and let the anchor follow, once update `step` on so many episodes is done."""
        if self._anchor is not None:
            if "kl" in figures:
                self._control.update(figures["kl"], episodes)
            self._anchor.follow(policy, step)

    def restore(self, anchor: PreTrainedModel | None, coef: float | None) -> None:
        """Go on from a checkpoint's anchor and, where the coefficient is steered, its coefficient."""
        if self._anchor is not None and anchor is not None:
            self._anchor.take(anchor)
        if self._config.target and coef is not None:
            self._control.coef = coef

    def _compare(self, policy: Tensor, reference: Tensor, sampled: Tensor, behaviour: Tensor | None) -> Tensor:
        if self._config.kind not in kl.SAMPLED:
            value: Tensor = self._estimator(policy, reference, sampled, behaviour, self._top)
            return value
        own = policy.gather(1, sampled[:, None]).squeeze(1)
        value = self._estimator(own, reference.gather(1, sampled[:, None]).squeeze(1))
        return value if behaviour is None else value * importance(own, behaviour, self._top.low, self._top.high)
