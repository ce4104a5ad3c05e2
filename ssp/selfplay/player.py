"""The player: episodes of one role, played on one engine.

Owns the engine and the tokenizer of one role. Promises that it uses exactly the weights it was handed (a changed version
reloads and resets every cache), and that transcripts are on disk before the call returns.
Refuses to know rewards, batches or other workers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ssp import build
from ssp.config.schema import Config
from ssp.episode import Episode, Task
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
