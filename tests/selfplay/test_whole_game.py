"""The whole game in one process: scripted policies, real world, search, rewards, ledger, queues and coordinator."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import BrokenSearch, FakeLearner, Stage, config

from ssp.base.crew import CrewCall
from ssp.base.episode import ROLES, SOLVER
from ssp.base.errors import SspError, VoidLimit
from ssp.record.ledger import home


def slow_down(stage: Stage, role: str, turns: int) -> None:
    """Let the updates of `role` take `turns` turns of the loop."""
    crew = stage.cast.learners[role]
    inner = crew.perform

    async def late(worker: int, call: CrewCall, *args: Any) -> Any:
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


def test_the_law_of_the_ledger_is_proven_at_every_step_and_at_the_end(tmp_path: Path) -> None:
    stage = Stage(config(steps=5, save__every=4), tmp_path / "run")
    inner = stage.cast.ledger.perform
    asked: Counter[str] = Counter()

    async def counted(worker: int, call: CrewCall, *args: Any) -> Any:
        asked[call.name] += 1
        return await inner(worker, call, *args)

    stage.cast.ledger.perform = counted  # type: ignore[method-assign]
    stage.whole()
    assert (asked["recheck"], asked["check"]) == (5, 1)


@pytest.mark.parametrize("bounds", [(0, 0), (2, 1), (0, 2), (1, 0)])
def test_three_rounds(tmp_path: Path, bounds: tuple[int, int]) -> None:
    cfg = config(bounds=bounds)
    stage = Stage(cfg, tmp_path / "run", jitter=1).played()
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
    stage = Stage(config(steps=2), tmp_path / "run").played()
    figures = [values for _, role, values in stage.sink.rows if role == "game"]
    assert sum(f.get("reject/leakage", 0) for f in figures) > 0
    assert all(f["game/junk_rate"] == 0.0 and f["game/hops_mean"] == 1.0 for f in figures if f["game/accepted"])
    assert all(f["audit/false_agreement"] == 0.0 == f["audit/lost_credit"] for f in figures)
    assert all(f["audit/label_truth"] == 1.0 == f["game/asked_1hop"] for f in figures)
    assert all(f["audit/answer_truth"] == f["audit/agreement"] for f in figures)


@pytest.mark.parametrize("bounds", [(0, 0), (2, 2)])
def test_same_seed_same_digest(tmp_path: Path, bounds: tuple[int, int]) -> None:
    """At bound 0 the order in which workers answer does not matter."""
    digests = []
    for name in "ab":
        cfg = config(bounds=bounds)
        stage = Stage(cfg, tmp_path / name, jitter=1 if bounds[0] else len(digests)).played()
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
    cfg = config(steps=4, bounds=bounds)
    stage = Stage(cfg, tmp_path / "run", jitter=2).whole()
    assert stage.state()["step"] == 4
    assert any("back to the last checkpoint" in text for text in stage.sink.events)
    if call.endswith("update"):
        assert stage.ledger.outcomes().get("drop/rolled_back", 0) > 0
    live = stage.rows("SELECT role, step FROM commits WHERE NOT rolled_back")
    assert sorted((c["role"], c["step"]) for c in live) == [(role, s) for role in ROLES for s in (1, 2, 3, 4)]


def test_a_learner_that_always_dies_ends_the_run(tmp_path: Path) -> None:
    FakeLearner.fail_at = {"solver/update": set(range(1, 99))}
    stage = Stage(config(placement__restarts=2), tmp_path / "run")
    with pytest.raises(SspError, match="learners died 3 times"):
        stage.play()
    stage.ledger.check()


@pytest.mark.parametrize("keep", [1, 2])
def test_the_named_pair_always_exists_with_unequal_learners(tmp_path: Path, keep: int) -> None:
    """A fast proposer saves several steps ahead of the solver: pruning may not take what the next pair will name."""
    stage = Stage(config(steps=6, save__keep=keep, eval__every=0, bounds=(4, 4)), tmp_path / "run")
    slow_down(stage, "solver", 200)
    stage.whole()
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


def test_the_first_evaluation_is_made_before_the_first_checkpoint(tmp_path: Path) -> None:
    """So a run that is killed meanwhile begins with it again."""
    stage = Stage(config(), tmp_path / "run")
    write = stage.sink.write

    def killed(step: int, role: str, values: dict[str, float]) -> None:
        raise KeyboardInterrupt

    stage.sink.write = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        stage.play()
    stage.sink.write = write  # type: ignore[method-assign]
    stage.whole()
    assert stage.sink.steps("eval")[0] == 0


def test_a_broken_search_voids_what_it_hits(tmp_path: Path) -> None:
    count = iter(range(10**6))
    stage = Stage(config(), tmp_path / "run", BrokenSearch(lambda queries: next(count) % 3 == 2)).whole()
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
    stage.whole()
    voids = [row for row in stage.rows() if row["cause"] == "payload_lost"]
    assert voids and {(row["role"], row["state"], row["reward"]) for row in voids} == {(role, "voided", None)}
    assert stage.state()["step"] == 3
    assert sum(figures.get("void/payload_lost", 0) for figures in stage.figures()) == len(voids)


@pytest.mark.parametrize("seed", range(6))
def test_the_void_limit_may_strike_at_any_time(tmp_path: Path, seed: int) -> None:
    """Rounds in flight, evaluations, blocks that wait to be played again: the run ends saved and settled."""
    rng = random.Random(seed)
    cfg = config(
        steps=30,
        save__every=4,
        bounds=(rng.randint(0, 3), rng.randint(0, 3)),
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


@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_void_limit_that_only_an_evaluation_reaches_ends_the_run_too(tmp_path: Path, step: int) -> None:
    """Before the first round, between two, and after the last one, where no round would notice."""
    limits = {"void__limit": 0.05, "void__window": 40, "void__give_up_after": 0.0, "void__probe_every": 0.0}
    stage = Stage(config(steps=3, eval__every=1, **limits), tmp_path / "run")

    def evaluating(worker: int, method: str, count: int, args: tuple[Any, ...]) -> str:
        there = method == "play" and args[1].stem.startswith(f"eval-one-{step:06d}-")
        return "boom" if there else ""

    stage.cast.players["solver"].fails = evaluating  # type: ignore[attr-defined]
    with pytest.raises(VoidLimit, match="boom"):
        stage.play()
    stage.settled()
    assert stage.state()["step"] <= step + 1 and not [row for row in stage.figures("eval")[step:]]


@pytest.mark.parametrize("policy", ["own", "shared"])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("bound", [0, 2])
def test_a_learner_that_lacks_a_block_takes_the_run_back_and_nothing_is_learned_twice(
    tmp_path: Path, policy: str, role: str, bound: int
) -> None:
    """A node took blocks along that were graded, and not trained yet: their rounds are played again."""
    shared = {f"{name}__policy": policy for name in ROLES}
    stage = Stage(config(steps=6, save__every=2, bounds=(bound, bound), **shared), tmp_path / "run", jitter=1)
    learner = role if policy == "own" else SOLVER
    stage.cast.learners[learner].fails = fakes.on_calls("update", 4, cause="payload_lost")  # type: ignore[attr-defined]
    stage.play()
    states = stage.settled()
    assert len([text for text in stage.sink.events if "payload_lost; back to the last" in text]) == 1
    assert stage.state()["step"] == 6 and set(stage.sink.steps(role)) == set(range(1, 7))
    lost = stage.rows("SELECT * FROM episodes WHERE cause = 'rolled_back'")
    assert {row["state"] for row in lost} == {"dropped"}
    assert all(states[name]["trained"] for name in ROLES) and stage.figures(role)[-1]["staleness/max"] <= bound


def test_the_folder_has_every_episode_of_a_run_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "file_system", lambda path: "nfs4" if "share" in str(path) else "ext4")
    monkeypatch.setattr(home.tempfile, "gettempdir", lambda: str(tmp_path / "disk"))
    stage = Stage(config(), tmp_path / "share" / "run").played()
    states = stage.settled()  # reads the folder's file
    assert {state for counts in states.values() for state, n in counts.items() if n} <= fakes.FINAL
    (written,) = (tmp_path / "disk").rglob("ledger.db")
    assert stage.ledger.digest() == home.Ledger(written, readonly=True).digest()
    assert states["eval"]["kept"] == 5 + 3 + 10  # at the start, at step 2, and of both sets after the last save
