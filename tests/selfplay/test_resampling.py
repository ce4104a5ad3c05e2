"""Batch strategies in a whole game: further targets, refill, the replay pool, and all of them over a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeLearner, Stage, config

from ssp.base.errors import InputError
from ssp.base.tokenlog import BYTES_A_TOKEN
from ssp.config.crews import queue_budget
from ssp.selfplay.records import TrainBatch
from ssp.selfplay.rollout_queue import RolloutQueue
from ssp.selfplay.settings import load

TRAINED = (
    "SELECT e.role, commit_step, substr(g.id, 1, 8) AS game, question, reward, count(*) AS n FROM episodes e "
    "JOIN games g ON g.id = e.game_id WHERE state = 'trained' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"
)
"""Which questions were trained in which step with which rewards, whatever the ids of the process."""


def resampling(**changes: Any) -> Any:
    return config(**{"game__batch": "resample", "proposer__batch": 4, **changes})


@pytest.mark.parametrize("kind", ["resample", "resample_all"])
def test_all_proposals_of_a_round_fit_into_their_queue(kind: str) -> None:
    batch = ["proposer.batch=600", "solver.batch=600", "proposer.limits.total_tokens=8000"]
    cfg = load("quickstart", [f"game.batch={kind}", *batch])
    most = 600 * (1 + cfg.game.resample_attempts)
    batch = TrainBatch("proposer", 1, [None] * most, {}, most * 8000 * BYTES_A_TOKEN)  # type: ignore[list-item]
    asyncio.run(RolloutQueue("proposer", *queue_budget(cfg), patience=1.0).put(batch))
    with pytest.raises(InputError, match="has at most 65536 episodes"):
        load("quickstart", [f"game.batch={kind}", "proposer.batch=12000"])


@pytest.mark.covers("SP-05")
@pytest.mark.parametrize(("bounds", "kind"), [((0, 0), "resample"), ((2, 1), "resample"), ((0, 0), "resample_all")])
def test_resampling_fills_the_batch_with_further_targets(tmp_path: Path, bounds: tuple[int, int], kind: str) -> None:
    cfg = resampling(bounds=bounds, game__batch=kind)
    stage = Stage(cfg, tmp_path / "run", jitter=1).played()
    states = stage.settled()
    assert [f["game/played"] for f in stage.figures()] == [6] * 3
    proposed = [int(f["game/proposed"]) for f in stage.figures()]
    assert all(n > 4 and n % 4 == 0 for n in proposed) and sum(proposed) == sum(states["proposer"].values())
    targets = [row["target"] for row in stage.rows("SELECT * FROM games ORDER BY id")]
    assert len(targets) == sum(proposed)  # one game a proposal, numbered through
    ids = [row["id"] for row in stage.rows("SELECT id FROM games ORDER BY id")]
    assert ids == [f"g{i:07d}-i1" for i in range(sum(proposed))]
    assert stage.state()["cursor"] == {"next": sum(proposed) // 4, "open": [], "mark": ""}
    places = [(row["file"], row["row"]) for row in stage.rows("SELECT * FROM episodes WHERE role = 'proposer'")]
    assert len(set(places)) == len(places)  # extra batches have transcripts of their own


@pytest.mark.covers("SP-05")
@pytest.mark.parametrize(("attempts", "proposed"), [(0, 4), (2, 12)])
def test_a_round_that_stays_short_is_short(tmp_path: Path, attempts: int, proposed: int) -> None:
    """Nothing is duplicated, which would train an episode twice; a round without any valid question trains nobody."""
    cfg = resampling(game__resample_attempts=attempts, solver__batch=100, steps=2)
    stage = Stage(cfg, tmp_path / "run").whole()
    for figures in stage.figures():
        assert figures["game/proposed"] == proposed and figures["game/played"] == figures["game/accepted"] < proposed
    played = [id for _, _, ids in FakeLearner.seen for id in ids]
    assert len(played) == len(set(played))

    nobody = Stage(
        resampling(referee__rules=["no_search"], game__resample_attempts=attempts), tmp_path / "nobody"
    ).played()
    assert nobody.settled()["proposer"]["trained"] == 0 and nobody.state()["step"] == 3


LEFT = (
    "SELECT round, game_id, group_concat(DISTINCT CASE state WHEN 'dropped' THEN cause ELSE state END) AS ends, count(DISTINCT reward) AS rewards "
    "FROM episodes WHERE role = 'solver' GROUP BY 1, 2 ORDER BY 1, 2"
)
"""What became of a group, and how many rewards it had."""


@pytest.mark.covers("SP-10")
@pytest.mark.parametrize("bounds", [(0, 0), (2, 1)])
@pytest.mark.parametrize("questions", ["proposer", "dataset"])
def test_refill_plays_on_until_a_batch_has_its_groups_with_spread(
    tmp_path: Path, questions: str, bounds: tuple[int, int]
) -> None:
    """Whole groups are trained, each left-over has its cause, and whatever was judged and tried pays its proposer."""
    cfg = config(
        bounds,
        game__questions=questions,
        game__refill=4,
        proposer__batch=7,
        steps=5,
        placement__players={"proposer": 2, "solver": 2},
    )
    stage = Stage(cfg, tmp_path / "run", jitter=1).played()
    states, groups = stage.settled(), stage.rows(LEFT)
    for step, figures in enumerate(stage.figures(), start=1):
        mine = [group for group in groups if group["round"] == step]
        ends = [group["ends"] for group in mine]
        assert figures["game/played"] == len(mine) and figures["game/refills"] < 3
        assert ends.count("trained") == cfg.solver.batch <= figures["game/groups"]
        assert ends.count("surplus") == figures["game/groups"] - cfg.solver.batch == figures.get("left/surplus", 0)
        assert ends.count("no_signal") == figures.get("left/no_signal", 0)
        assert all((group["rewards"] > 1) == (group["ends"] != "no_signal") for group in mine)
        trained = [group["ends"] == "trained" for group in mine if group["rewards"] > 1]
        assert trained == sorted(trained, reverse=True)  # the first ones
    assert sum(figures["game/refills"] for figures in stage.figures()) >= 3
    if questions == "proposer":
        untried = stage.rows("SELECT * FROM games WHERE verdict = 'valid' AND attempts = 0")
        assert states["proposer"]["trained"] + len(untried) == sum(states["proposer"].values()) > 5 * 7
    places = [(row["file"], row["row"]) for row in stage.rows() if row["role"] == "solver"]
    assert len(set(places)) == len(places)  # further batches have transcripts of their own


@pytest.mark.parametrize("refill", [1, 2])
@pytest.mark.parametrize(
    ("terms", "ends"),
    [
        ({}, {"no_signal"}),
        ({"solver__llds_coef": 1.0}, {"trained"}),
        ({"solver__entropy_coef": 0.01}, {"trained"}),
        ({"solver__kl__coef": 0.001}, {"trained"}),
        ({"proposer__kl__coef": 0.001}, {"no_signal"}),
    ],
)
def test_attempts_that_all_earn_the_same_are_trained_where_a_term_of_the_loss_acts(
    tmp_path: Path, terms: dict[str, float], ends: set[str], refill: int
) -> None:
    (tmp_path / "same.py").write_text("def same(response, golds, judged):\n    return 1.0\n")
    cfg = config(
        game__refill=refill, solver__reward=f"{tmp_path / 'same.py'}:same", solver__invalid_reward=1.0, **terms
    )
    stage = Stage(cfg, tmp_path / "run").whole()
    groups = [group for group in stage.rows(LEFT) if "voided" not in group["ends"]]
    assert len(groups) > 6 and {group["rewards"] for group in groups} == {1}
    assert {group["ends"] for group in groups} == ends


@pytest.mark.covers("SP-10")
def test_refill_tries_what_is_valid_first_and_ends_where_it_is_told(tmp_path: Path) -> None:
    """Of 30 proposals enough are valid for further batches of 4; a role that learns no more needs none."""
    changes = {"proposer__batch": 30, "solver__batch": 4, "game__refill": 3, "solver__freeze_after": 2}
    stage = Stage(config(**changes), tmp_path / "run").whole()
    told = [{name: found[f"game/{name}"] for name in ("proposed", "played", "refills")} for found in stage.figures()]
    assert told[2] == {"proposed": 30, "played": 4, "refills": 0}
    assert {found["proposed"] for found in told} == {30} and max(found["refills"] for found in told) >= 1
    assert all(found["played"] == 4 + 4 * found["refills"] for found in told)
    nobody = Stage(config(referee__rules=["no_search"], steps=1, **changes), tmp_path / "nobody").whole().figures()[0]
    assert [nobody[f"game/{name}"] for name in ("proposed", "played", "refills", "groups")] == [90, 0, 2, 0]


@pytest.mark.covers("SP-10", "GA-07")
@pytest.mark.parametrize("bounds", [(0, 0), (2, 1)])
@pytest.mark.parametrize("kind", ["replay", "replay_learnable"])
def test_replay_and_refill_fill_a_batch_together(tmp_path: Path, kind: str, bounds: tuple[int, int]) -> None:
    """Invalid slots of each batch hold earlier questions, and batches are played until enough groups have spread."""
    cfg = config(bounds, game__batch=kind, game__refill=4, proposer__batch=7, steps=6)
    stage = Stage(cfg, tmp_path / "run", jitter=1).whole()
    games = stage.rows("SELECT * FROM games ORDER BY round, number")
    replayed = [game for game in games if game["kind"] == "replayed"]
    rounds = {game["round"] for game in replayed}
    assert replayed and len({(game["round"], game["number"]) for game in replayed}) == len(replayed)
    tried = [(game["round"], game["question"], game["target"]) for game in games if game["attempts"]]
    again = [(game["round"], game["question"], game["target"]) for game in replayed]
    assert len(set(again)) == len(again) and set(again) <= set(tried)
    further = {step for step, figures in enumerate(stage.figures(), 1) if figures["game/refills"]}
    assert further & rounds
    states = stage.ledger.check()
    trained = stage.rows("SELECT DISTINCT game_id FROM episodes WHERE role = 'solver' AND state = 'trained'")
    assert len(trained) == cfg.steps * cfg.solver.batch and states["solver"]["trained"] == 4 * len(trained)
    if kind == "replay_learnable" and bounds == (0, 0):
        rates: dict[tuple[str, str], float] = {}
        for number in range(1, cfg.steps + 1):
            mine = [game for game in games if game["round"] == number]
            for game in mine:
                if game["kind"] == "replayed":
                    assert rates[game["question"], game["target"]] not in (0.0, 1.0)
            rates |= {(g["question"], g["target"]): g["win_rate"] for g in mine if g["win_rate"] is not None}


class Crash(Exception):
    """The process is gone."""


def crash(stage: Stage, step: int) -> None:
    """Play until the row of `step` is written, and leave everything as it is."""
    write = stage.sink.write

    def dying(at: int, role: str, values: dict[str, float]) -> None:
        write(at, role, values)
        if (at, role) == (step, "solver"):
            raise Crash

    stage.sink.write = dying  # type: ignore[method-assign]
    with pytest.raises(Crash):
        stage.play()


@pytest.mark.covers("SP-05", "SP-10")
@pytest.mark.parametrize(
    "more",
    [
        {"game__batch": "resample"},
        {"game__batch": "replay"},
        {"game__batch": "replay_reset", "game__replay_reset_every": 3},
        {"game__questions": "dataset"},
        {"game__questions": "dataset", "game__refill": 3},
        {"game__refill": 3},
        {"game__batch": "replay_learnable", "game__refill": 3},
    ],
)
def test_a_crashed_run_goes_on_as_if_it_had_not_crashed(tmp_path: Path, more: dict[str, Any]) -> None:
    """The same targets, the same replays, the same pool and cursor; the crash is between two saves, or right after one."""
    first, *others = [config(steps=5, proposer__batch=4, save__every=n, eval__every=0, **more) for n in (1, 2, 10)]
    whole = Stage(first, tmp_path / "whole").played()
    for cfg in (first, *others):
        crash(Stage(cfg, tmp_path / f"{cfg.save.every}"), 3)
        rest = Stage(cfg, tmp_path / f"{cfg.save.every}").whole()
        assert whole.rows(TRAINED) == rest.rows(TRAINED), cfg.save
        for key in ("cursor", "step"):
            assert whole.state()[key] == rest.state()[key], cfg.save
        pools = [[(i["question"], i["target"], i["win_rate"]) for i in made.state()["pool"]] for made in (whole, rest)]
        assert pools[0] == pools[1], cfg.save  # who asked differs: version numbers are never used again
        assert bool(pools[0]) == cfg.game.batch.startswith("replay")
