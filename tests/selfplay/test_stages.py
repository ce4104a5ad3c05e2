"""Stages over fake crews and a real ledger: faults are void, blocks are played again, order is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import FaultyCrew, brief, config, on_calls

from ssp.base.crew import LocalCrew
from ssp.base.episode import PROPOSER, SOLVER, Grade, Outcome, Task, Verdict
from ssp.base.errors import Fault, SspError, VoidLimit
from ssp.base.played import Game
from ssp.config.schema import Config
from ssp.game import judge
from ssp.game.games.duel import GAME as DUEL
from ssp.record.ledger import Ledger
from ssp.record.ledger.writer import LedgerWriter
from ssp.selfplay.admission import VoidGate
from ssp.selfplay.crews.cast import Cast
from ssp.selfplay.crews.seams import Judges, Players
from ssp.selfplay.records import PlayReport, Published
from ssp.selfplay.stages import Stages
from ssp.selfplay.targets import TargetRow, Targets
from ssp.selfplay.versions import WeightStore
from ssp.telemetry.clock import Clock

VERDICT, GRADE = DUEL.stages[1], DUEL.stages[4]


class FakePlayer:
    def play(self, tasks: Sequence[Task], order: Any, version: int, weights: Any) -> tuple[Any, PlayReport]:
        briefs = [
            brief(t.id, t.role, game=t.game, attempt=t.attempt, final=f"e {t.seed} ?", file=order.stem, row=i)
            for i, t in enumerate(tasks)
        ]
        return list(tasks), PlayReport(briefs, {"busy": 1.0, "generate": 1.0})


class FakeJudge:
    """Right when the answer is the gold's; `void` verdicts on order."""

    cause = ""

    def verify(self, block: list[Task], asked: list[tuple[str, int]], *live: Any) -> tuple[list[Verdict], float]:
        assert asked == [(task.fields["target"], int(task.fields.get("searches", 0))) for task in block]
        return [Verdict(not self.cause, void_cause=self.cause) for _ in asked], 0.5

    def grade(self, block: list[Task], items: list[tuple[int, judge.Item]]) -> tuple[list[Grade], float]:
        return [Grade(block[row].fields["question"] == item.golds[0]) for row, item in items], 0.25


class Table:
    """Stages with three solvers, two judges, and a ledger that is checked at the end of each `run`."""

    def __init__(self, path: Path, cfg: Config | None = None) -> None:
        self.cfg = cfg or config()
        self.book = Ledger(path / "ledger.db")
        self.proposers = FaultyCrew(LocalCrew(Players, "proposer", lambda i: FakePlayer(), 2))
        self.solvers = FaultyCrew(LocalCrew(Players, "solver", lambda i: FakePlayer(), 3))
        self.judge = FakeJudge()
        self.judges = FaultyCrew(LocalCrew(Judges, "judge", lambda i: self.judge, 2))
        ledger = LocalCrew(LedgerWriter, "ledger", lambda i: self.book)
        self.gate = VoidGate(self.cfg.void)
        cast = Cast({PROPOSER: self.proposers, SOLVER: self.solvers}, self.judges, {}, ledger)
        store = WeightStore(self.cfg, cast, print)
        self.stages = Stages(self.cfg, cast, self.gate, store)
        self.stages.incarnation = 4

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run(asyncio.wait_for(work, 20))
        finally:
            self.book.check()

    def games(self, n: int = 5) -> list[Game]:
        items = [
            TargetRow(f"t{i}", hints={"searches": "3"} if i % 2 else {}) for i in range(9)
        ]  # every second row says so
        games = Targets(items, n, 0).take(0, 4)
        self.book.create_games([{"id": game.id, "target": game.target} for game in games])
        return games

    def row(self, id: str) -> dict[str, Any]:
        return self.book.get([id])[0]


PROPOSAL, ATTEMPT = DUEL.plays["proposal"], DUEL.plays["attempt"]
WEIGHTS = Published(3, "weights")


def test_propose_sets_each_game_its_own_proposal(tmp_path: Path) -> None:
    table = Table(tmp_path)
    games = table.games()
    table.run(table.stages.play(PROPOSAL, 1, games, WEIGHTS, Clock()))
    for game in games:
        assert game.proposal is not None and game.proposal.game == game.id
        row = table.row(game.proposal.id)
        assert (row["state"], row["role"], row["file"]) == ("grading", PROPOSER, game.proposal.block.id)
    blocks = {game.proposal.block.id for game in games if game.proposal}
    assert len(blocks) == 2 and all("-i4" in block for block in blocks)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_fault_voids_one_block_which_is_played_again(tmp_path: Path, victim: int) -> None:
    table = Table(tmp_path)
    games = table.games()
    first = {"left": True}

    def fails(worker: int, method: str, count: int, args: Any) -> str:
        if worker == victim and first.pop("left", False):
            return "solver_died"
        return ""

    table.solvers.fails = fails
    table.run(table.stages.play(ATTEMPT, 1, games, WEIGHTS, Clock()))
    for game in games:
        assert [p.attempt for p in game.attempts] == [0, 1, 2, 3]
        assert all(p.game == game.id for p in game.attempts) and game.tried_by == 3
        assert len({p.block.id for p in game.attempts}) == 1
        for p in game.attempts:
            assert p.block.ref[p.row].id == p.id
    calls = [args[0] for worker, _, args in table.solvers.calls if worker == victim]
    assert len(calls) == 2
    assert [t.seed for t in calls[0]] == [t.seed for t in calls[1]]
    assert not {t.id for t in calls[0]} & {t.id for t in calls[1]}
    lost = [table.row(t.id) for t in calls[0]]
    assert {(r["state"], r["outcome"], r["cause"], r["reward"]) for r in lost} == {
        ("voided", "void", "solver_died", None)
    }
    assert {table.row(p.id)["state"] for game in games for p in game.attempts} == {"running"}
    assert table.gate.causes == {"solver_died": len(lost)}
    assert len({args[1].stem for _, _, args in table.solvers.calls}) == 4  # no file is written twice


def test_six_failures_end_the_run(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.solvers.fails = lambda worker, method, count, args: "solver_died" if worker == 1 else ""
    with pytest.raises(SspError, match="solver-1 failed 6 times"):
        table.run(table.stages.play(ATTEMPT, 1, table.games(), WEIGHTS, Clock()))
    assert table.book.outcomes()["void/solver_died"] == 6 * 4  # its one game of five
    assert not isinstance(SspError(""), Fault)


def test_a_stage_that_gave_up_leaves_nothing_running(tmp_path: Path) -> None:
    """Else a block of it would write to the ledger after the run's last word."""
    cfg = config(void__limit=0.05, void__window=20, void__give_up_after=0.0, void__probe_every=0.0)
    table = Table(tmp_path, cfg)
    table.solvers.fails = on_calls("play", 1, cause="solver_died")

    perform = table.solvers.perform

    async def slow(worker: int, *args: Any) -> Any:
        await asyncio.sleep(0 if worker == 0 else 10)
        return await perform(worker, *args)

    table.solvers.perform = slow  # type: ignore[method-assign]

    async def give_up() -> None:
        before = asyncio.all_tasks()
        with pytest.raises(VoidLimit):
            await table.stages.play(ATTEMPT, 1, table.games(), WEIGHTS, Clock())
        assert asyncio.all_tasks() == before

    table.run(give_up())


@pytest.mark.parametrize("method", ["verify", "grade"])
def test_a_judge_that_fails_once_is_asked_again_elsewhere(tmp_path: Path, method: str) -> None:
    table = Table(tmp_path)
    table.judges.fails = on_calls(method, 1, cause="judge_died")
    games = table.games()
    table.run(table.stages.play(PROPOSAL, 1, games, WEIGHTS, Clock()))
    table.run(table.stages.check(VERDICT, games, None, Clock()))
    assert all(game.valid and game.question.endswith("?") for game in games)
    table.run(table.stages.play(ATTEMPT, 1, games, WEIGHTS, Clock()))
    table.run(table.stages.grade(GRADE, games, Clock()))
    assert all(set(game.grades) == {p.id for p in game.attempts} for game in games)
    asked = [worker for worker, name, _ in table.judges.calls if name == method]
    # One call a block, spread over the judges: two blocks of proposals, three of attempts; the first one twice.
    assert sorted(asked) == ([0, 1, 1] if method == "verify" else [0, 0, 1, 1])


def test_judges_that_always_fail_end_the_run(tmp_path: Path) -> None:
    table = Table(tmp_path)
    games = table.games()
    table.run(table.stages.play(PROPOSAL, 1, games, WEIGHTS, Clock()))
    table.judges.fails = lambda *args: "judge_died"
    with pytest.raises(SspError, match="the judges failed 6 times"):
        table.run(table.stages.check(VERDICT, games, None, Clock()))


def test_voids_of_the_referee_reach_the_gate_and_those_of_play_are_not_counted_twice(tmp_path: Path) -> None:
    table = Table(tmp_path)
    games = table.games()
    table.run(table.stages.play(PROPOSAL, 1, games, WEIGHTS, Clock()))
    assert games[0].proposal is not None
    object.__setattr__(games[0].proposal, "outcome", Outcome.VOID)
    table.judge.cause = "engine_died"
    table.run(table.stages.check(VERDICT, games, None, Clock()))
    assert [game.void_cause for game in games] == ["engine_died"] * 5
    assert table.gate.causes == {"engine_died": 4}


def test_voids_are_not_graded(tmp_path: Path) -> None:
    table = Table(tmp_path)
    games = table.games(2)
    table.run(table.stages.play(ATTEMPT, 1, games, WEIGHTS, Clock()))
    gone = games[0].attempts[1]
    object.__setattr__(gone, "outcome", Outcome.VOID)
    table.run(table.stages.grade(GRADE, games, Clock()))
    assert gone.id not in games[0].grades and len(games[0].grades) == 3 and len(games[1].grades) == 4


@pytest.mark.parametrize("live_weights", [None, WEIGHTS])
def test_only_a_live_verifier_gets_weights(tmp_path: Path, live_weights: Published | None) -> None:
    table = Table(tmp_path)
    games = table.games()
    table.run(table.stages.play(PROPOSAL, 1, games, WEIGHTS, Clock()))
    table.run(table.stages.check(VERDICT, games, live_weights, Clock()))
    live = [args[2:] for _, method, args in table.judges.calls if method == "verify"]
    assert live == [(3, "weights") if live_weights else ()] * 2


def test_evaluation_is_kept_in_its_own_role(tmp_path: Path) -> None:
    table = Table(tmp_path)
    tasks = [Task(f"eval/x/{i}", "eval/x", SOLVER, 0, i, {"question": "a b ?"}) for i in range(7)]
    table.solvers.fails = on_calls("play", 2, cause="solver_died")
    briefs = table.run(table.stages.evaluate(1, "eval-x-1", tasks, WEIGHTS, Clock()))
    assert [b.final for b in briefs] == [f"e {i} ?" for i in range(7)]
    states = table.book.check()["eval"]
    assert (states["kept"], states["voided"]) == (7, 2 if len(table.solvers.calls[1][2][0]) == 2 else 3)


def test_an_evaluation_is_played_in_parts_of_64_or_a_training_share(tmp_path: Path) -> None:
    """All at once, a model of ordinary size would want a cache for hundreds of episodes."""
    table = Table(tmp_path, config(solver__batch=1, game__attempts=2))
    tasks = [Task(f"eval/x/{i}", "eval/x", SOLVER, 0, i, {"question": "a b ?"}) for i in range(200)]
    briefs = table.run(table.stages.evaluate(1, "eval-x-1", tasks, WEIGHTS, Clock()))
    assert [b.final for b in briefs] == [f"e {i} ?" for i in range(200)]
    played = [args for _, method, args in table.solvers.calls if method == "play"]
    assert sorted(len(args[0]) for args in played) == [33] * 4 + [34] * 2
    assert len({args[1].stem for args in played}) == 6
