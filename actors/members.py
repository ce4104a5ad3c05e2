"""The replicas of retriever actors as one process sees them: found by name, asked, hedged, waited for.

Owns who is there and the choice among them: replicas may join and leave while a run lasts. Promises that a lost call is
made again, elsewhere if it can be, until its deadline, and that an actor that hangs is killed, so that it restarts.
Refuses to know what is asked.
"""

from __future__ import annotations

import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError, RayTaskError

SHARD, ENCODER = "shard", "encoder"
REFRESH = 2.0
"""Seconds between two looks at who is there."""
PROBE = 0.1
"""Seconds between two looks at a replica that is down."""

Enough = Callable[[Collection[int]], bool]
"""Whether the answers of these parts will do while the others are down."""


def actor_name(run: str, kind: str, part: int, replica: int) -> str:
    """The name of a retriever actor."""
    return f"{run}-{kind}-{part}-{replica}"


def living(run: str, kind: str) -> list[tuple[str, str, int]]:
    """Namespace, name and part of every living actor of that kind, of any run with this name."""
    pattern = re.compile(re.escape(f"{run}-{kind}-") + r"(\d+)-\d+")
    actors: list[Any] = ray.util.list_named_actors(all_namespaces=True)
    matches = [(actor["namespace"], pattern.fullmatch(actor["name"])) for actor in actors]
    return [(space, match[0], int(match[1])) for space, match in matches if match]


def names(run: str, kind: str) -> dict[str, int]:
    """Name → part of the living actors of that kind in this namespace."""
    here = ray.get_runtime_context().namespace
    return {name: part for space, name, part in living(run, kind) if space == here}


class State(IntEnum):
    """A replica as this process knows it; what a call tells makes it only worse, and a probe that is answered makes it UP.

    DOWN: not there yet, or its process ended. LATE: a call took too long, so that it may hang. LEAVING: it takes no call
    any more, whatever is heard of it.
    """

    UP, DOWN, LATE, LEAVING = range(4)


@dataclass(eq=False)
class _Replica:
    """One actor. `busy`: calls under way. `left`: of these, the ones that nobody waits for any more, with when they were
    left."""

    name: str
    part: int
    handle: Any
    state: State = State.DOWN
    busy: int = 0
    left: dict[Any, float] = field(default_factory=dict)
    probe: Any = None
    asked: float = 0.0


@dataclass
class _Call:
    """What is under way for one part: references by replica, and when the next replica is asked too."""

    flying: dict[Any, _Replica] = field(default_factory=dict)
    hedge_at: float = float("inf")


_watched: weakref.WeakSet[Members] = weakref.WeakSet()


def close_all() -> None:
    """Close all of this process, before it leaves the cluster: a thread that asks Ray for anything while Ray shuts down
    ends the whole process, silently and with exit code 1."""
    for members in list(_watched):
        members.close()


class Members:
    """The replicas of `parts` parts of one kind, kept up to date by a thread. Safe in several threads.

    `hedge`: see `RetrieverConfig`. `patience`: seconds after which a replica that does not even answer a probe is killed,
    so that Ray restarts it.
    """

    def __init__(self, run: str, kind: str, parts: int, hedge: float, patience: float) -> None:
        self.kind, self._run, self._parts = kind, run, range(parts)
        self._hedge, self._patience = hedge, patience
        self._replicas: dict[str, _Replica] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._look()
        self._thread = threading.Thread(target=self._watch, daemon=True, name=f"{kind}-members")
        self._thread.start()
        _watched.add(self)

    def ask(
        self, method: str, orders: Mapping[int, tuple[Any, ...]], deadline: float, enough: Enough = lambda parts: False
    ) -> dict[int, Any]:
        """What `method` of one replica of each part gives, by part, of those that answered before `deadline` (monotonic).

        Parts without a living replica are waited for, unless the other parts' answers are `enough`. Raises what the
        actors' own code raised.
        """
        answers: dict[int, Any] = {}
        calls = {part: _Call() for part in orders}
        try:
            while len(answers) < len(orders) and (now := time.monotonic()) < deadline:
                for part in orders.keys() - answers.keys():
                    self._send(part, calls[part], method, orders[part], now)
                flying = {ref: part for part, call in calls.items() for ref in call.flying}
                if flying:
                    soon = min(deadline, *(call.hedge_at for call in calls.values()))
                    if any(not calls[part].flying for part in orders.keys() - answers.keys()):
                        soon = min(soon, now + PROBE)  # somebody may be back
                    ready, _ = ray.wait(list(flying), num_returns=1, timeout=max(0.0, soon - now))
                    for ref in ready:
                        if flying[ref] not in answers:
                            self._receive(flying[ref], calls[flying[ref]], ref, answers)
                elif enough(answers.keys()):
                    break
                else:
                    with self._changed:
                        self._changed.wait(min(PROBE, max(0.0, deadline - now)))
        finally:
            self._forget(calls, time.monotonic() >= deadline)
        return {part: answers[part] for part in sorted(answers)}

    @property
    def up(self) -> dict[int, int]:
        """Living replicas of each part."""
        with self._changed:
            up = [r.part for r in self._replicas.values() if r.state is State.UP]
            return {part: up.count(part) for part in self._parts}

    def close(self) -> None:
        """End the thread, unless Ray keeps it: it is waited for 10 s."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=10.0)

    def _send(self, part: int, call: _Call, method: str, args: tuple[Any, ...], now: float) -> None:
        """Ask the least busy replica, and one more when the first one takes long."""
        if call.flying and now < call.hedge_at:
            return
        with self._changed:
            asked = list(call.flying.values())
            there = [r for r in self._replicas.values() if r.part == part and r.state is State.UP and r not in asked]
            call.hedge_at = now + max(self._hedge, PROBE) if self._hedge else float("inf")
            if not there:
                return
            replica = min(there, key=lambda r: (r.busy, random.random()))
            replica.busy += 1
        call.flying[getattr(replica.handle, method).remote(*args)] = replica

    def _receive(self, part: int, call: _Call, ref: Any, answers: dict[int, Any]) -> None:
        replica = call.flying.pop(ref)
        state = State.LEAVING
        try:
            answer = ray.get(ref, timeout=self._patience)
        except RayTaskError as error:  # its own code: a bug, or a Fault
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except RayError:  # dead, restarting, or the answer is lost
            state, answer = State.DOWN, None
        finally:
            self._done(replica, ref)
        if answer is None:
            self._worse(replica, state)
        else:
            answers[part] = answer
            self._forget({part: call}, late=False)

    def _forget(self, calls: Mapping[int, _Call], late: bool) -> None:
        """Nobody waits for these any more; they count as busy until they end."""
        now = time.monotonic()
        for call in calls.values():
            for ref, replica in call.flying.items():
                if late:
                    self._worse(replica, State.LATE)
                with self._changed:
                    replica.left[ref] = now
                ref.future().add_done_callback(lambda _, replica=replica, ref=ref: self._done(replica, ref))
            call.flying, call.hedge_at = {}, float("inf")

    def _done(self, replica: _Replica, ref: Any) -> None:
        with self._changed:
            replica.busy -= 1
            replica.left.pop(ref, None)

    def _worse(self, replica: _Replica, state: State) -> None:
        with self._changed:
            replica.state = max(state, replica.state)
            self._changed.notify_all()

    def _watch(self) -> None:
        looked = time.monotonic()
        while True:
            with self._changed:
                if not self._closed:
                    self._changed.wait(REFRESH if all(r.state is State.UP for r in self._replicas.values()) else PROBE)
                if self._closed or not ray.is_initialized():
                    return
                replicas = list(self._replicas.values())
                began = time.monotonic()
                hung = [r for r in replicas if any(began - at > self._patience for at in r.left.values())]
            for replica in hung:
                self._worse(replica, State.LATE)
            for replica in replicas:
                if replica.state is not State.UP:
                    self._probe(replica)
            if began - looked > REFRESH:
                self._look()
                looked = began

    def _look(self) -> None:
        """Find out who is there; whoever is new is asked first whether it is ready."""
        try:
            there = names(self._run, self.kind)
        except RayError:
            return  # the cluster's head is busy or away: those that are known stay
        for name in self._replicas.keys() - there.keys():
            with self._changed:
                self._replicas.pop(name).state = State.LEAVING
        for name in there.keys() - self._replicas.keys():
            if there[name] in self._parts:
                self._found(name, there[name])

    def _found(self, name: str, part: int) -> None:
        with suppress(ValueError, RayError):  # it left meanwhile, or the cluster's head is away: the next look tells
            replica = _Replica(name, part, ray.get_actor(name))
            self._probe(replica)
            with self._changed:
                self._replicas[name] = replica

    def _probe(self, replica: _Replica) -> None:
        now = time.monotonic()
        if replica.probe is None:
            replica.probe, replica.asked = replica.handle.ping.remote(), now
            return
        try:
            ray.get(replica.probe, timeout=0)
        except GetTimeoutError:
            if replica.state is State.LATE and now - replica.asked > self._patience:
                ray.kill(replica.handle, no_restart=False)
                self._heard(replica, State.DOWN)
        except RayError as error:  # it restarts, or it is gone for good: then its name goes too, or is another one's
            self._heard(replica, State.DOWN)
            if isinstance(error, ActorDiedError):
                self._found(replica.name, replica.part)
        else:
            self._heard(replica, State.UP)

    def _heard(self, replica: _Replica, state: State) -> None:
        """A probe has ended."""
        with self._changed:
            replica.probe = None
            replica.state = replica.state if replica.state is State.LEAVING else state
            self._changed.notify_all()
