"""Queue and ledger together, in any order of puts, leases, deaths, restarts, rollbacks and commits: what the
weights were trained on is what the ledger says, each episode once, and every other one is accounted for."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ssp.record.ledger import Ledger
from ssp.selfplay.queues import LeaseQueue, Ticket


class Machine(RuleBasedStateMachine):
    """A coordinator that plays and puts, two takers that lease for one learner, and a checkpoint.

    `weights` is what the learner was trained on, `saved` the same at the checkpoint, with its step: the truth that the
    ledger is compared with.
    """

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = self.opened()
        self.queue = LeaseQueue(12, 10_000)
        self.weights: list[str] = []
        self.saved: tuple[list[str], int] = ([], 0)
        self.step, self.incarnation, self.games, self.calls = 0, 1, 0, 0
        self.unacked: dict[str, Ticket] = {}
        self.leases: dict[str, list[Ticket]] = {}
        self.again: list[int] = []
        self.died = False
        self.admitted: set[str] = set()

    def opened(self) -> Ledger:
        return Ledger(Path(self.folder.name) / "ledger.db")

    # the coordinator

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), lost=st.sampled_from(["", "", "", "died"]))
    def play(self, sizes: list[int], lost: str) -> None:
        """Games of some attempts each; those that were lost before come first. A worker may die at it."""
        for size in sizes:
            number = self.again.pop(0) if self.again else self.games
            self.games = max(self.games, number + 1)
            self.calls += 1
            ids = [f"g{number}a{i}-i{self.incarnation}.{self.calls}" for i in range(size)]
            rows = [{"id": id_, "game_id": f"g{number}", "role": "solver", "state": "running"} for id_ in ids]
            assert self.ledger.create(rows) == size and self.ledger.create(rows) == 0
            if lost:
                self.ledger.advance([{"id": id_, "state": "voided", "cause": "solver_died"} for id_ in ids])
                self.again.append(number)
                continue
            self.ledger.advance([{"id": id_, "state": "queued", "outcome": "scored", "reward": 1.0} for id_ in ids])
            self.unacked[ids[0]] = Ticket(ids[0], number, ids, size, 10 * size, self.step)
        self.put()

    @rule()
    def put(self) -> None:
        """Hand over what was not acknowledged: a queue that died has nothing, a full one takes nothing now."""
        for ticket in self.unacked.values():
            if not self.queue.put([ticket], again=ticket.id in self.admitted):
                break
            self.admitted.add(ticket.id)

    @rule()
    def the_queue_dies(self) -> None:
        self.queue = LeaseQueue(12, 10_000)
        self.died = True

    @rule()
    def the_ledger_dies(self) -> None:
        self.ledger.close()
        self.ledger = self.opened()

    # the takers and the learner

    @rule(items=st.integers(1, 6))
    def lease(self, items: int) -> None:
        self.calls += 1
        key = f"k{self.calls}"
        if got := self.queue.lease(key, items):
            self.leases[key] = got

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), cut=st.sampled_from(["", "", "", "update", "commit", "twice", "payload"]))
    def learn(self, data: Any, cut: str) -> None:
        """A taker asks again, and what is still its own is trained, committed, acknowledged; it may die between any
        two of these, which costs the learner its state."""
        key = data.draw(st.sampled_from(sorted(self.leases)))
        leased = self.leases.pop(key)
        again = self.queue.lease(key, 1)
        assert again == leased or self.died, "nothing but the queue's death takes a lease away"
        mine = [t for t in again if t.id in self.unacked]  # a queue that died may be told again what was done before
        ids = [id_ for ticket in mine for id_ in ticket.block]
        if cut == "payload":
            self.ledger.advance([{"id": id_, "state": "voided", "cause": "payload_lost"} for id_ in ids])
            self.again += [ticket.order for ticket in mine]
            self.acknowledged(key, mine)
            return
        fit = self.ledger.get(ids)
        assert all(row["state"] == "queued" for row in fit)
        if not ids:
            return
        self.weights += ids
        self.step += 1
        if cut == "update":
            return self.the_learner_dies()
        version = self.ledger.next_version("solver", self.incarnation, self.step)
        for _ in range(2 if cut == "twice" else 1):
            self.ledger.commit("solver", self.incarnation, self.step, version, ids)
        if cut == "commit":
            return self.the_learner_dies()
        self.acknowledged(key, mine)

    def acknowledged(self, key: str, mine: list[Ticket]) -> None:
        for ticket in mine:
            del self.unacked[ticket.id]
        assert {ticket.id for ticket in mine} <= set(self.queue.ack(key))

    @rule(older=st.integers(0, 3))
    def sweep(self, older: int) -> None:
        self.calls += 1
        key = f"sweep{self.calls}"
        stale = [t for t in self.queue.sweep(key, self.step - older) if t.id in self.unacked]
        rows = [{"id": id_, "state": "dropped", "cause": "stale"} for ticket in stale for id_ in ticket.block]
        for _ in range(2):
            self.ledger.advance(rows)
        self.acknowledged(key, stale)

    @rule(cut=st.sampled_from(["", "", "before the rename"]))
    def save(self, cut: str) -> None:
        if cut:
            return self.the_driver_dies()
        self.saved = (list(self.weights), self.step)

    @rule()
    def the_learner_dies(self) -> None:
        self.weights, self.step = list(self.saved[0]), self.saved[1]
        for _ in range(2):
            self.ledger.rollback({"solver": self.step})
        self.incarnation += 1
        self.again = []
        self.unacked.clear()
        self.leases.clear()
        self.queue.clear()
        self.died = False

    @rule()
    def the_driver_dies(self) -> None:
        self.the_ledger_dies()
        self.the_queue_dies()
        self.the_learner_dies()

    # laws

    @invariant()
    def each_once(self) -> None:
        if not hasattr(self, "queue"):
            return
        states = self.ledger.check().get("solver", {})
        assert states.get("trained", 0) == len(self.weights)
        assert max(Counter(self.weights).values(), default=0) <= 1
        assert all(row["state"] == "trained" for row in self.ledger.get(self.weights))
        waiting = sum(ticket.items for ticket in self.unacked.values())
        assert states.get("queued", 0) == waiting

    def teardown(self) -> None:
        """Whatever happened before: the rest is trained, and nothing stays open."""
        if not hasattr(self, "queue"):
            return
        self.the_queue_dies()  # nobody acknowledges what is leased
        while self.unacked:
            self.put()
            self.calls += 1
            tickets = self.queue.lease(f"k{self.calls}", 6)
            mine = [ticket for ticket in tickets if ticket.id in self.unacked]
            ids = [id_ for ticket in mine for id_ in ticket.block]
            self.step += 1
            self.ledger.commit("solver", self.incarnation, self.step, self.step, ids)
            self.weights += ids
            self.acknowledged(f"k{self.calls}", mine)
        states = self.ledger.check().get("solver", {})
        assert all(not states.get(state) for state in ("created", "running", "grading", "queued"))
        self.each_once()
        self.ledger.close()
        self.folder.cleanup()


Machine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestExactlyOnce: Any = Machine.TestCase
