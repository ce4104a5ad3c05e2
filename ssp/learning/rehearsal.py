"""Rehearsal: traces that each optimizer step of a role learns again beside the episodes it played.

The loss of a step is its own plus c * mean over the traces' tokens of -log pi, the PPO-ptx term of
InstructGPT (Ouyang et al. 2022, arXiv 2203.02155, equation 2). Law 1 speaks of tokens that a policy
sampled: a trace's tokens are encoded once, where the trace is read, and the ratio to whoever wrote
them enters nothing. What law 1 says of the mask holds here too: only tokens that a trace's policy
wrote have a gradient.

Traces are no episodes of the run: nobody pays or counts them, and the ledger does not know them.
They are counted in episodes, as batches and mini-batches are, so that an optimizer step has as many
whatever their lengths, and each mini-batch its share. Which ones are drawn follows from (seed,
role, update, optimizer step) alone, so that nothing has to be remembered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ssp.base.episode import Episode
from ssp.base.seeds import generator
from ssp.base.values import Values
from ssp.config.role import RoleConfig
from ssp.learning.backends.backend import Backend
from ssp.learning.batch import collate, lengths
from ssp.learning.figures import Figures, Work
from ssp.learning.memory import Job


class Rehearsal:
    """What the role `role` learns again, out of `traces` (scored, at least one)."""

    def __init__(self, config: RoleConfig, traces: Sequence[Episode], role: str, seed: int) -> None:
        self._config = config.rehearsal
        self._temperature = config.sampling.temperature
        self._traces = traces
        self._role = role
        self._seed = seed

    def drawn(self, episodes: int, update: int, step: int) -> list[Episode]:
        """The traces beside so many episodes in optimizer step number `step` (from 0) of `update`
        (from 1). None comes twice before each has come once."""
        rng = generator(self._seed, "rehearsal", self._role, update, step)
        order = rng.permutation(len(self._traces))
        places = np.resize(order, self._config.traces(episodes))
        return [self._traces[place] for place in places.tolist()]

    def job(self, traces: Sequence[Episode], policy: Backend, work: Work, figures: Figures) -> Job:
        """The loss of `traces` in one optimizer step. All ranks are given the same ones, and each
        computes its share of the rows."""
        # Nothing is compared: each stands alone, and earned 1.
        batch = collate(traces, [1.0] * len(traces), range(len(traces)))
        for trace in traces:
            trace.log.packed()  # which collating has undone, and all of them lie in memory
        ends = lengths(batch.mask)
        learns = self._config.coef > 0
        weight = self._config.coef / int(batch.mask.sum())

        def loss(rows: Tensor, figures: Figures) -> Tensor:
            length = int(ends[rows].max())
            mask = batch.mask[rows, :length]
            logprobs, *_ = policy(batch.ids[rows, :length], mask, self._temperature)
            figures.sums["tokens"] += len(logprobs)
            figures.sums["nll"] -= float(logprobs.detach().double().sum())
            common = policy.shared(batch.ids[rows], ends[rows])
            figures.work += work.operations(ends[rows].tolist(), len(logprobs), learns, common)
            return -weight * logprobs.sum()

        rows = torch.nonzero(batch.mask.any(dim=1)).squeeze(1)
        return Job(batch.ids, ends, rows, loss, figures, learns)

    def summary(self, figures: Figures) -> Values:
        """The figures of an update by metric name; none where it rehearsed nothing."""
        if not figures.steps:
            return {}
        tokens = figures.sums["tokens"]
        return {
            "rehearsal/loss": figures.loss / figures.steps,
            "rehearsal/nll": figures.sums["nll"] / tokens,
            "rehearsal/tokens": tokens,
        }
