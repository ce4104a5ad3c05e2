"""A whole run in this process: `ssp train` without Ray, with real engines, search, referee, learners, ledger, checkpoints."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ssp.base.episode import Document
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.game.rollout import Search
from ssp.record import runfolder
from ssp.record.ledger import Ledger
from ssp.selfplay.coordinator import SelfPlay
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.report import Report
from ssp.selfplay.scene import read_scene
from tests.local import local_cast
from tests.selfplay.fakes import Sink

SECONDS = 250
"""A run may take so long."""


@dataclass
class Counting:
    inner: Search
    queries: int = 0

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        self.queries += len(queries)
        return self.inner.search(queries, k, corpus)


@dataclass
class Played:
    """A finished run: its configuration as it was played, its folder, the models that it began with, what it said, and how
    often it searched."""

    cfg: Config
    folder: runfolder.RunFolder
    models: dict[str, Path]
    sink: Sink
    searches: int

    def figures(self, role: str) -> list[dict[str, float]]:
        return [values for _, name, values in self.sink.rows if name == role]

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return [dict(row) for row in Ledger(self.folder.ledger, readonly=True)._db.execute(sql)]

    def checkpoint(self, role: str) -> Path:
        state = json.loads(self.folder.state.read_text())
        return self.folder.path / state["folders"][role]


def play(cfg: Config, name: str) -> Played:
    torch.set_num_threads(1)
    scene = read_scene(cfg)
    folder, sink, search = runfolder.open_run(scene.cfg, name), Sink(), Counting(corpora.search(scene.cfg))
    cast = local_cast(scene.cfg, scene.models, search, folder.ledger, folder.episodes)
    report = Report(sink, scene.oracle, workers=3, spec=cfg.spec)
    game = SelfPlay(scene.cfg, cast, folder, scene.targets(), report, Evaluator(scene.cfg, scene.sets))
    asyncio.run(asyncio.wait_for(game.run(), SECONDS))
    return Played(scene.cfg, folder, scene.models, sink, search.queries)
