"""Random lives against a model: whatever the order of calls, the laws hold and the ledger agrees with a plain dict."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ssp.base.episode import State
from ssp.base.errors import InvariantError
from ssp.record.ledger import Ledger

NAMES = st.integers(0, 39).map(lambda i: f"e{i:02}")
ROLES = ("proposer", "solver")


class Machine(RuleBasedStateMachine):
    """The model keeps each episode's state and, for trained ones, the commit step."""

    @initialize()
    def open(self):
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = Ledger(Path(self.folder.name) / "ledger.db")
        self.states: dict[str, State] = {}
        self.steps: dict[str, int] = {}
        self.incarnation, self.step, self.versions = 1, 0, [0]

    def role(self, name: str) -> str:
        return ROLES[int(name[1:]) % 2]

    @rule(names=st.lists(NAMES, max_size=4))
    def create(self, names):
        rows = [{"id": n, "game_id": "g", "role": self.role(n)} for n in names]
        assert self.ledger.create(rows) == len(set(names) - set(self.states))
        assert self.ledger.create(rows) == 0
        for name in names:
            self.states.setdefault(name, State.CREATED)

    @rule(name=NAMES, state=st.sampled_from([s for s in State if s is not State.TRAINED]), again=st.booleans())
    def advance(self, name, state, again):
        change = {"id": name, "state": state, "cause": "stale" if state.final else None}
        if state is not State.VOIDED and state.rank >= State.QUEUED.rank:
            change |= {"outcome": "scored", "reward": 1.0}
        earlier = self.states.get(name)
        if earlier is not None and (state is earlier or state.may_follow(earlier)):
            for _ in range(1 + again):
                self.ledger.advance([change])
            self.states[name] = state
        else:
            before = self.ledger.digest()
            try:
                self.ledger.advance([change])
            except InvariantError:
                assert self.ledger.digest() == before
            else:
                raise AssertionError(f"{earlier} became {state}")

    @rule(names=st.lists(NAMES, min_size=1, max_size=6, unique=True))
    def play(self, names):
        """The common road, in one step: random single moves alone rarely bring anything into a batch."""
        self.create(names)
        able = [n for n in names if State.QUEUED.may_follow(self.states[n])]
        self.ledger.advance([{"id": n, "state": State.QUEUED, "outcome": "scored", "reward": 1.0} for n in able])
        self.states.update(dict.fromkeys(able, State.QUEUED))

    @rule(names=st.lists(NAMES, min_size=1, max_size=6, unique=True), take=st.integers(1, 4), again=st.booleans())
    def commit(self, names, take, again):
        self.play(names)
        names = [n for n, s in sorted(self.states.items()) if s is State.QUEUED and self.role(n) == "solver"][:take]
        self.step += 1
        self.versions.append(self.ledger.next_version("solver", self.incarnation, self.step))
        for _ in range(1 + again):
            self.ledger.commit("solver", self.incarnation, self.step, self.versions[-1], names)
        for name in names:
            self.states[name], self.steps[name] = State.TRAINED, self.step

    @rule(back=st.integers(0, 2), again=st.booleans())
    def restore(self, back, again):
        self.step = max(0, self.step - back)
        for _ in range(1 + again):
            self.ledger.rollback({"solver": self.step})
        self.incarnation += 1
        for name, state in self.states.items():
            lost = state is State.TRAINED and self.steps[name] > self.step
            if lost or state is State.QUEUED:
                self.states[name] = State.DROPPED
            elif not state.final:
                self.states[name] = State.VOIDED

    @rule()
    def reopen(self):
        self.ledger.close()
        self.ledger = Ledger(Path(self.folder.name) / "ledger.db")

    @invariant()
    def agrees(self):
        if not hasattr(self, "states"):
            return
        tally = self.ledger.check()
        self.ledger.recheck()
        for role in ROLES:
            mine = [s for n, s in self.states.items() if self.role(n) == role]
            assert sum(tally.get(role, {}).values()) == len(mine)
            for state in State:
                assert tally.get(role, {}).get(state.value, 0) == mine.count(state)
        assert all(a < b for a, b in zip(self.versions, self.versions[1:], strict=False))

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledger.close()
            self.folder.cleanup()


Machine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestLedgerMachine = Machine.TestCase
