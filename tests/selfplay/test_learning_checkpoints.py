"""One learner step, and checkpoints of the pair, over a real ledger with fake learners."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeLearner, FaultyCrew, Sink, config, on_calls

from ssp.base.crew import LocalCrew
from ssp.base.episode import PROPOSER, ROLES, SOLVER, Episode
from ssp.base.tokenlog import Kind
from ssp.config.schema import Config
from ssp.learning.scored import Scored
from ssp.record.ledger import HomeLedger
from ssp.record.ledger.writer import LedgerWriter
from ssp.record.runfolder import RunFolder
from ssp.selfplay.crews.cast import Cast, LearnerLost
from ssp.selfplay.crews.seams import Learners, Players
from ssp.selfplay.health import Collapse
from ssp.selfplay.records import TrainBatch
from ssp.selfplay.recovery import Recovery
from ssp.selfplay.report import Report
from ssp.selfplay.rollout_queue import RolloutQueue
from ssp.selfplay.settled import Round
from ssp.selfplay.training import Trainer
from ssp.selfplay.versions import WeightStore
from ssp.telemetry.clock import Clock


def ungrouped(**changes: Any) -> Config:
    """Roles that compare no group, so that batches of one episode are trained."""
    return config(**{"solver__algorithm": "reinforce", "proposer__algorithm": "reinforce", **changes})


class School:
    """Learners, ledger and folder of one run, at version 1 of both roles."""

    def __init__(self, cfg: Config, path: Path) -> None:
        self.cfg, self.folder = cfg, RunFolder(path)
        self.folder.checkpoints.mkdir(parents=True)
        self.ledger = HomeLedger(path / "ledger.db")
        player = LocalCrew(Players, "player", lambda i: SimpleNamespace())
        self.learners = {
            role: FaultyCrew(LocalCrew(Learners, role, lambda i, role=role: FakeLearner(cfg, role, path)))  # type: ignore[misc]
            for role in ROLES
        }
        self.cast = Cast(
            dict.fromkeys(ROLES, player),
            player,
            dict(self.learners),
            LocalCrew(LedgerWriter, "ledger", lambda i: self.ledger),
        )
        self.store = WeightStore(cfg, self.cast, print)
        self.trainer = Trainer(cfg, self.cast, self.store)
        self.trainer.incarnation = 1
        for role in ROLES:
            asyncio.run(self.trainer.start(role, 0))

    def recovery(self) -> Recovery:
        kept: Any = SimpleNamespace(state=lambda *_: "kept", restore=lambda _: None, tidy=lambda _: None)
        report = Report(Sink(), None, 1, self.cfg.spec)
        return Recovery(self.cfg, self.cast, self.folder, (kept, kept, kept, kept), report)

    def batch(self, role: str, step: int, versions: Sequence[int]) -> TrainBatch:
        ids = [f"{role[0]}{step}-{i}" for i in range(len(versions))]
        self.ledger.create([{"id": id, "game_id": "g", "role": role} for id in ids])
        self.ledger.advance([{"id": id, "state": "queued", "outcome": "scored", "reward": 1.0} for id in ids])
        episodes = []
        for id in ids:
            episode = Episode(id, "g", role, 0)
            episode.log.append(Kind.PROMPT, [1])
            episodes.append(episode)
        samples = [
            Scored(1.0, 0, id=id, block=f"b{step}", row=i, version_min=version, credit=(1.0,))
            for i, (id, version) in enumerate(zip(ids, versions, strict=True))
        ]
        return TrainBatch(role, step, samples, {f"b{step}": episodes}, 10, {"reward/mean": 1.0})

    def learn(self, batch: TrainBatch) -> dict[str, float]:
        return asyncio.run(self.trainer.learn(batch))[batch.role]

    def states(self, role: str) -> dict[str, int]:
        return {state: n for state, n in self.ledger.check()[role].items() if n}


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_stale_episodes_are_dropped_never_trained(tmp_path: Path, bound: int) -> None:
    school = School(ungrouped(bounds=(0, bound)), tmp_path / "run")
    for step in (1, 2, 3):
        school.learn(school.batch(SOLVER, step, [school.store.latest(SOLVER).version]))
    batch = school.batch(SOLVER, 4, [1, 2, 3, 4])
    stats = school.learn(batch)
    assert FakeLearner.seen[-1][2] == [item.id for item in batch.samples if 4 - item.version_min <= bound]
    assert stats["staleness/max"] == 3 and stats["staleness/mean"] == 1.5
    assert school.ledger.outcomes()["drop/stale"] == 3 - bound


def test_what_became_too_old_in_the_queue_is_dropped_and_the_rest_is_trained(tmp_path: Path) -> None:
    school = School(ungrouped(bounds=(0, 1)), tmp_path / "run")
    queue = RolloutQueue(SOLVER, 10, 1000)

    async def wait_and_learn(batch: TrainBatch) -> dict[str, float]:
        await queue.put(batch)
        taken = await queue.take(batch.number)
        assert taken is not None
        return (await school.trainer.learn(taken))[SOLVER]

    for step in (1, 2):
        school.learn(school.batch(SOLVER, step, [step]))
    batch = school.batch(SOLVER, 4, [3, 1, 2, 3])
    stats = asyncio.run(wait_and_learn(batch))
    assert school.ledger.outcomes() == {"drop/stale": 1}
    assert sorted(FakeLearner.seen[-1][2]) == sorted(item.id for item in batch.samples if item.version_min >= 2)
    assert (stats["staleness/max"], stats["episodes"], stats["reward/mean"]) == (2, 4, 1.0)


def test_a_group_thinned_by_age_keeps_its_credits(tmp_path: Path) -> None:
    school = School(config(bounds=(0, 0), solver__algorithm="grpo"), tmp_path / "run")
    made = school.batch(SOLVER, 1, [1, 0])
    school.learn(made)
    assert FakeLearner.seen[-1][2] == [made.samples[0].id]
    assert school.ledger.outcomes() == {"drop/stale": 1}


@pytest.mark.parametrize("batch", ["stale", "empty"])
def test_nothing_trained_means_nothing_published(tmp_path: Path, batch: str) -> None:
    school = School(ungrouped(), tmp_path / "run")
    school.learn(school.batch(SOLVER, 1, [1]))
    stats = school.learn(school.batch(SOLVER, 2, [1] if batch == "stale" else []))
    assert stats["version"] == 2 == school.store.latest(SOLVER).version
    assert len(FakeLearner.seen) == 1 == school.states(SOLVER)["trained"]


@pytest.mark.parametrize("frozen", [{"solver__policy": "frozen"}, {"solver__freeze_after": 2}])
def test_a_frozen_role_keeps(tmp_path: Path, frozen: dict[str, Any]) -> None:
    school = School(ungrouped(**frozen), tmp_path / "run")
    stats = school.learn(school.batch(SOLVER, 3, [1, 1]))
    assert school.states(SOLVER) == {"kept": 2} and FakeLearner.seen == [] and stats["version"] == 1


@pytest.mark.covers("SP-06")
@pytest.mark.parametrize(("warming", "waiting"), [ROLES, ROLES[::-1]])
def test_while_a_role_warms_up_the_other_keeps_its_episodes(tmp_path: Path, warming: str, waiting: str) -> None:
    """Up to that step and with it, as in SSP."""
    school = School(ungrouped(**{f"{warming}__warmup_steps": 2}), tmp_path / "run")
    for step in (1, 2, 3):
        for role in ROLES:
            school.learn(school.batch(role, step, [school.store.latest(role).version]))
    assert school.states(warming) == {"trained": 3} and school.states(waiting) == {"trained": 1, "kept": 2}
    assert [role for role, _, _ in FakeLearner.seen] == [warming, warming, *ROLES]


@pytest.mark.parametrize("after", [False, True])
def test_a_dead_learner_is_lost_and_commits_nothing(tmp_path: Path, after: bool) -> None:
    """Whether it dies before its update or after it (the reply is lost)."""
    school = School(ungrouped(), tmp_path / "run")
    batch = school.batch(SOLVER, 1, [1])
    if after:
        FakeLearner.fail_at = {"solver/update": {1}}
    else:
        school.learners[SOLVER].fails = on_calls("update", 1, cause="learner_died")
    with pytest.raises(LearnerLost, match="solver learner"):
        school.learn(batch)
    assert school.states(SOLVER) == {"queued": 1} and school.store.latest(SOLVER).version == 1
    assert school.ledger.rollback(dict.fromkeys(ROLES, 0))["queued"] == 1


# checkpoints


def saved(school: School) -> dict[str, Any] | None:
    state = school.folder.state
    return dict(json.loads(state.read_text())) if state.is_file() else None


def test_the_pair_is_named_when_both_are_saved(tmp_path: Path) -> None:
    school = School(ungrouped(), tmp_path / "run")
    checkpoints = school.recovery()
    checkpoints.settled(Round(1, Clock()))
    asyncio.run(checkpoints.save(SOLVER, 2, {SOLVER: 5}))
    assert saved(school) is None and checkpoints.saved == -1
    asyncio.run(checkpoints.save(PROPOSER, 2, {PROPOSER: 4}))
    state = saved(school)
    assert state is not None and checkpoints.saved == 2
    assert (
        state["step"] == 2
        and state["versions"] == {SOLVER: 5, PROPOSER: 4}
        and state["pool"] == state["cursor"] == "kept"
    )
    for role, folder in state["folders"].items():
        meta = json.loads((school.folder.path / folder / "ssp.json").read_text())
        assert (meta["role"], meta["version"], meta["run_step"]) == (role, state["versions"][role], 2)


def test_pools_of_steps_that_cannot_be_saved_are_forgotten(tmp_path: Path) -> None:
    school = School(ungrouped(save__every=4), tmp_path / "run")
    checkpoints = school.recovery()
    for step in range(1, 8):
        checkpoints.settled(Round(step - 1, Clock()))
    assert sorted(checkpoints._kept) == [4, 7]


def test_a_kill_between_two_saves_leaves_the_old_pair(tmp_path: Path) -> None:
    school = School(ungrouped(save__keep=1), tmp_path / "run")
    checkpoints = school.recovery()
    for role in ROLES:
        asyncio.run(checkpoints.save(role, 1, {role: 2}))
    old = saved(school)
    school.learners[PROPOSER].fails = on_calls("save", 2, cause="learner_died")
    asyncio.run(checkpoints.save(SOLVER, 2, {SOLVER: 3}))
    with pytest.raises(LearnerLost):
        asyncio.run(checkpoints.save(PROPOSER, 2, {PROPOSER: 3}))
    assert saved(school) == old
    state = asyncio.run(school.recovery().restore())
    assert (state.step, state.versions) == (1, {SOLVER: 2, PROPOSER: 2})
    # the same after a rollback in this process: the half pair of step 2 is forgotten
    asyncio.run(checkpoints.restore())
    asyncio.run(checkpoints.save(PROPOSER, 2, {PROPOSER: 4}))
    assert saved(school) == old


def test_what_a_learner_left_that_died_in_a_save_is_cleared_by_the_next_one(tmp_path: Path) -> None:
    """Whatever version it was: a resumed run gives its weights other numbers."""
    school = School(ungrouped(), tmp_path / "run")
    place = school.folder.checkpoint(SOLVER, 3).parent
    for name in ("v2.tmp-17", "v9.tmp-18"):
        (place / name).mkdir(parents=True)
    asyncio.run(school.recovery().save(SOLVER, 2, {SOLVER: 3}))
    assert [path.name for path in place.iterdir()] == ["v3"]


def test_what_nobody_confirmed_yet_does_not_push_out_the_good_pair(tmp_path: Path) -> None:
    school = School(ungrouped(save__keep=1, health__on_collapse="rollback"), tmp_path / "run")
    checkpoints = school.recovery()
    for step in range(5):
        for role in ROLES:
            asyncio.run(checkpoints.save(role, step, {role: step + 1}))
        checkpoints._confirmed = {PROPOSER: step, SOLVER: min(step, 2) - 1}
    state = saved(school)
    assert state is not None and (state["step"], state["good"]["step"], state["good"]["good"]) == (4, 1, {})
    assert sorted(path.name for path in (school.folder.checkpoints / SOLVER).iterdir()) == ["v2", "v3", "v4", "v5"]
    again = school.recovery()
    asyncio.run(again.restore())
    assert again.saved == 4
    asyncio.run(again.handle(Collapse("it fell")))
    state = asyncio.run(again.restore())
    assert (again.saved, state.rollbacks) == (1, 1)


def test_restore_rolls_back_later_commits(tmp_path: Path) -> None:
    school = School(ungrouped(), tmp_path / "run")
    checkpoints = school.recovery()
    for role in ROLES:
        school.learn(school.batch(role, 1, [1]))
        asyncio.run(checkpoints.save(role, 1, {role: 2}))
    school.learn(school.batch(SOLVER, 2, [2]))
    school.batch(PROPOSER, 2, [2])
    state = asyncio.run(checkpoints.restore())
    assert state.step == 1 and checkpoints.saved == 1
    assert school.states(SOLVER) == school.states(PROPOSER) == {"trained": 1, "dropped": 1}
    assert school.ledger.outcomes() == {"drop/rolled_back": 2}
    asyncio.run(school.trainer.start(SOLVER, 1))
    assert school.store.latest(SOLVER).weights.payload["w"] == [1.0]
