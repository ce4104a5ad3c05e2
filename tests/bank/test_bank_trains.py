"""Others can train on what a bank exports: the Search-R1 recipe, small, on the file as its fixed data set."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from ssp.config.load import names
from ssp.data.readers import read_questions
from ssp.game import corpora
from ssp.record import runfolder
from ssp.selfplay.coordinator import SelfPlay
from ssp.selfplay.evaluator import Evaluator
from ssp.selfplay.questions import files, reader
from ssp.selfplay.report import Report
from ssp.selfplay.scene import read_scene
from ssp.selfplay.settings.tiny import shrunk
from tests.bank.banked import played
from tests.local import local_cast
from tests.selfplay import fakes

RECIPE = "search-r1-qwen2.5-3b-grpo"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bank")
    with pytest.MonkeyPatch.context() as patch:
        fakes.scripted(patch)
        records = reader.read(played(folder / "run", steps=4).folder).records
    files.write_training(folder / "train.parquet", [record for record in records if record.verdict == "valid"])
    return folder / "train.parquet"


@pytest.mark.slow
@pytest.mark.parametrize("source", ["dataset", "bank"])
def test_the_export_trains_with_the_search_r1_recipe(tmp_path: Path, exported: Path, source: str) -> None:
    torch.set_num_threads(1)
    typed = [f"run.dir={tmp_path / 'run'}", f"game.questions={source}", f"data.questions={exported}", "solver.batch=4"]
    assert RECIPE in names()
    cfg = shrunk(RECIPE, [*typed, "eval.final_questions_per_hop=1"])
    scene = read_scene(cfg)
    folder, sink = runfolder.open_run(scene.cfg, RECIPE), fakes.Sink()
    cast = local_cast(scene.cfg, scene.models, corpora.search(scene.cfg), folder.ledger, folder.episodes)
    report = Report(sink, scene.oracle, workers=3, roles=cfg.roles)
    game = SelfPlay(scene.cfg, cast, folder, scene.targets(), report, Evaluator(scene.cfg, scene.sets))
    asyncio.run(asyncio.wait_for(game.run(), 250))
    figures = [values for step, role, values in sink.rows if role == "solver"]
    assert len(figures) == 2 and all(values["grad_norm"] > 0 for values in figures)
    given = {(q.question, q.answers[0]) for q in read_questions(exported)}
    bank = reader.read(folder).records
    assert {(record.question, record.target) for record in bank} <= given and len(bank) == 8
    assert {record.data_source for record in bank} == {"selfplay-run"}
    assert any(attempt.state == "trained" for record in bank for attempt in record.attempts)
