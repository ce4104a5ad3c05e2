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
from ssp.selfplay.transfer.parcel import Parcel, Place
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
    """A player of a broadcast; `fails`: methods that do."""

    def __init__(self, fails: str = "") -> None:
        self.got: list[int] = []
        self.fails, self.host = fails, "127.0.0.1"
        self.called: list[str] = []

    def place(self) -> Place:
        return Place(self.host)

    def join(self, *args: Any) -> None:
        self.joined = args
        self._maybe("join")

    def receive(self, version: int, parcel: Parcel) -> dict[str, float]:
        self._maybe("receive")
        self.got.append(version)
        return {"sync_transfer": 0.5}

    def leave(self) -> None:
        self._maybe("leave")

    def _maybe(self, method: str) -> None:
        self.called.append(method)
        if self.fails == method:
            self.fails = ""
            raise Fault("solver_died" if method != "join" else "broadcast_failed")


class Sender(FakeLearner):
    """A learner that sends to nobody; `breaks`: once, in the middle."""

    breaks = ""

    def listen(self, host: str) -> int:
        return 1

    def join(self, *args: Any) -> None:
        """There is no group."""

    def send(self, serial: int) -> float:
        if self.breaks:
            cause, self.breaks = self.breaks, ""
            raise Fault(cause)
        return 0.1


def table(tmp_path: Path, members: list[Member], **played: list[Member]) -> SimpleNamespace:
    """Players of the solver, and of roles that share its policy."""
    cfg = config(transfer__kind="broadcast", **{f"{role}__policy": "shared" for role in ROLES if played})
    said: list[str] = []
    learner, book = Sender(cfg, SOLVER, tmp_path), Ledger(tmp_path / "ledger.db")
    everyone = {**played, SOLVER: members}
    crews = {
        role: LocalCrew(Players, role, lambda i, mine=mine: mine[i], len(mine))  # type: ignore[misc]
        for role, mine in everyone.items()
    }
    taught = FaultyCrew(LocalCrew(Learners, "learner", lambda i: learner))
    cast = Cast(crews, taught, {SOLVER: taught}, LocalCrew(LedgerWriter, "l", lambda i: book))
    store = WeightStore(cfg, cast, said.append)
    asyncio.run(store.prepare(SOLVER))

    def publish() -> Published:
        learner.updates += 1
        parcel, figures = learner.weights()
        return asyncio.run(store.publish(SOLVER, parcel, 1, learner.updates, int(figures["serial"])))

    return SimpleNamespace(publish=publish, said=said, learner=learner, store=store, taught=taught, book=book)


def test_one_broadcast_of_a_shared_policy_reaches_the_players_of_both_roles(tmp_path: Path) -> None:
    solvers, proposers = [Member(), Member()], [Member(), Member()]
    made = table(tmp_path, solvers, proposer=proposers)
    made.book.next_version(PROPOSER, 0, 0)  # versions count for each role
    made.publish()
    made.publish()
    assert [member.got for member in solvers] == [[1, 2]] * 2
    assert [member.got for member in proposers] == [[2, 3]] * 2
    assert made.store.latest(PROPOSER).weights is made.store.latest(SOLVER).weights
    assert made.taught.counts["join"] == 1 and made.taught.counts["send"] == 2
    assert made.said == ["proposer and solver weights travel by broadcast (transfer.kind)"]
    assert made.store.figures(SOLVER) == {"time/sync_transfer": 0.5}


@pytest.mark.parametrize("fails", ["join", "receive"])
def test_a_member_that_fails_is_said_and_the_version_is_fetched_then_the_group_is_formed_anew(
    tmp_path: Path, fails: str
) -> None:
    members = [Member(), Member(fails)]
    made = table(tmp_path, members)
    published = made.publish()
    assert published.weights.kind == "object_store" and np.array_equal(published.weights.payload["w"], [1.0])
    assert any("version 1" in text and "fetched from the learner" in text for text in made.said)
    assert all(member.called[-1] == "leave" for member in members)
    assert made.publish().weights.kind == "broadcast" and [m.got[-1] for m in members] == [2, 2]
    assert [member.called.count("join") for member in members] == [2, 2]


def test_a_player_that_came_back_elsewhere_joins_from_there(tmp_path: Path) -> None:
    members = [Member(), Member("receive")]
    made = table(tmp_path, members)
    made.publish()
    members[1].host = "10.0.0.2"
    assert made.publish().weights.kind == "broadcast"
    assert [member.joined[-1] for member in members] == ["127.0.0.1", "10.0.0.2"]


def test_a_send_that_breaks_is_no_lost_learner_and_a_dead_learner_is(tmp_path: Path) -> None:
    made = table(tmp_path, [Member()])
    made.learner.breaks = "broadcast_failed"
    assert made.publish().weights.kind == "object_store"
    made.learner.breaks = "learner_died"
    with pytest.raises(LearnerLost, match="learner_died"):
        made.publish()


def test_a_missed_version_is_fetched_as_long_as_it_may_be_played(tmp_path: Path) -> None:
    made = table(tmp_path, [Member()])
    first, second = made.publish(), made.publish()

    def mend(lost: Published) -> Published:
        return asyncio.run(made.store.mend(SOLVER, lost, "weights_missed"))

    assert np.array_equal(mend(first).weights.payload["w"], [1.0]) and made.store.latest(SOLVER) is second
    mended = mend(second)
    assert np.array_equal(mended.weights.payload["w"], [2.0]) and made.store.latest(SOLVER) is mended
    assert mend(second) is mended and len(made.said) == 3  # the choice, and one call a version
    made.publish()
    with pytest.raises(LearnerLost, match="weights_gone"):
        mend(first)
