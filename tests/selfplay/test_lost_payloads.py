"""Blocks that are gone when a learner wants them: their episodes are void, the rest is trained, their games come again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import FakeLearner, Stage, config

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.selfplay.queues import Channel
from ssp.selfplay.targets import Item, Targets

LOST = "SELECT * FROM episodes WHERE cause = 'payload_lost' ORDER BY id"


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.scripted(monkeypatch)


class Losing(Stage):
    """A run in which a node takes blocks along that were graded, and not trained yet: the first block of the updates of
    these numbers (from 1), by role. `gone`: their games, by role."""

    def __init__(self, path: Path, updates: dict[str, set[int]], **changes: Any) -> None:
        super().__init__(config(**changes), path, jitter=1)
        self.gone: dict[str, list[str]] = {role: [] for role in ROLES}
        self._blocks: list[Any] = []
        seen = dict.fromkeys(ROLES, 0)

        def at(role: str) -> Any:
            def fails(worker: int, method: str, count: int, args: Any) -> str:
                if not method.startswith("update"):
                    return ""
                blocks = args[1:]
                if any(block is lost for block in blocks for lost in self._blocks):
                    return "payload_lost"
                seen[role] += 1
                if seen[role] not in updates.get(role, ()):
                    return ""
                self._blocks.append(blocks[0])
                self.gone[role] += sorted({episode.game for episode in blocks[0]})
                return "payload_lost"

            return fails

        def judge(worker: int, method: str, count: int, args: Any) -> str:
            return "payload_lost" if any(args and args[0] is lost for lost in self._blocks) else ""

        for role, crew in self.cast.learners.items():
            crew.fails = at(role)  # type: ignore[attr-defined]
        self.cast.judges.fails = judge  # type: ignore[attr-defined]

    def numbers(self, state: str) -> Counter[int]:
        """Episodes in a state, by the number of their game."""
        ids = [row["game_id"] for row in self.rows() if row["state"] == state and row["game_id"].startswith("g")]
        return Counter(int(id_[1:8]) for id_ in ids)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("bound", [0, 2])
def test_a_lost_block_is_void_and_its_games_are_played_again(tmp_path: Path, role: str, bound: int) -> None:
    bounds = {f"schedule__max_staleness__{name}": bound for name in ROLES}
    stage = Losing(tmp_path / "run", {role: {2}}, steps=8, save__every=2, **bounds)
    stage.play()
    stage.settled()
    assert stage.state()["step"] == 8 and not any("back to the last" in text for text in stage.sink.events)
    lost = stage.rows(LOST)
    assert lost and {(row["role"], row["state"], row["reward"]) for row in lost} == {(role, "voided", None)}
    assert len([text for text in stage.sink.events if "are gone with their node, and void" in text]) == 1
    assert sum(figures.get("void/payload_lost", 0) for figures in stage.figures()) == len(lost)
    games = {row["game_id"] for row in lost}
    assert games <= set(stage.gone[role])
    again = stage.rows("SELECT id, target FROM games WHERE id LIKE '%r%' AND id LIKE 'g%'")
    assert sorted(row["id"][:8] for row in again) == sorted(id_[:8] for id_ in games)
    first = {row["id"][:8]: row["target"] for row in stage.rows("SELECT id, target FROM games") if "r" not in row["id"]}
    assert all(row["target"] == first[row["id"][:8]] for row in again)
    assert {row["state"] for row in stage.rows() if row["game_id"] in {game["id"] for game in again}} & {"trained"}
    assert stage.figures(role)[-1]["staleness/max"] <= bound
    assert len(stage.figures(role)) == 8 and not stage.state()["cursor"].get("again")


def test_a_game_that_both_learners_lack_is_played_again_once(tmp_path: Path) -> None:
    stage = Losing(tmp_path / "run", {role: {2} for role in ROLES}, steps=5)
    stage.play()
    stage.settled()
    assert {row["role"] for row in stage.rows(LOST)} == set(ROLES)
    both = {row["game_id"][:8] for row in stage.rows(LOST)}
    again = stage.rows("SELECT id FROM games WHERE id LIKE '%r%' AND id LIKE 'g%'")
    assert Counter(row["id"][:8] for row in again) == Counter(both)


def test_all_blocks_of_a_batch_may_be_lost(tmp_path: Path) -> None:
    """One after the other; nothing is left to learn, and the run goes on."""
    stage = Losing(tmp_path / "run", {SOLVER: {2, 3, 4, 5, 6, 7}}, steps=4, eval__every=0)
    stage.play()
    stage.settled()
    assert stage.state()["step"] == 4 and len(stage.figures(SOLVER)) == 4
    trained = {row["commit_step"] for row in stage.rows() if row["role"] == SOLVER and row["state"] == "trained"}
    assert trained < {1, 2, 3, 4}


def test_one_that_shares_its_learner_loses_what_is_its_own(tmp_path: Path) -> None:
    shared = {"proposer__policy": "shared", "solver__policy": "shared"}
    stage = Losing(tmp_path / "run", {SOLVER: {2}}, steps=4, **shared)
    stage.play()
    stage.settled()
    assert len({row["role"] for row in stage.rows(LOST)}) == 1 and FakeLearner.seen[-1][1] == 4


def test_what_is_owed_outlives_the_run(tmp_path: Path) -> None:
    """The last step's loss is in its checkpoint, and played by the run that goes on from there."""
    stage = Losing(tmp_path / "run", {PROPOSER: {3}}, steps=3, save__every=1)
    stage.play()
    owed = stage.state()["cursor"]["again"]
    assert owed == sorted({int(row["game_id"][1:8]) for row in stage.rows(LOST)}) != []
    more = Stage(config(steps=4, save__every=1), tmp_path / "run")
    more.play()
    more.settled()
    again = more.rows("SELECT id FROM games WHERE id LIKE '%r3-i2'")
    assert [int(row["id"][1:8]) for row in again] == owed and not more.state()["cursor"].get("again")


def test_games_that_are_owed_lead_the_next_round_and_no_more_than_a_batch() -> None:
    targets = Targets([Item(f"t{i}") for i in range(20)], 2, 0)
    lost = [game.number for round_ in range(2) for game in targets.take(round_, 1)]
    targets.lose(0, lost[:2])
    targets.lose(0, lost[:2])  # the other learner
    targets.lose(1, [lost[2], -1])
    assert (targets.owed(0), targets.owed(1), targets.owed(2)) == ([], [0, 1], [0, 1, 2])
    assert [game.id for game in targets.take(2, 1)] == ["g0000000r2-i1", "g0000001r2-i1", "g0000004-i1", "g0000005-i1"]
    assert [game.number for game in targets.take(2, 1)] == [6, 7]  # a further batch of the same round
    assert [game.number for game in targets.take(3, 1)] == [2, 8, 9]
    assert (targets.owed(2), targets.owed(3), targets.owed(4)) == ([0, 1, 2], [2], [])
    state = json.loads(json.dumps({**targets.state(1), "again": targets.owed(2)}))
    back = Targets([Item(f"t{i}") for i in range(20)], 2, 0)
    back.restore(state)
    assert [game.number for game in back.take(2, 2)] == [0, 1, 4, 5] and back.owed(3) == [2]
    targets.lose(2, [0])  # once more
    assert targets.take(4, 1)[0].id == "g0000000r4-i1"


def test_a_run_sweeps_each_queue_after_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the version that was published then; where nothing is that old, no queue is asked."""
    asked: list[tuple[str, int]] = []
    sweep = Channel.sweep

    async def noted(self: Channel, oldest: int, account: Any) -> None:
        asked.append((self.name, oldest))
        await sweep(self, oldest, account)

    monkeypatch.setattr(Channel, "sweep", noted)
    stage = Stage(config(steps=3, schedule__max_staleness__solver=1), tmp_path / "run")
    stage.play()
    for role, oldest in ((PROPOSER, [2, 3, 4]), (SOLVER, [1, 2, 3])):
        name = stage.cast.queues[role].name
        assert [version for queue, version in asked if queue == name] == oldest
        assert stage.cast.queues[role].counts["sweep"] == 0  # type: ignore[attr-defined]


def test_a_loss_that_nobody_can_place_takes_the_run_back_at_once(tmp_path: Path) -> None:
    """The judges get every block; the learner would lack the same again."""
    stage = Stage(config(steps=4, save__every=2), tmp_path / "run")
    stage.cast.learners[SOLVER].fails = fakes.on_calls("update", 4, cause="payload_lost")  # type: ignore[attr-defined]
    stage.play()
    stage.settled()
    assert any("payload_lost; back to the last" in text for text in stage.sink.events)
