"""How a learner computes: one process in torch, or several ranks in DeepSpeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from ssp.config.role import LearnerConfig
    from ssp.learning.backends.backend import Backend
    from ssp.learning.backends.ranks import Ranks


def make(module: nn.Module, config: LearnerConfig, lr: float, ranks: Ranks) -> Backend:
    """The backend that `config.kind` names; see `Backend`."""
    # Here, because DeepSpeed takes seconds to import and is not installed everywhere.
    if config.kind == "deepspeed":
        from ssp.learning.backends.deepspeed_backend import DeepSpeedBackend

        return DeepSpeedBackend(module, config, lr, ranks)
    from ssp.learning.backends.backend import Backend

    return Backend(module, config, lr)
