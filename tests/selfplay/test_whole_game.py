"""The whole game in one process: scripted policies, real world, search, rewards, ledger, queues and coordinator."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import BrokenSearch, FakeLearner, Stage, config, on_calls

from ssp.base.crew import Call
from ssp.base.episode import ROLES
from ssp.base.errors import SspError, VoidLimit
from ssp.config.schema import Config


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.scripted(monkeypatch)


def slow_down(stage: Stage, role: str, turns: int) -> None:
    """Let the updates of `role` take `turns` turns of the loop."""
    crew = stage.cast.learners[role]
    inner = crew.perform

    async def late(worker: int, call: Call, *args: Any) -> Any:
        for _ in range(turns if call.name == "update" else 0):
            await asyncio.sleep(0)
        return await inner(worker, call, *args)

    crew.perform = late  # type: ignore[method-assign]


def assert_fresh(stage: Stage, bounds: tuple[int, int]) -> None:
    """No trained episode was older than its role's bound when it was trained."""
    ages: Counter[str] = Counter()
    for role, bound in zip(ROLES, bounds, strict=True):
        sql = (
            "SELECT e.policy_version_min AS v, c.version AS made FROM episodes e JOIN commits c ON e.commit_role = c.role "
            f"AND e.commit_incarnation = c.incarnation AND e.commit_step = c.step WHERE e.role = '{role}'"
        )
        found = stage.rows(sql)
        assert found
        for row in found:
            ages[f"{role} {row['made'] - 1 - row['v']}"] += 1
            assert 0 <= row["made"] - 1 - row["v"] <= bound, row
    assert not [r for r in stage.rows() if r["cause"] == "stale"]


@pytest.mark.parametrize("bounds", [(0, 0), (2, 1), (0, 2), (1, 0)])
def test_three_rounds(tmp_path: Path, bounds: tuple[int, int]) -> None:
    cfg = config(schedule__max_staleness__proposer=bounds[0], schedule__max_staleness__solver=bounds[1])
    stage = Stage(cfg, tmp_path / "run", jitter=1)
    stage.play()
    states = stage.settled()
    assert_fresh(stage, bounds)
    assert sum(states["proposer"].values()) == 3 * 8
    assert states["proposer"]["trained"] and states["solver"]["trained"] and states["eval"]["kept"]
    assert stage.state()["step"] == 3
    for role in ("game", *ROLES):
        assert stage.sink.steps(role) == [1, 2, 3]
    assert stage.sink.steps("eval") == [0, 2, 3]
    assert [(role, n) for role, n, _ in FakeLearner.seen if role == "solver"] == [("solver", i) for i in (1, 2, 3)]
    trained = [id for _, _, ids in FakeLearner.seen for id in ids]
    assert len(trained) == len(set(trained)) == sum(states[role]["trained"] for role in ROLES)
    last = stage.sink.rows[-1][2]
    assert last["eval/accuracy"] > last["eval/dark/accuracy"] == 0.0


def test_rules_are_counted_and_oracle_sees_no_junk(tmp_path: Path) -> None:
    stage = Stage(config(steps=2), tmp_path / "run")
    stage.play()
    figures = [values for _, role, values in stage.sink.rows if role == "game"]
    assert sum(f.get("reject/leakage", 0) for f in figures) > 0
    assert all(f["game/junk_rate"] == 0.0 and f["game/hops_mean"] == 1.0 for f in figures if f["game/accepted"])
    for f in figures:
        parts = ["generate", "search", "verify", "judge", "learn", "overhead"]
        assert sum(f[f"time/{part}"] for part in parts) == pytest.approx(f["time/step"], rel=0.01)


@pytest.mark.parametrize("bounds", [(0, 0), (2, 2)])
def test_same_seed_same_digest(tmp_path: Path, bounds: tuple[int, int]) -> None:
    """At bound 0 the order in which workers answer does not matter."""
    digests = []
    for name in "ab":
        cfg = config(schedule__max_staleness__proposer=bounds[0], schedule__max_staleness__solver=bounds[1])
        stage = Stage(cfg, tmp_path / name, jitter=1 if bounds[0] else len(digests))
        stage.play()
        digests.append(stage.ledger.digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("bounds", [(0, 0), (2, 1)])
@pytest.mark.parametrize("call", ["solver/update", "proposer/update", "solver/save", "proposer/save"])
@pytest.mark.parametrize("deaths", [{2}, {2, 3}])
def test_a_learner_dies_and_the_run_goes_back(
    tmp_path: Path, bounds: tuple[int, int], call: str, deaths: set[int]
) -> None:
    """Once, and again in what is played after it."""
    FakeLearner.fail_at = {call: deaths}
    cfg = config(steps=4, schedule__max_staleness__proposer=bounds[0], schedule__max_staleness__solver=bounds[1])
    stage = Stage(cfg, tmp_path / "run", jitter=2)
    stage.play()
    stage.settled()
    assert stage.state()["step"] == 4
    assert any("back to the last checkpoint" in text for text in stage.sink.events)
    if call.endswith("update"):
        assert stage.ledger.outcomes().get("drop/rolled_back", 0) > 0
    live = stage.rows("SELECT role, step FROM commits WHERE NOT rolled_back")
    assert sorted((c["role"], c["step"]) for c in live) == [(role, s) for role in ROLES for s in (1, 2, 3, 4)]


@pytest.mark.parametrize("kind", ["shm", "disk", "object_store"])
def test_files_of_a_learner_that_died_are_missed_by_nobody(tmp_path: Path, kind: str) -> None:
    """They go with the process that wrote them; what is played after it plays by those of the new one."""
    limits = {f"schedule__max_staleness__{role}": 2 for role in ROLES}
    FakeLearner.fail_at = {"solver/update": {4}}
    stage = Stage(config(steps=5, save__every=2, transfer__kind=kind, **limits), tmp_path / "run")
    stage.play()
    stage.settled()
    assert any("back to the last checkpoint" in text for text in stage.sink.events)
    versions = [row["version"] for row in stage.figures("solver")]
    assert versions == sorted(set(versions)) and stage.state()["step"] == 5


def test_a_learner_that_always_dies_ends_the_run(tmp_path: Path) -> None:
    FakeLearner.fail_at = {"solver/update": set(range(1, 99))}
    stage = Stage(config(placement__restarts=2), tmp_path / "run")
    with pytest.raises(SspError, match="learners died 3 times"):
        stage.play()
    stage.ledger.check()


@pytest.mark.parametrize("keep", [1, 2])
def test_the_named_pair_always_exists_with_unequal_learners(tmp_path: Path, keep: int) -> None:
    """A fast proposer saves several steps ahead of the solver: pruning may not take what the next pair will name."""
    bounds = {"schedule__max_staleness__proposer": 4, "schedule__max_staleness__solver": 4}
    stage = Stage(config(steps=6, save__keep=keep, eval__every=0, **bounds), tmp_path / "run")
    slow_down(stage, "solver", 200)
    stage.play()
    stage.settled()
    assert stage.state()["step"] == 6


@pytest.mark.parametrize("at", [0, 2, 4])
def test_stop_ends_saved(tmp_path: Path, at: int) -> None:
    """At a step that is just being evaluated, so that this is the last one, and before the first round."""
    stage = Stage(config(steps=8), tmp_path / "run")
    slow_down(stage, "proposer", 300)
    game = stage.game()
    write = stage.sink.write

    def stopping(step: int, role: str, values: dict[str, float]) -> None:
        write(step, role, values)
        if (step, role) == (at, "eval"):
            game.stop()

    stage.sink.write = stopping  # type: ignore[method-assign]
    asyncio.run(asyncio.wait_for(game.run(), 60))
    stage.settled()
    assert stage.state()["step"] == at
    assert [step for step, role, _ in stage.sink.rows if role == "eval"][-1] == at  # no further one: someone waits


@pytest.mark.parametrize("batch", ["dummy", "replay"])
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path: Path, batch: str) -> None:
    def cfg(steps: int) -> Config:
        return config(steps=steps, game__batch=batch, solver__batch=8)

    whole = Stage(cfg(4), tmp_path / "whole")
    whole.play()
    half = Stage(cfg(2), tmp_path / "half")
    half.play()
    rest = Stage(cfg(4), tmp_path / "half")
    rest.play()
    rest.settled()
    assert rest.state()["step"] == 4 and rest.sink.steps("solver") == [3, 4]
    sql = "SELECT role, commit_step, reward, count(*) AS n FROM episodes WHERE state = 'trained' GROUP BY 1, 2, 3"
    assert whole.rows(sql) == rest.rows(sql)


def test_a_worker_fault_is_void_and_played_again(tmp_path: Path) -> None:
    plain = Stage(config(), tmp_path / "plain")
    plain.play()
    stage = Stage(config(), tmp_path / "run")
    stage.cast.players["solver"].fails = on_calls("play", 5, cause="solver_died")
    stage.play()
    stage.settled()
    lost = [row for row in stage.rows() if row["cause"] == "solver_died"]
    assert lost and all(row["outcome"] == "void" and row["reward"] is None for row in lost)
    assert stage.ledger.outcomes()["void/solver_died"] == len(lost)
    again = {row["id"].rsplit(".", 1)[0]: row for row in stage.rows() if row["id"].endswith(".1")}
    assert set(again) == {row["id"].rsplit(".", 1)[0] for row in lost}
    before = {row["id"].rsplit(".", 1)[0]: row for row in plain.rows()}
    assert {id: row["reward"] for id, row in again.items()} == {id: before[id]["reward"] for id in again}


def test_a_broken_search_voids_what_it_hits(tmp_path: Path) -> None:
    count = iter(range(10**6))
    stage = Stage(config(), tmp_path / "run", BrokenSearch(lambda queries: next(count) % 3 == 2))
    stage.play()
    stage.settled()
    outcomes = stage.ledger.outcomes()
    voids = [row for row in stage.rows() if row["state"] == "voided"]
    assert outcomes["void/retriever_down"] == sum(row["cause"] == "retriever_down" for row in voids) > 0
    assert all(row["reward"] is None for row in voids)
    seen = sum(v.get("void/retriever_down", 0) for _, role, v in stage.sink.rows if role == "game")
    assert seen == sum(row["cause"] == "retriever_down" for row in voids if row["role"] != "eval")


@pytest.mark.parametrize("method, role", [("verify", "proposer"), ("grade", "solver")])
def test_a_payload_that_no_judge_gets_is_void(tmp_path: Path, method: str, role: str) -> None:
    """The first block that a judge is asked about died with its node, and no copy is left."""
    stage, lost = Stage(config(), tmp_path / "run"), list[int]()

    def fails(worker: int, name: str, count: int, args: Any) -> str:
        if name == method and not lost:
            lost.append(id(args[0]))
        return "payload_lost" if name == method and id(args[0]) in lost else ""

    stage.cast.judges.fails = fails
    stage.play()
    stage.settled()
    voids = [row for row in stage.rows() if row["cause"] == "payload_lost"]
    assert voids and {(row["role"], row["state"], row["reward"]) for row in voids} == {(role, "voided", None)}
    assert stage.state()["step"] == 3
    assert sum(figures.get("void/payload_lost", 0) for figures in stage.figures()) == len(voids)


def test_too_many_voids_end_the_run_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = iter(range(10**6))
    cfg = config(
        steps=50, void__limit=0.05, void__window=40, void__give_up_after=0.0, void__probe_every=0.0, eval__every=0
    )
    stage = Stage(cfg, tmp_path / "run", BrokenSearch(lambda queries: next(served) > 6))
    with pytest.raises(VoidLimit, match="retriever_down"):
        stage.play()
    stage.settled()
    assert 0 < stage.state()["step"] < 50


def test_a_dead_queue_loses_nothing(tmp_path: Path) -> None:
    stage = Stage(config(steps=4), tmp_path / "run", jitter=3)
    for crew in stage.cast.queues.values():

        def fails(worker: int, method: str, count: int, args: Any, crew: Any = crew) -> str:
            if method == "lease" and count % 2 == 1:
                crew.inner.workers[0].clear()  # restarted, empty
                return "queue_died"
            return ""

        crew.fails = fails
    stage.play()
    stage.settled()
    assert stage.sink.steps("solver") == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(8))
def test_anything_may_fail_at_any_time(tmp_path: Path, seed: int) -> None:
    """Random faults everywhere, random bounds, small queues: the run ends at its last step, and the laws hold."""
    rng = random.Random(seed)
    calls = [f"{role}/{method}" for role in ROLES for method in ("update", "save", "load", "weights")]
    FakeLearner.fail_at = {call: {rng.randint(1, 6)} for call in calls if rng.random() < 0.5}
    cfg = config(
        steps=rng.randint(3, 5),
        save__every=rng.randint(1, 3),
        save__keep=1,
        schedule__max_staleness__proposer=rng.randint(0, 3),
        schedule__max_staleness__solver=rng.randint(0, 3),
        game__batch=rng.choice(["dummy", "replay", "replay_reset"]),
        queue__items=rng.choice([30, 4096]),
        referee__verifier=rng.choice(["frozen", "solver"]),
    )
    stage = Stage(cfg, tmp_path / "run", jitter=seed)
    cast = stage.cast
    for crew in (cast.players["proposer"], cast.players["solver"], cast.judges, *cast.queues.values()):
        crew.fails = lambda *call: "boom" if rng.random() < 0.04 else ""  # type: ignore[attr-defined]
    stage.play()
    stage.settled()
    assert stage.state()["step"] == cfg.steps
    assert not [row for row in stage.rows() if row["cause"] == "stale"]


@pytest.mark.parametrize("seed", range(6))
def test_the_void_limit_may_strike_at_any_time(tmp_path: Path, seed: int) -> None:
    """Rounds in flight, evaluations, blocks that wait to be played again: the run ends saved and settled."""
    rng = random.Random(seed)
    cfg = config(
        steps=30,
        save__every=4,
        schedule__max_staleness__proposer=rng.randint(0, 3),
        schedule__max_staleness__solver=rng.randint(0, 3),
        void__limit=0.05,
        void__window=40,
        void__give_up_after=0.0,
        void__probe_every=0.0,
    )
    stage = Stage(cfg, tmp_path / "run", jitter=seed)
    first = rng.randint(2, 20)
    crew = rng.choice([stage.cast.players["proposer"], stage.cast.players["solver"]])
    crew.fails = lambda worker, method, count, args: "boom" if count > first else ""  # type: ignore[attr-defined]
    with pytest.raises(VoidLimit, match="boom"):
        stage.play()
    stage.settled()


@pytest.mark.covers("SP-06")
@pytest.mark.parametrize("bounds", [(0, 0), (2, 2)])
def test_the_proposer_warms_up_alone(tmp_path: Path, bounds: tuple[int, int]) -> None:
    """The solver plays all the same, or nobody would know what the questions are worth."""
    cfg = config(
        steps=4,
        proposer__warmup_steps=2,
        schedule__max_staleness__proposer=bounds[0],
        schedule__max_staleness__solver=bounds[1],
    )
    stage = Stage(cfg, tmp_path / "run", jitter=2)
    stage.play()
    states = stage.settled()
    steps = {role: {row["commit_step"] for row in stage.rows() if row["role"] == role} - {None} for role in ROLES}
    assert steps == {"proposer": {1, 2, 3, 4}, "solver": {3, 4}} and states["solver"]["kept"] > 0
    assert [row["version"] for row in stage.figures("solver")] == [1, 1, 2, 3]
