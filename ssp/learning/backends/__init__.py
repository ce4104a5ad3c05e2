"""How a learner computes: one process in torch, or several ranks in DeepSpeed."""

from torch import nn

from ssp.config.role import LearnerConfig
from ssp.learning.backends.backend import Backend
from ssp.learning.backends.deepspeed_backend import DeepSpeedBackend
from ssp.learning.backends.ranks import Ranks


def make(module: nn.Module, config: LearnerConfig, lr: float, ranks: Ranks) -> Backend:
    """The backend that `config.kind` names."""
    kind = DeepSpeedBackend if config.kind == "deepspeed" else Backend
    return kind(module, config, lr, ranks)
