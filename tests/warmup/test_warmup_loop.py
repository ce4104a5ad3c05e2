"""A warm start learns what the policy should have said, and nothing else of the trace."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import lessons
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ssp.base.crew import LocalCrew
from ssp.base.episode import Episode, Outcome
from ssp.base.errors import InputError
from ssp.config.schema import Config, WarmupConfig
from ssp.learning.warmup import loop, traces
from ssp.learning.warmup.taught import PlanItem, Taught
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build
from ssp.selfplay.workers.learner import Learner
from tests.blocks import made

ROWS = 32


@pytest.fixture(scope="module")
def cfg() -> Config:
    return load("quickstart", ["solver.learner.lr=2e-3", "solver.learner.token_budget=2048"])


@pytest.fixture(scope="module")
def folder(cfg: Config) -> Path:
    return Path(build.model_dir(cfg, "solver"))


@pytest.fixture(scope="module")
def episodes(cfg: Config, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    """Transcripts of the shipped policy's own protocol; answers that it would not have given."""
    told = traces.read(lessons.write(tmp_path_factory.mktemp("lessons") / "traces.jsonl", ROWS))
    return traces.episodes(told, build.renderer(cfg, "solver", folder), cfg.solver.limits, 3)


def run(
    cfg: Config, folder: Path, episodes: list[Episode], warmup: WarmupConfig
) -> tuple[loop.Summary, list[float], LocalCrew]:
    taught = replace(cfg, solver=loop.recipe(cfg.solver), steps=loop.steps(len(episodes), warmup))
    crew, seen = LocalCrew(Taught, "learner", lambda i: Learner(taught, "solver", folder)), []
    progress = loop.Progress(lambda values: seen.extend([values["nll"]] if "nll" in values else []))
    summary = asyncio.run(loop.train(crew[0], episodes, warmup, 0, progress))
    return summary, seen, crew


@pytest.mark.covers("SR-08")
def test_sft_on_32_transcripts_lowers_the_loss(
    cfg: Config, folder: Path, episodes: list[Episode], tmp_path: Path
) -> None:
    warmup = made(WarmupConfig, epochs=3, batch=8, heldout=0.25)
    summary, seen, crew = run(cfg, folder, episodes, warmup)
    assert (summary.steps, summary.learned, summary.heldout) == (9, 24, 8) == (len(seen), 24, 8)
    assert seen[-1] < 0.8 * seen[0]
    assert summary.before is not None and summary.after is not None and summary.after < summary.before

    asyncio.run(crew[0].export(str(tmp_path / "out"), {"role": "solver"}))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    start = AutoModelForCausalLM.from_pretrained(folder)
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), start.parameters(), strict=True))
    build.check_policy(cfg, "solver", tmp_path / "out")


def test_the_figure_is_the_mean_negative_log_prob_of_what_the_policy_wrote(
    cfg: Config, folder: Path, episodes: list[Episode]
) -> None:
    learner = Learner(replace(cfg, solver=loop.recipe(cfg.solver)), "solver", folder)
    figures = learner.measure([PlanItem(0, row, 1.0, row) for row in range(4)], episodes[:4])
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    total, tokens = 0.0, 0
    for episode in episodes[:4]:
        ids = torch.tensor([episode.log.ids])
        with torch.no_grad():
            logprobs = torch.log_softmax(model(ids).logits[0, :-1].double(), -1)
        mask = episode.log.mask[1:]
        total -= float(logprobs[np.arange(len(mask)), ids[0, 1:]][torch.from_numpy(mask)].sum())
        tokens += int(mask.sum())
    assert figures["tokens"] == tokens
    assert figures["nll"] == pytest.approx(total / tokens, abs=1e-5)


def test_only_what_the_policy_wrote_counts(cfg: Config, folder: Path, episodes: list[Episode]) -> None:
    learner = Learner(replace(cfg, solver=loop.recipe(cfg.solver)), "solver", folder)
    silent = [replace(episode, outcome=Outcome.SCORED) for episode in episodes[:1]]
    before = learner.measure([PlanItem(0, 0, 1.0, 0)], silent)
    assert before["tokens"] == silent[0].log.mask.sum() < len(silent[0].log)


def test_all_held_out_is_refused(cfg: Config, folder: Path, episodes: list[Episode]) -> None:
    with pytest.raises(InputError, match="an episode to learn"):
        run(cfg, folder, episodes[:1], made(WarmupConfig, heldout=0.6))
