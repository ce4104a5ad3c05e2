"""Limits that change with the run's steps (EP-12), and rewards of episodes that come near them (DAPO)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import Stage, config, game, tokens

from ssp.base.episode import PROPOSER, SOLVER
from ssp.base.errors import InputError
from ssp.base.tokenlog import Kind
from ssp.config.role import LimitsConfig, StageConfig
from ssp.engines import ScriptedEngine
from ssp.game import settings as limits
from ssp.record import episodes as transcripts
from ssp.selfplay.settle import settle
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
        ([StageConfig(3, -1, 960)], r"stages\[0\] has turn_tokens or total_tokens above 0"),
        ([StageConfig(3, 24, -960)], r"stages\[0\] has turn_tokens or total_tokens above 0"),
        ([StageConfig(3, 24, 24)], r"solver.limits.stages\[0\].turn_tokens is below"),
        ([StageConfig(3, 24, 960), StageConfig(5, 48, 960)], r"stages\[1\]: total_tokens is at least"),
        ([StageConfig(3, 24, 960)], "overlong is below"),
    ],
)
def test_stages_that_cannot_be_played_are_refused(stages: list[StageConfig], says: str) -> None:
    cfg = config(solver__limits__stages=stages)
    if says.startswith("overlong"):
        cfg.solver.limits.overlong = 960
    with pytest.raises(InputError, match=says):
        for rule in (limits.stages_follow_each_other, limits.turn_fits_episode, limits.episode_fits_its_parts):
            rule(cfg)


# overlong shaping


def test_overlong_episodes_earn_less_and_their_group_has_spread() -> None:
    """All right, but two of them near the limit of 100: 80 is free, 90 loses a half, 100 and more all."""
    made = game("g1", [True] * 4)
    lengths = (70, 80, 90, 120)
    for attempt, length in enumerate(lengths):
        made.attempts[attempt] = fakes.played(f"sg1a{attempt}", length=length)
    cfg = config(solver__limits__total_tokens=100, solver__limits__overlong=20)
    settled = settle(cfg, [made], 7)
    assert [item.reward for item in settled.items[SOLVER]] == [1.0, 1.0, 0.5, 0.0]
    assert [row["reward"] for row in settled.rows if row["id"].startswith("s")] == [1.0, 1.0, 0.5, 0.0]
    assert made.win_rate == 1.0  # what the proposer earns does not change
    assert settled.figures(SOLVER)["reward/overlong"] == pytest.approx(-1.5 / 4)
    assert "reward/overlong" not in settled.figures(PROPOSER)
    assert settle(config(), [made], 7).items[SOLVER] == []  # without it: no spread, no signal


def test_overlong_counts_from_the_limit_of_the_stage() -> None:
    cfg = config(solver__limits__total_tokens=100, solver__limits__overlong=20, solver__algorithm="reinforce")
    cfg.solver.limits.stages = [StageConfig(3, 24, 200)]
    made = game("g1", [True] * 4)
    made.attempts = [fakes.played(f"sg1a{i}", length=100) for i in range(4)]
    rewards = [settle(cfg, [made], 7, step).items[SOLVER][0].reward for step in (2, 3)]
    assert rewards == [0.0, 1.0]


def test_overlong_questions_of_a_proposer() -> None:
    made = game("g1", [True, False, False, False], proposal=fakes.played("pg1", PROPOSER, length=95))
    bad = game("g2", None, proposal=fakes.played("pg2", PROPOSER, length=95), valid=False, rule="leakage")
    cfg = config(proposer__limits__total_tokens=100, proposer__limits__overlong=10, proposer__invalid_reward=-0.5)
    assert [item.reward for item in settle(cfg, [made, bad], 7).items[PROPOSER]] == [0.75 - 0.5, -1.0]
