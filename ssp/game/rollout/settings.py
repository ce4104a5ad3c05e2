"""How a role plays: its limits, who answers its searches, its tools, and the agent that plays
instead of the loop."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssp.config.role import LimitsConfig, SourceConfig
from ssp.game.rollout.tools import Runs, Tools


class Source:
    """Who answers the searches of one episode: the retriever, or the policy itself."""

    def __init__(self, cfg: SourceConfig) -> None:
        self._cfg = cfg
        self._asked = 0
        self._before = math.inf

    @property
    def searching(self) -> bool:
        """Whether a search ends the next turn; else the policy writes on and answers itself."""
        if self._cfg.kind == "self":
            return False
        return not self._cfg.real or self._asked < self._cfg.real

    @property
    def recalls(self) -> bool:
        """Whether information that the policy writes is marked as recalled, and not trained."""
        return self._cfg.kind != "retriever"

    @property
    def measures(self) -> bool:
        """Whether `real` wants the log-probs of the query's tokens."""
        return self._cfg.kind == "entropy"

    def real(self, uncertainty: float = 0.0) -> bool:
        """Whether this search goes out. `uncertainty`: `sampled_entropy` of its query. Where that
        is measured, the first search goes out, and each whose uncertainty has risen; a tie is no
        rise."""
        first = self._asked == 0
        risen = uncertainty > self._before
        self._asked += 1
        self._before = uncertainty
        return not self.measures or first or risen


def sampled_entropy(logprobs: Sequence[float]) -> float:
    """Mean of -p log2 p over sampled tokens, in bits; 0 for none. SSRL calls it entropy; it sees
    only what was drawn."""
    nats = sum(-math.exp(logprob) * logprob for logprob in logprobs)
    return nats / math.log(2) / max(1, len(logprobs))


@dataclass(frozen=True)
class Agent:
    """Code that plays an episode. `solve` gets an `AgentPlayer` and returns the answer. `seconds`:
    its deadline. `mistakes`: exceptions by which it says that the policy did wrong."""

    solve: Callable[[Any], Awaitable[Any]]
    seconds: float
    mistakes: tuple[type[Exception], ...] = ()


@dataclass(frozen=True)
class Settings:
    """Settings of a rollout. `topk`: documents of a query. `said`: the file that keeps what an agent
    says of its troubles; None: the standard error does."""

    limits: LimitsConfig
    temperature: float
    topk: int
    source: SourceConfig = field(default_factory=SourceConfig)
    tools: Runs = field(default_factory=Tools)
    agent: Agent | None = None
    said: Path | None = None
