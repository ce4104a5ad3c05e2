"""`min_groups`: an update has so many groups whose rewards differ, or there is none."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from fakes import FINAL, FakeLearner, Stage, config, script, scripted, tokens

from ssp.base.errors import InputError, TooFewGroups
from ssp.engines import ScriptedEngine
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)


def groups(stage: Stage, role: str, kind: str) -> dict[int, int]:
    """Round → groups of a role whose trained episodes earned differently. Proposals count by their target's row."""
    numbers = {row["id"]: row["number"] for row in stage.rows("SELECT * FROM games")}
    rewards: dict[tuple[int, Any], set[float]] = defaultdict(set)
    for row in stage.rows():
        if row["role"] == role and row["kind"] == kind and row["state"] == "trained":
            group = row["game_id"] if kind == "attempt" else numbers[row["game_id"]] // stage.cfg.game.proposals
            rewards[row["round"], group].add(row["reward"])
    counted: dict[int, int] = defaultdict(int)
    for (round_, _), earned in rewards.items():
        counted[round_] += len(earned) > 1
    return counted


@pytest.mark.parametrize("bounds", [(0, 0), (1, 1)])
@pytest.mark.covers("GA-07")
def test_each_update_has_as_many_groups_with_spread_as_are_asked_for(tmp_path: Path, bounds: tuple[int, int]) -> None:
    few = groups(Stage(config(bounds), tmp_path / "few").whole(), "solver", "attempt")
    stage = Stage(config(bounds, solver__min_groups=12), tmp_path / "many").whole()
    many = groups(stage, "solver", "attempt")
    assert len(many) == 3 and min(many.values()) >= 12 > max(few.values())
    assert {row["state"] for row in stage.rows()} <= FINAL


def test_who_asks_may_be_waited_for_too(tmp_path: Path) -> None:
    cfg = config(proposer__min_groups=6, game__proposals=2, proposer__algorithm="grpo")
    counted = groups(Stage(cfg, tmp_path / "run").whole(), "proposer", "proposal")
    assert len(counted) == 3 and min(counted.values()) >= 6


@pytest.mark.covers("GA-07")
def test_a_run_whose_groups_teach_nothing_saves_and_ends_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second step on every attempt is wrong: the first update stands, and nothing of the second is trained."""

    def wrong(ids: list[int], seed: int, turn: int) -> list[int]:
        asked = "<q>" in tokens().decode(ids) and not tokens().decode(ids).startswith("<information>")
        if asked and FakeLearner.seen:
            return list(tokens().encode("<answer> none </answer> <eos>", add_special_tokens=False))
        return script(ids, seed, turn)

    monkeypatch.setattr(build, "engine", lambda *args: ScriptedEngine(wrong))
    stage = Stage(config(solver__min_groups=3), tmp_path / "run")
    with pytest.raises(TooFewGroups, match=r"step 2 has no update: after 20 batches solver has 0 groups .* of 3"):
        stage.play()
    assert stage.state()["step"] == 1 and {role for role, _, _ in FakeLearner.seen} == {"proposer", "solver"}
    assert {row["state"] for row in stage.rows()} <= FINAL
    assert not [row for row in stage.rows() if row["round"] == 2 and row["state"] == "trained"]


def test_a_round_that_is_full_of_groups_plays_no_further_batch(tmp_path: Path) -> None:
    stage = Stage(config(solver__min_groups=1), tmp_path / "run").whole()
    games = stage.rows("SELECT * FROM games WHERE kind = 'proposed'")
    assert len(games) == 3 * 8


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (["solver.min_groups=2", "game.batch=resample"], "solver.min_groups=2 fills the slots of invalid questions"),
        (["proposer.min_groups=2", "proposer.policy=frozen"], "the proposer learns from"),
    ],
)
def test_settings_that_contradict_it_are_refused(settings: list[str], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        load("quickstart", settings)
