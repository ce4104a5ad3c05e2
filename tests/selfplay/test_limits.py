"""Limits that change with the run's steps (EP-12)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import Stage, config, tokens

from ssp.base.episode import SOLVER
from ssp.base.errors import InputError
from ssp.base.tokenlog import Kind
from ssp.config.role import LimitsConfig, StageConfig
from ssp.engines import ScriptedEngine
from ssp.game import settings as limits
from ssp.record import episodes as transcripts
from ssp.selfplay.workers import build

STAGES = [StageConfig(2, 40, 600), StageConfig(4, 60, 960)]


def wordy(ids: list[int], seed: int, turn: int) -> list[int]:
    """A solver that thinks for 80 tokens before it does anything, and is cut off at its limit."""
    said = fakes.script(ids, seed, turn)
    if "<q>" not in tokens().decode(ids) or tokens().decode(ids).startswith("<information>"):
        return said
    return list(tokens().encode("<think> " + "seat " * 78 + "</think>", add_special_tokens=False)) + said


@pytest.fixture
def _wordy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "engine", lambda *args: ScriptedEngine(wordy))


def longest_turns(stage: Stage) -> dict[str, int]:
    """Role and round of a play, from the stem of its files → the most model tokens of a turn in it."""
    found: dict[str, int] = {}
    for file in sorted(stage.folder.episodes.glob("*.parquet")):
        stem = "-".join(file.name.split("-")[:2])
        for episode in transcripts.read(file):
            runs = [len(list(run)) for kind, run in itertools.groupby(episode.log.kinds) if kind == Kind.MODEL]
            found[stem] = max([found.get(stem, 0), *runs])
    return found


@pytest.mark.covers("EP-12")
@pytest.mark.parametrize("bounds", [(0, 0), (1, 1)])
def test_three_stages_switch_at_their_steps(tmp_path: Path, _wordy: None, bounds: tuple[int, int]) -> None:
    """Also in a run that was stopped in the second stage and goes on."""

    def cfg(steps: int) -> Any:
        stages = {"solver__limits__stages": STAGES, "solver__limits__turn_tokens": 20, "eval__every": 3}
        return config(steps=steps, solver__algorithm="reinforce", **stages, bounds=bounds)

    for steps in (3, 5):
        stage = Stage(cfg(steps), tmp_path / "run").whole()
    turns = longest_turns(stage)
    assert [turns[f"solver-{round_:06d}"] for round_ in range(5)] == [20, 40, 40, 60, 60]
    assert max(turns[f"proposer-{round_:06d}"] for round_ in range(5)) < 20


def test_limits_at_a_step() -> None:
    limits = LimitsConfig(turn_tokens=20, total_tokens=500, stages=STAGES)
    found = [(limits.at(step).turn_tokens, limits.at(step).total_tokens) for step in (0, 1, 2, 3, 4, 99, None)]
    assert found == [(20, 500)] * 2 + [(40, 600)] * 2 + [(60, 960)] * 3
    assert limits.longest == 960 and LimitsConfig(total_tokens=500).longest == 500
    assert build.settings(config(solver__limits=limits), SOLVER, 1.0, 2).limits.turn_tokens == 40
    assert build.settings(config(solver__limits=limits), SOLVER, 1.0).limits.turn_tokens == 60


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ([StageConfig(4, 24, 960), StageConfig(2, 24, 960)], "in the order of their steps"),
        ([StageConfig(4, 24, 960), StageConfig(4, 24, 960)], "in the order of their steps"),
        ([StageConfig(1, 24, 960)], "from update 2 on"),
        ([StageConfig(3)], r"stages\[0\] has turn_tokens or total_tokens above 0"),
        ([StageConfig(3, 24, 24)], r"solver.limits.stages\[0\].turn_tokens is below"),
        ([StageConfig(3, 24, 960), StageConfig(5, 48, 960)], r"stages\[1\]: total_tokens is at least"),
    ],
)
def test_stages_that_cannot_be_played_are_refused(stages: list[StageConfig], says: str) -> None:
    cfg = config(solver__limits__stages=stages)
    with pytest.raises(InputError, match=says):
        for rule in (limits.stages_follow_each_other, limits.turn_fits_episode, limits.episode_fits_its_parts):
            rule(cfg)
