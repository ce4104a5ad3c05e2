"""A league in a whole game in one process: who meets whom, what becomes of each episode, and that a restart changes nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssp.base.episode import PROPOSER, ROLES, SOLVER, TRIED
from ssp.base.errors import InputError
from ssp.base.played import ANSWERS, ASKS, Game
from ssp.config.schema import LeagueConfig
from ssp.engines import ScriptedEngine
from ssp.extras.league.matchmaker import tried_again
from ssp.extras.league.payoff import PayoffTable, count
from ssp.game.games.duel import GAME as DUEL
from ssp.record import episodes as transcripts
from ssp.record.runfolder import RunFolder
from ssp.selfplay.checkpoint import check_resumable
from ssp.selfplay.report import Report
from ssp.selfplay.settings import league_can_be_played, load
from ssp.selfplay.settled import Round
from ssp.selfplay.targets import Batches
from ssp.selfplay.transfer import loader
from ssp.telemetry.clock import Clock
from tests.selfplay import fakes
from tests.selfplay.fakes import FakeLearner, Sink, Stage, brief, config, game

GUIDED = Path(fakes.__file__).with_name("games") / "guided.py"
LEAGUE = {"league__match": "mix", "league__every": 2, "league__size": 3, "steps": 8, "save__every": 2}


def league(path: Path, jitter: int | None = None, **changes: Any) -> Stage:
    return Stage(config(**{**LEAGUE, **changes}), path, jitter=jitter).whole()


def games(stage: Stage) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in stage.rows():
        if row["role"] in ROLES and row["outcome"] != "void":
            found[row["game_id"]].append(row)
    return dict(found)


def test_without_a_past_opponent_a_run_is_what_it_is_without_a_league(tmp_path: Path) -> None:
    """Bit for bit, members being kept all the same; and then that a past opponent changes it."""
    none = league(tmp_path / "none", league__match="self", league__every=10, league__size=16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LeagueConfig, "past", 0.0)
        newest = league(tmp_path / "newest")
    assert newest.ledger.digest() == none.ledger.digest()
    assert none.state()["league"] == {} and not (tmp_path / "none" / "members").exists()
    assert len(newest.state()["league"]["kept"][SOLVER]) == 3
    assert league(tmp_path / "mix").ledger.digest() != none.ledger.digest()


@pytest.mark.parametrize(("match", "bounds"), [("prioritised", (0, 0)), ("mix", (2, 1)), ("prioritised", (0, 1))])
def test_every_game_has_one_solver_and_one_proposer(tmp_path: Path, match: str, bounds: tuple[int, int]) -> None:
    """Of past versions nothing is trained and no episode is lost; of the newest all is trained that would be without."""
    ends: dict[str, Any] = {"bounds": bounds, "proposer__algorithm": "reinforce"}
    stage = league(tmp_path / "run", jitter=1, league__match=match, **ends)
    seen = {"grader": 0, "asker": 0}
    rounds: dict[str, set[int]] = defaultdict(set)
    for id, rows in games(stage).items():
        solvers = {row["policy_version_min"] for row in rows if row["role"] == SOLVER}
        proposers = {row["opponent_version_min"] for row in rows if row["role"] == SOLVER}
        assert len(solvers) <= 1 and len(proposers) <= 1, id
        states = {role: {row["state"] for row in rows if row["role"] == role} for role in ROLES}
        if states[SOLVER] == {"kept"}:  # a past solver graded it: for the proposer, and the newest tried it elsewhere
            again = games(stage)[f"r{id[1:]}n"]
            assert {row["state"] for row in again} <= {"trained", "dropped"} and len(again) == len(rows) - 1
            assert {row["opponent_version_min"] for row in again} == proposers
            assert all(row["policy_version_min"] > min(solvers) for row in again)
            assert states[PROPOSER] <= {"trained", "dropped"}
            seen["grader"] += 1
        else:
            assert states[SOLVER] <= {"trained", "dropped"}
        if states[PROPOSER] == {"kept"}:  # a past proposer wrote it, for the newest solver
            seen["asker"] += 1
        for row in rows:
            if row["role"] == PROPOSER and row["state"] == "trained":
                rounds[row["commit_step"]].add(row["opponent_version_min"] or -1)
    assert min(seen.values()) > 0
    assert all(len(graders - {-1}) <= 1 for graders in rounds.values())  # law 4: the batch is the baseline
    assert {role for role, _, _ in FakeLearner.seen} == {*ROLES}
    for bound, role in zip(bounds, ROLES, strict=True):
        figures = stage.figures(role)
        assert max(values["staleness/max"] for values in figures) <= bound  # an old opponent is not stale
        assert figures[-1]["league/pool"] == 3 and max(values.get("league/opponent_age", 0) for values in figures) > 0
        assert 0 < figures[-1]["league/rating_error"] < 400
    assert not [row for row in stage.rows() if row["cause"] == "stale"]


@pytest.mark.parametrize(
    ("changes", "role", "both", "found"),
    [
        ({"solver__warmup_steps": 8}, SOLVER, 0, set()),  # of the proposer there is one version only
        ({"solver__freeze_after": 3}, PROPOSER, 3, {"past solver"}),
        ({"proposer__freeze_after": 3}, SOLVER, 3, {"past proposer"}),
    ],
)
def test_past_versions_play_for_who_learns(
    tmp_path: Path, changes: dict[str, Any], role: str, both: int, found: set[str]
) -> None:
    """After `both` rounds `role` learns alone. Past graders are for the proposer; past askers and further games for the
    solver."""
    stage = league(tmp_path / "run", league__match="prioritised", league__every=1, eval__every=0, **changes)
    played = set()
    sql = "SELECT e.*, g.kind AS question FROM episodes e JOIN games g ON g.id = e.game_id WHERE file != ''"
    for row in stage.rows(sql):
        if row["round"] > both:
            played |= {f"past {row['role']}"} if row["past"] else {TRIED} & {row["question"]}
    assert played == found, role


@pytest.mark.parametrize("changes", [{"game__proposals": 4, "proposer__algorithm": "rloo"}, {"proposer__batch": 3}])
def test_the_newest_proposer_asks_for_half_of_each_round(tmp_path: Path, changes: dict[str, Any]) -> None:
    """For the larger half of an odd number, and never for all where there is somebody to share with."""
    stage = league(tmp_path / "run", league__match="prioritised", league__every=1, eval__every=0, steps=5, **changes)
    asked: dict[int, list[bool]] = defaultdict(list)
    for row in stage.rows("SELECT round, past FROM episodes WHERE role = 'proposer' AND file != ''"):
        asked[row["round"]].append(not row["past"])
    batch = stage.cfg.proposer.batch
    assert [sum(asked[step]) for step in range(1, 6)] == [batch] + [batch - batch // 2] * 4


def test_groups_with_a_baseline_of_their_own_may_have_graders_of_their_own(tmp_path: Path) -> None:
    changes = {"game__proposals": 2, "proposer__algorithm": "grpo", "proposer__batch": 16, "solver__batch": 16}
    stage = league(tmp_path / "run", league__match="prioritised", **changes)
    groups: dict[tuple[int, int], set[int]] = defaultdict(set)
    for row in stage.rows("SELECT * FROM episodes WHERE role = 'proposer' AND state IN ('trained', 'dropped')"):
        if row["opponent_version_min"]:
            number = int(row["game_id"][1:8])
            groups[number // 16, number // 2].add(row["opponent_version_min"])
    assert max(len(graders) for graders in groups.values()) == 1
    by_round = defaultdict(set)
    for (round_, _), graders in groups.items():
        by_round[round_] |= graders
    assert max(len(graders) for graders in by_round.values()) > 1


def test_each_episode_is_in_its_row_and_the_newest_solver_tries_by_the_same_draws(tmp_path: Path) -> None:
    """Newest and past versions play in the same round, each into files of its own."""
    stage = league(tmp_path / "run", league__match="prioritised")
    for row in stage.rows("SELECT id, file, row FROM episodes WHERE file IS NOT NULL AND file != ''"):
        assert transcripts.columns(stage.folder.episodes / row["file"], ["id"])[row["row"]]["id"] == row["id"]
    calls = [args[0] for _, method, args in stage.cast.players["solver"].calls if method == "play"]  # type: ignore[attr-defined]
    seeds = {(task.game, task.attempt): task.seed for tasks in calls for task in tasks}
    further = [(game, attempt) for game, attempt in seeds if game.endswith("n")]
    assert further and all(seeds[game, attempt] == seeds[f"g{game[1:-1]}", attempt] for game, attempt in further)


def test_the_same_seed_gives_the_same_league(tmp_path: Path) -> None:
    one, other = (league(tmp_path / name, jitter=jitter) for jitter, name in enumerate("ab"))
    assert one.ledger.digest() == other.ledger.digest()
    assert one.state()["league"] == other.state()["league"]


def test_a_player_has_the_weights_that_a_version_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past ones too, newest ones again after them: the only weight of a fake learner is the number of its updates."""
    loaded = []

    def load(self: Any, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        loaded.append((version, int(weights["w"][0])))
        engine_load(self, weights, version, keep)

    engine_load = ScriptedEngine.load
    monkeypatch.setattr(ScriptedEngine, "load", load)
    league(tmp_path / "run", league__match="prioritised")
    assert {updates - version for version, updates in loaded} == {-1}
    assert [version for version, _ in loaded] != sorted(version for version, _ in loaded)


def test_members_outlive_checkpoints_and_leave_when_nobody_names_them(tmp_path: Path) -> None:
    stage = league(tmp_path / "run", save__keep=1, steps=12)
    for role in ROLES:
        kept = stage.state()["league"]["kept"][role]
        saved = {int(path.name[1:]) for path in (stage.folder.checkpoints / role).iterdir()}
        assert min(kept.values()) < min(saved)
        assert list(kept) == ["0", *sorted(kept, key=int)[1:]] and len(kept) == 3
        there = {int(path.name[1:]) for path in (tmp_path / "run" / "members" / role).iterdir()}
        back = stage.state()["good"]["league"]["kept"][role]  # what the run would go back to after a collapse
        named = {*kept.values(), *back.values()}
        assert named <= there and there - named == {13}  # kept for the turn to come
        assert len(back) == 3 and len(there) < 7  # of as many as were kept
        for step, version in kept.items():
            path = tmp_path / "run" / "members" / role / f"v{version}"
            assert loader.read(path)["w"].tolist() == [int(step)]
            assert json.loads((path / "ssp.json").read_text())["run_step"] == int(step)


def test_a_lost_or_changed_member_is_named_before_a_run_goes_on(tmp_path: Path) -> None:
    """Also one to which the run only goes back after a collapse. A learner writes digests of the files beside them."""
    stage = league(tmp_path / "run", save__keep=1, steps=12)
    folder, targets = tmp_path / "run" / "members" / SOLVER, stage.game()._targets
    kept, back = ({*state["league"]["kept"][SOLVER].values()} for state in (stage.state(), stage.state()["good"]))

    def check() -> None:
        check_resumable(RunFolder(tmp_path / "run"), stage.cfg, targets)

    assert back - kept
    for version in (1, *(back - kept)):
        path = folder / f"v{version}"
        weights = (path / "model.safetensors").read_bytes()
        digest = hashlib.sha256(weights).hexdigest()
        (path / "ssp.json").write_text(json.dumps({"sha256": {"model.safetensors": digest}}))
        check()
        (path / "model.safetensors").write_bytes(weights[:-1] + b"?")
        with pytest.raises(InputError, match=f"as they were written.*v{version}/model.*league.match=self"):
            check()
        (path / "model.safetensors").unlink()
        with pytest.raises(InputError, match=f"as they were written.*v{version}/model.*restore"):
            check()
        path.rename(path.with_name("away"))
        with pytest.raises(InputError, match=f"members are there.*solver/v{version}.*restore"):
            check()
        path.with_name("away").rename(path)
        (path / "model.safetensors").write_bytes(weights)
    shutil.rmtree(folder)
    stage.cfg.league.match = "self"
    check()  # which needs none of them


@pytest.mark.parametrize(
    "changes", [{}, {"game__batch": "replay", "proposer__batch": 4}, {"solver__algorithm": "remax"}]
)
def test_the_table_is_the_ledgers(tmp_path: Path, changes: dict[str, Any]) -> None:
    """What the league has seen is what is read from the files of the run: here a version is its update and 1."""
    stage = league(tmp_path / "run", jitter=1, league__match="prioritised", **changes)
    table, seen = PayoffTable(), PayoffTable()
    mixed = count(table, *stage.ledger.settled(), SOLVER)
    seen.restore([[row[0] + 1, row[1] + 1, *row[2:]] for row in stage.state()["league"]["league"]["table"]])
    assert mixed == 0 and seen.state() == table.state()
    assert len({solver - proposer for solver, proposer in table.pairs()}) > 3


ENDS = (
    "SELECT round, group_concat(DISTINCT state) AS ends, count(DISTINCT reward) AS rewards "
    "FROM episodes WHERE role = 'solver' GROUP BY round, game_id"
)
"""What became of a group, and how many rewards it had."""


@pytest.mark.covers("SP-10")
def test_in_a_league_refill_counts_what_the_newest_solver_tried(tmp_path: Path) -> None:
    cfg = config(league__match="mix", league__every=2, game__refill=4, steps=6)
    stage = Stage(cfg, tmp_path / "run").whole()
    groups = stage.rows(ENDS)
    assert any(group["ends"] == "kept" and group["rewards"] > 1 for group in groups)
    for step, figures in enumerate(stage.figures(), start=1):
        trained = [group for group in groups if group["round"] == step and group["ends"] == "trained"]
        assert len(trained) == cfg.solver.batch <= figures["game/groups"]


@pytest.mark.parametrize(
    "changes",
    [
        {"league__match": "prioritised", "schedule__in_flight": True},
        {"league__match": "prioritised", "placement__layout": "shared-base"},
        {"league__match": "prioritised", "proposer__policy": "frozen"},
        {"league__match": "prioritised", "game__questions": "dataset"},
        {"league__match": "mix", "game__proposals": 8},
    ],
)
def test_what_a_league_cannot_be_or_does_not_use_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="league"):
        league_can_be_played(config(**changes))
    league_can_be_played(config(league__match="mix", league__power=2.0))


def test_a_league_is_for_two_roles() -> None:
    third = f"game.kind={GUIDED}:GAME"
    league_can_be_played(load("quickstart", ["league.match=mix"]))
    with pytest.raises(InputError, match="two roles that both learn.*guide"):
        load(str(GUIDED.with_name("small.yaml")), [third, "league.match=mix"])


# what is remembered and reported of a round in which past versions played is the newest versions' work


@pytest.mark.parametrize("rate", [0.25, None])
def test_a_past_graders_rate_is_not_remembered(rate: float | None) -> None:
    """The question is known by what the newest made of it in its further game; when all of that is void, not at all."""
    cfg = config(game__batch="replay")
    pool, never = (Batches(cfg.game, 4, 0) for _ in range(2))
    graded, own = game("g1", win_rate=1.0, frozen=ANSWERS, source="d1"), game("g2", win_rate=0.5)
    further = tried_again(graded, asked_by=7)
    assert further.source == "d1"
    further.win_rate = rate
    pool.remember(0, [graded, own, further])
    known = {item["question"]: (item["win_rate"], item["asked_by"]) for item in pool.state()}
    expected = {own.question: (0.5, 1)}
    assert known == (expected if rate is None else {**expected, graded.question: (0.25, 7)})
    pool.restore([{**item, "win_rate": 0.9} for item in pool.state()])
    pool.remember(1, [graded])
    assert {item["win_rate"] for item in pool.state()} == {0.9}
    never.remember(0, [replace(further, number=-1, win_rate=0.5)])  # a refill that the pool has lost meanwhile
    assert never.state() == []


def searched(id: str, proposer: int, solver: int, **changes: Any) -> Game:
    """A game whose proposal and one attempt searched so often."""
    made = game(id, [True], **changes)
    made.attempts = [brief(f"s{id}", searches=solver)]
    made.proposal = brief(f"p{id}", PROPOSER, searches=proposer)
    return made


def test_searches_of_a_role_are_its_newest_versions() -> None:
    sink = Sink()
    report = Report(sink, fakes.world(), 1, DUEL)
    games = [searched("g1", 2, 3), searched("g2", 5, 9, frozen=ANSWERS), searched("g3", 11, 1, frozen=ASKS)]
    further = replace(tried_again(games[1], 1), attempts=[brief("s", searches=5)])
    report.round(Round(0, Clock(), games, [further]), {})
    for role in ROLES:
        report.learned(1, {role: {}})
    (values,) = (values for _, name, values in sink.rows if name == "game")
    assert values["game/proposer_searches"] == (2 + 5) / 2 and values["game/solver_searches"] == (3 + 1 + 5) / 3
    assert values["game/tokens"] == 7 * 5
