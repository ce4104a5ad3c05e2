"""Is the cold start good enough to play? Measured by playing, in a world that it never trained in.

Owns the exam of a model: solver accuracy by hops, share of valid and of true proposals, the verifier's acceptance.
Promises temperature 1, the rollout and the referee of real play, draws from the seed only.
Refuses to know training. The oracle is used as a metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ssp import protocols
from ssp.config.role import LimitsConfig
from ssp.config.schema import RefereeConfig
from ssp.engines.torch_engine import TorchEngine
from ssp.episode import PROPOSER, SOLVER, Episode, Task
from ssp.judge import AnswerJudge
from ssp.protocols.renderer import Renderer
from ssp.referee import EngineVerifier, Referee
from ssp.rollout import Settings, rollout
from ssp.search import bm25
from ssp.search.router import LocalSearch
from ssp.seeds import derive
from ssp.world import World, tokenizer

CORPUS = "exam"
HOPS = (1, 2, 3)
TOPK = 3


class Examiner:
    """Plays in `world` with one set of weights after another. `config`: the model's HF configuration."""

    def __init__(self, config: Mapping[str, Any], world: World, seed: int) -> None:
        self.world, self.seed = world, seed
        self._engine = TorchEngine(config)
        self._tokenizer = tokenizer.build()
        self._protocol = protocols.get("mini")
        self._documents = world.documents()
        self._search = LocalSearch({CORPUS: [bm25.build(self._documents)]})

    def load(self, weights: dict[str, np.ndarray]) -> None:
        """Examine these weights from now on (HF names, float32)."""
        self._engine.load(weights, self._engine.version + 1)

    def accuracy(self, questions: int, hops: tuple[int, ...] = HOPS) -> dict[str, float]:
        """`accuracy_<k>hop`: share of right answers among `questions` questions of k hops, one attempt each."""
        result: dict[str, float] = {}
        for k in hops:
            asked = self.world.questions(k, questions, derive(self.seed, "exam"))
            episodes = self._play(SOLVER, [{"question": question.text} for question in asked])
            right = [episode.final == question.answer for episode, question in zip(episodes, asked, strict=True)]
            result[f"accuracy_{k}hop"] = float(np.mean(right))
        return result

    def proposals(self, targets: int) -> dict[str, float]:
        """From `targets` proposals: `proposer_true` (the question's true answer is the target, rules kept),
        `proposer_valid` (the referee took it), `junk` (share of taken ones that are not true), `hops` (mean of taken
        ones), `verifier_recall` (share of true ones that it took), `verifier_recall_<k>hop`.
        """
        pool = self.world.targets()
        chosen = [pool[i % len(pool)] for i in range(targets)]
        episodes = self._play(PROPOSER, [{"target": target} for target in chosen])
        cfg = RefereeConfig()
        verifier = EngineVerifier(self._engine, Renderer(self._protocol, self._tokenizer), cfg)
        referee = Referee(cfg, self._protocol, verifier, AnswerJudge(), self.seed)
        verdicts = referee.check(episodes, chosen, lambda episode: self._documents)
        lawful = np.array(
            [verdict.valid or verdict.rule in ("not_answerable", "unquoted_evidence") for verdict in verdicts]
        )
        asked = [episode.final or "" for episode in episodes]
        right = np.array([not self.world.is_junk(q, t) for q, t in zip(asked, chosen, strict=True)]) & lawful
        taken = np.array([verdict.valid for verdict in verdicts])
        hops = np.array([self.world.hops(question) for question in asked])
        result = {
            "proposer_true": float(right.mean()),
            "proposer_valid": float(taken.mean()),
            "junk": _share(~right, taken),
            "hops": float(hops[taken].mean()) if taken.any() else 0.0,
            "verifier_recall": _share(taken, right),
        }
        for k in HOPS:
            result[f"verifier_recall_{k}hop"] = _share(taken, right & (hops == k))
            result[f"proposer_share_{k}hop"] = _share(hops == k, lawful)
        return result

    def _play(self, role: str, fields: list[dict[str, str]]) -> list[Episode]:
        tasks = [
            Task(f"exam/{role}/{i}", f"exam/{role}/{i}", role, 0, derive(self.seed, "exam", role, i), field, CORPUS)
            for i, field in enumerate(fields)
        ]
        renderer = Renderer(self._protocol, self._tokenizer)
        return rollout(self._engine, renderer, self._search, tasks, Settings(LimitsConfig(), 1.0, TOPK))[0]


def _share(of: np.ndarray, among: np.ndarray) -> float:
    return float(of[among].mean()) if among.any() else 0.0
