"""The way of weights over a whole game: what is lost comes again, and it is said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import FakeLearner, FaultyCrew, Stage, config

from ssp.base.crew import LocalCrew
from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.base.errors import Fault
from ssp.record.ledger import Ledger
from ssp.record.ledger.writer import LedgerWriter
from ssp.selfplay.crews.cast import Cast, LearnerLost
from ssp.selfplay.crews.seams import Learners, Players
from ssp.selfplay.records import Published
from ssp.selfplay.transfer.parcel import Parcel
from ssp.selfplay.versions import WeightStore


def test_a_payload_that_is_lost_voids_the_block_which_is_played_again_with_the_same_version(tmp_path: Path) -> None:
    stage = Stage(config(), tmp_path / "run")
    parcels: dict[int, list[Parcel]] = {}

    def vanish(worker: int, method: str, count: int, args: Any) -> str:
        if method != "play" or not args[1].stem.startswith("solver"):
            return ""
        before = parcels.setdefault(args[2], [])
        before.append(args[3])
        return "payload_lost" if args[2] == 2 and args[3] is before[0] else ""

    stage.cast.players["solver"].fails = vanish  # type: ignore[attr-defined]
    stage.play()
    assert stage.settled()["solver"]["voided"] > 0
    assert {row["cause"] for row in stage.rows() if row["state"] == "voided"} == {"payload_lost"}
    said = [e for e in stage.sink.events if "fetched from the learner" in e]
    assert len(said) == 1 and said[0].startswith("solver version 2: payload_lost")  # once for both players
    lost, mended = {id(parcel): parcel for parcel in parcels[2]}.values()
    assert len(parcels[2]) == 4 and mended.payload["w"].tolist() == lost.payload["w"].tolist() == [1.0]
    trained = [row for row in stage.rows() if row["state"] == "trained" and row["commit_step"] == 2]
    assert {row["policy_version_min"] for row in trained} == {2}


# the coordinator's side alone


class Member:
    """A player in flight; `fails`: once."""

    def __init__(self, fails: str = "") -> None:
        self.got: list[int] = []
        self.fails = fails

    def refresh(self, version: int, parcel: Parcel) -> dict[str, float]:
        if self.fails:
            cause, self.fails = self.fails, ""
            raise Fault(cause)
        self.got.append(version)
        return {"sync_transfer": 0.5}


def table(tmp_path: Path, members: list[Member], proposers: list[Member], in_flight: bool) -> SimpleNamespace:
    """A store between a learner whose policy both roles share, and its players."""
    changes = {f"{role}__policy": "shared" for role in ROLES}
    cfg = config((1, 1), schedule__in_flight=in_flight, **changes)
    said: list[str] = []
    learner, book = FakeLearner(cfg, SOLVER, tmp_path), Ledger(tmp_path / "ledger.db")
    crews = {
        role: LocalCrew(Players, role, lambda i, mine=mine: mine[i], len(mine))  # type: ignore[misc]
        for role, mine in ((PROPOSER, proposers), (SOLVER, members))
    }
    taught = FaultyCrew(LocalCrew(Learners, "learner", lambda i: learner))
    cast = Cast(crews, taught, {SOLVER: taught}, LocalCrew(LedgerWriter, "l", lambda i: book))
    store = WeightStore(cfg, cast, said.append)

    def publish() -> Published:
        learner.updates += 1
        parcel, figures = learner.weights()
        return asyncio.run(store.publish(SOLVER, parcel, 1, learner.updates, int(figures["serial"])))

    return SimpleNamespace(publish=publish, said=said, store=store, taught=taught, book=book)


def test_one_publication_of_a_shared_policy_has_a_version_of_each_role(tmp_path: Path) -> None:
    solvers, proposers = [Member(), Member()], [Member(), Member("proposer_died")]
    made = table(tmp_path, solvers, proposers, in_flight=True)
    made.book.next_version(PROPOSER, 0, 0)  # versions count for each role
    made.publish()
    made.publish()
    assert [member.got for member in solvers] == [[1, 2]] * 2
    assert [member.got for member in proposers] == [[2, 3], [3]]
    assert made.said == ["proposer-1 missed proposer version 2: proposer_died"]
    assert made.store.latest(PROPOSER).weights is made.store.latest(SOLVER).weights
    assert made.store.figures(SOLVER) == {"time/sync_transfer": 0.5}


def test_a_lost_version_is_fetched_as_long_as_its_learner_has_it(tmp_path: Path) -> None:
    made = table(tmp_path, [Member()], [Member()], in_flight=False)
    first, second = made.publish(), made.publish()

    def mend(lost: Published) -> Published:
        return asyncio.run(made.store.mend(SOLVER, lost, "payload_lost"))

    mended = mend(second)
    assert np.array_equal(mended.weights.payload["w"], [2.0]) and made.store.latest(SOLVER) is mended
    assert mend(second) is mended and len(made.said) == 1  # one call a version
    with pytest.raises(LearnerLost, match="weights_gone"):
        mend(first)
