"""Is the cold start good enough to play? Measured by playing, in a world that it never trained in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ssp.base.episode import SOLVER, Episode, Task
from ssp.base.seeds import derive
from ssp.config.role import LimitsConfig
from ssp.engines.torch_engine import TorchEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, rollout
from ssp.game.world import World, tokenizer
from ssp.search import in_memory, local

CORPUS = "exam"
HOPS = (1, 2, 3)
TOPK = 3


class Examiner:
    """Plays in `world` with one set of weights after another. `config`: the model's HF configuration."""

    def __init__(self, config: Mapping[str, Any], world: World, seed: int) -> None:
        self.world, self.seed = world, seed
        self.engine = TorchEngine(config)
        self.renderer = Renderer(protocols.get("mini"), tokenizer.build())
        self._search = local(CORPUS, in_memory(world.documents()))

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Examine these weights from now on (HF names, float32)."""
        self.engine.load(weights, self.engine.version + 1)

    def accuracy(self, questions: int) -> dict[str, float]:
        """`accuracy_<k>hop`: share of right answers among `questions` questions of k hops, one attempt each."""
        result: dict[str, float] = {}
        for k in HOPS:
            asked = self.world.questions(k, questions, derive(self.seed, "exam"))
            episodes = self.play(SOLVER, [{"question": question.text} for question in asked])
            right = [episode.final == question.answer for episode, question in zip(episodes, asked, strict=True)]
            result[f"accuracy_{k}hop"] = float(np.mean(right))
        return result

    def play(self, role: str, fields: list[dict[str, str]]) -> list[Episode]:
        """One episode of `role` for each prompt's fields."""
        tasks = [
            Task(f"exam/{role}/{i}", f"exam/{role}/{i}", role, 0, derive(self.seed, "exam", role, i), field, CORPUS)
            for i, field in enumerate(fields)
        ]
        return rollout(self.engine, self.renderer, self._search, tasks, Settings(LimitsConfig(), 1.0, TOPK))[0]
