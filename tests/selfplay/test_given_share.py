"""A share of given questions among proposed ones: they pay who answers alone, and everything else goes on as it does."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from fakes import SEED, Stage, config, scripted, world

from ssp.base.errors import InputError
from ssp.selfplay.questions.mixed import GivenQuestions
from ssp.selfplay.rows import TargetRow
from ssp.selfplay.scene import read_scene
from ssp.selfplay.settings import load
from ssp.selfplay.targets import Targets


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)


class Mixed(Stage):
    """A run beside whose targets questions are given; the first of two right answers is never handed in."""

    def targets(self) -> Targets:
        cfg = self.cfg
        rows = [TargetRow("else", q.text, ("else", q.answer)) for q in world().questions(1, 40, SEED)]
        given = GivenQuestions(rows, cfg.game.given, cfg.solver.batch, cfg.seed)
        return Targets(self.items(), cfg.proposer.batch, cfg.seed, each=cfg.game.proposals, given=given)


def given_games(stage: Stage) -> dict[int, list[dict[str, Any]]]:
    games: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for game in stage.rows("SELECT * FROM games WHERE kind = 'given' ORDER BY id"):
        games[game["round"]].append(game)
    return games


@pytest.mark.covers("GA-07")
@pytest.mark.parametrize("bounds", [(0, 0), (2, 1)])
@pytest.mark.parametrize(
    "more", [{}, {"game__batch": "replay_learnable"}, {"game__batch": "replay_learnable", "game__refill": 3}]
)
def test_given_questions_are_their_share_and_pay_the_solver_alone(
    tmp_path: Path, bounds: tuple[int, int], more: dict[str, Any]
) -> None:
    cfg = config(bounds, game__given=0.25, proposer__batch=12, steps=4, **more)
    stage = Mixed(cfg, tmp_path / "run", jitter=1).whole()
    games = given_games(stage)
    batches = {step: 1 + int(figures["game/refills"]) for step, figures in enumerate(stage.figures(), 1)}
    # 1.5 of 6 slots a round: one, then two
    assert {step: len(games[step]) for step in batches} == {
        1: batches[1],
        2: 2 * batches[2],
        3: batches[3],
        4: 2 * batches[4],
    }
    by_id = {game["id"]: game for round_ in games.values() for game in round_}
    for asked in games.values():
        assert len({game["question"] for game in asked}) == len(asked)
    mine = [row for row in stage.rows() if row["game_id"] in by_id]
    assert {row["role"] for row in mine} == {"solver"} and len(mine) == 4 * len(by_id)
    assert {game["proposer_version"] for game in by_id.values()} == {None}
    right = [row["reward"] for row in mine if row["reward"]]
    assert right and {row["opponent_version_min"] for row in mine} == {None}  # nobody wrote them
    graded = defaultdict(set)
    for row in mine:
        if row["state"] == "trained":
            graded[row["game_id"]].add((row["policy_version_min"], row["policy_version_max"]))
    assert graded and all(len(versions) == 1 for versions in graded.values())
    for step, figures in enumerate(stage.figures(), 1):
        assert figures["game/given"] == len(games[step])
        rates = [game["win_rate"] for game in games[step] if game["win_rate"] is not None]
        assert figures.get("game/given_win_rate") == (pytest.approx(sum(rates) / len(rates)) if rates else None)
        assert figures["game/played"] + len(games[step]) <= 6 * batches[step]


def test_who_asks_earns_the_same_beside_given_questions(tmp_path: Path) -> None:
    """The same proposals by the same seed; those that the solver tries in both runs earn the same in the first round."""

    def earned(stage: Stage) -> dict[str, float]:
        rows = stage.rows("SELECT * FROM episodes WHERE role = 'proposer' AND round = 1 AND reward IS NOT NULL")
        return {row["id"]: row["reward"] for row in rows}

    alone = earned(Stage(config(proposer__batch=12), tmp_path / "alone").whole())
    beside = earned(Mixed(config(proposer__batch=12, game__given=0.5), tmp_path / "beside").whole())
    assert beside and beside.items() <= alone.items()


def test_the_shares_add_up() -> None:
    rows = [TargetRow("a", f"q{number} ?", ("a",)) for number in range(5)]
    some = GivenQuestions(rows, 0.05, 32, seed=1)
    counts = [some.number(round_) for round_ in range(100)]
    assert sum(counts) == 160 and set(counts) == {1, 2}
    many = GivenQuestions(rows, 1.0, 4, seed=1)
    first = many.take(0, 1, [])
    second = many.take(0, 1, first)  # of a further batch of the round
    assert [len(first), len(second)] == [4, 1] and len({game.question for game in first + second}) == 5
    assert len({game.id for game in first + second}) == len({game.number for game in first + second}) == 5
    assert [g.question for g in many.take(3, 1, [])] == [g.question for g in many.take(3, 2, [])]


def test_a_run_is_marked_by_the_file_that_they_come_from() -> None:
    scene = read_scene(load("quickstart", ["game.given=0.05", "data.questions=world:train"]))
    assert scene.given and all(row.question and row.golds for row in scene.given) and not scene.items[0].question
    assert len(scene.beside["data.questions"]) == 64 and scene.targets().given.number(0) == 2
    without = read_scene(load("quickstart", []))
    assert not without.given and "data.questions" not in without.beside


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (["game.given=0.1"], "reads the file that data.questions names"),
        (["game.given=1.5"], "game.given"),
        (["game.given=0.1", "game.questions=dataset", "data.questions=world:train"], "among those that a role asks"),
        (["data.questions=world:train"], "data.questions is read where questions are given"),
    ],
)
def test_shares_that_cannot_be_are_refused(settings: list[str], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        load("quickstart", settings)
