"""The workers: what a player, a judge and a learner do in one call, whoever calls them.

Owns engines, tokenizers and models of one role. Promises that a player uses exactly the weights it was handed (a
changed version reloads and resets every cache), and that transcripts are on disk before the call returns.
Refuses to know rewards, batches or other workers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ssp import build, protocols
from ssp.config.schema import Config
from ssp.engines import Engine
from ssp.episode import PROPOSER, SOLVER, Episode, Grade, Outcome, Task, Verdict
from ssp.errors import InputError, InvariantError
from ssp.judge import Item
from ssp.referee import EndpointVerifier, EngineVerifier, Referee
from ssp.referee.verifier import Verifier
from ssp.rewards.score import graded
from ssp.rollout import Search, rollout
from ssp.selfplay.records import Brief, PlayReport
from ssp.telemetry import episodes as transcripts

Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class PlayOrder:
    """How a block is played: sampling temperature, and the file stem of its transcripts ("" = none are written)."""

    temperature: float
    stem: str


class Player:
    """Plays episodes of one role with one engine: the proposer or the solver."""

    def __init__(self, cfg: Config, role: str, model_dir: Path, search: Search, episodes_dir: Path) -> None:
        self._cfg, self._role, self._search, self._dir = cfg, role, search, Path(episodes_dir)
        block = cfg.block(role)
        self._renderer = build.renderer(cfg, role, model_dir)
        self._engine = build.engine(block, model_dir)
        self._version: int | None = None

    def play(
        self, tasks: Sequence[Task], order: PlayOrder, version: int, weights: Weights
    ) -> tuple[list[Episode], PlayReport]:
        """Play `tasks` to the end with the weights of `version`; the block keeps the tasks' order."""
        started = time.perf_counter()
        if self._version != version:
            self._engine.load(weights, version)
            self._version = version
        loaded = time.perf_counter()
        settings = build.settings(self._cfg, self._role, order.temperature)
        block, seconds = rollout(self._engine, self._renderer, self._search, list(tasks), settings)
        seconds["sync"] = loaded - started
        file = ""
        if order.stem:
            file = f"{order.stem}.parquet"
            writing = time.perf_counter()
            transcripts.write(self._dir / file, block)
            seconds["write"] = time.perf_counter() - writing
        seconds["busy"] = time.perf_counter() - started
        return block, PlayReport([Brief.of(e, file, row) for row, e in enumerate(block)], seconds)


class Judge:
    """The referee's verifier and the answer judge; `frozen` verifies with the start checkpoint."""

    def __init__(self, cfg: Config, model_dir: Path) -> None:
        self._cfg = cfg
        self._judge = build.judge(cfg, judge_seconds(cfg))
        self._engine: Engine | None = None
        self._referee: Referee | None = None
        if PROPOSER in cfg.roles:
            self._engine, verifier = _verifier(cfg, model_dir)
            self._referee = Referee(cfg.referee, protocols.get(cfg.protocol), verifier, self._judge, cfg.seed)
        self._version: int | None = None

    def verify(
        self, block: list[Episode], targets: list[str], version: int = -1, weights: Weights | None = None
    ) -> tuple[list[Verdict], float]:
        """One verdict an episode, and the seconds it took. With weights, the live solver of `version` verifies."""
        if self._referee is None:
            raise InvariantError("nobody proposes in this game, so there is nothing to verify")
        started = time.perf_counter()
        if weights is not None and self._engine is not None and self._version != version:
            self._engine.load(weights, version)
            self._version = version

        found = {document.id: document for episode in block for document in episode.documents}
        pool = [document for _, document in sorted(found.items())]
        verdicts = self._referee.check(block, targets, lambda episode: pool)
        return verdicts, time.perf_counter() - started

    def grade(self, block: list[Episode], items: Sequence[tuple[int, str, Sequence[str]]]) -> tuple[list[Grade], float]:
        """A grade for each (row of the block, question, gold answers), and the seconds it took."""
        started = time.perf_counter()
        decisions = self._judge.decide([Item(question, golds, block[row].final) for row, question, golds in items])
        grades = [
            graded(self._cfg.solver, block[row], golds, decision)
            for (row, _, golds), decision in zip(items, decisions, strict=True)
        ]
        return grades, time.perf_counter() - started

    def answers(self) -> bool:
        """Whether the endpoint that it asks, if any, gives a verdict now; found out past the breaker."""
        if self._cfg.judge.kind == "engine":
            return True
        try:
            build.check_judge(self._cfg, judge_seconds(self._cfg))
        except InputError:
            return False
        return True


def judge_seconds(cfg: Config) -> float:
    """What asking the endpoint may take at once. A call asks twice at most, and blocks may wait for the same judge."""
    place = cfg.placement
    waiting = -(-max(place.proposers, place.solvers) // place.judges)
    return 0.4 * place.call_timeout / waiting


def _verifier(cfg: Config, model_dir: Path) -> tuple[Engine | None, Verifier | None]:
    """Who answers a question from its evidence, and the engine that it runs on, if any."""
    if cfg.referee.verifier == "none":
        return None, None
    renderer = build.renderer(cfg, SOLVER, model_dir)
    if cfg.referee.verifier == "judge":
        return None, EndpointVerifier(build.endpoint(cfg, judge_seconds(cfg)), renderer, cfg.referee)
    engine = build.engine(cfg.solver, model_dir)
    return engine, EngineVerifier(engine, renderer, cfg.referee)


class Learner:
    """One role's learner: episodes in, new weights out. The KL reference is the start model `model_dir`."""

    def __init__(self, cfg: Config, role: str, model_dir: Path) -> None:
        # Here, because players and judges use this module too and should start without transformers' models.
        from ssp.learning.learner import TorchLearner

        block = cfg.block(role)
        self._temperature = block.sampling.temperature
        self._inner = TorchLearner(Path(model_dir), block, protocol=protocols.get(cfg.protocol).id, steps=cfg.steps)

    def weights(self) -> tuple[Weights, dict[str, float]]:
        """Current weights under Hugging Face names (numpy, float32)."""
        return self._inner.weights(), {}

    def update(
        self, plan: list[tuple[int, int, float, int]], *blocks: list[Episode]
    ) -> tuple[Weights, dict[str, float]]:
        """One learner step on `plan`: (block, row, reward, group) an episode, in batch order.

        InvariantError for an episode that a fault voided while it was played.
        """
        from ssp.learning.batch import collate

        started = time.perf_counter()
        chosen = [_scored(blocks[block][row]) for block, row, _, _ in plan]
        batch = collate(chosen, [reward for _, _, reward, _ in plan], [group for _, _, _, group in plan])
        stats = self._inner.update(batch)
        stats["busy"] = time.perf_counter() - started
        return self._inner.weights(), stats

    def save(self, folder: str, meta: dict[str, Any]) -> None:
        """Write a checkpoint folder (Hugging Face layout and optimizer), aside and renamed."""
        self._inner.save(Path(folder), meta)

    def load(self, folder: str) -> None:
        """Read a checkpoint folder back: weights, optimizer, algorithm state."""
        self._inner.load(Path(folder))


def _scored(episode: Episode) -> Episode:
    """The episode as a learner wants it. The block was made before grading; the coordinator knows the outcome since."""
    if episode.outcome is Outcome.VOID:
        raise InvariantError(f"episode {episode.id} is void ({episode.cause}) and may not be trained")
    return replace(episode, outcome=Outcome.SCORED)
