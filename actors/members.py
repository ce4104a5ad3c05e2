"""The replicas of retriever actors as one process sees them: found by name, asked, hedged, waited for.

Replicas may join and leave while a run lasts. A lost call is made again, elsewhere if it can be, until its deadline; an
actor that hangs is killed, so that it restarts.
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
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError, RayTaskError

SHARD, ENCODER = "shard", "encoder"
REFRESH = 2.0
"""Seconds between two looks at who is there, and between two probes of a replica that is up."""
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
    found = [(actor["namespace"], actor["name"], pattern.fullmatch(actor["name"])) for actor in actors]
    return [(space, name, int(match[1])) for space, name, match in found if match]


def names(run: str, kind: str) -> dict[str, int]:
    """Name → part of the living actors of that kind in this namespace."""
    here = ray.get_runtime_context().namespace
    return {name: part for space, name, part in living(run, kind) if space == here}


@dataclass(eq=False)
class _Replica:
    """One actor. `up`: it takes calls; `leaving`: it never will again. `started`: it has answered a probe since its start,
    so one that it leaves unanswered means that it hangs. `busy`: calls under way, those that nobody waits for included."""

    part: int
    handle: Any
    up: bool = False
    leaving: bool = False
    started: bool = False
    busy: int = 0
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

    `hedge`: see `RetrieverConfig`. `patience`: seconds after which a replica that does not even answer a probe is killed.
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
        while len(answers) < len(orders) and (now := time.monotonic()) < deadline:
            open_ = {part: call for part, call in calls.items() if part not in answers}
            for part, call in open_.items():
                if not call.flying or now >= call.hedge_at:
                    self._send(part, call, method, orders[part], now)
            flying = {ref: part for part, call in open_.items() for ref in call.flying}
            if flying:
                soon = min(deadline, *(call.hedge_at for call in open_.values()))
                if not all(call.flying for call in open_.values()):
                    soon = min(soon, now + PROBE)  # somebody may be back
                ready, _ = ray.wait(list(flying), num_returns=1, timeout=max(0.0, soon - now))
                for ref in ready:
                    answer = self._received(open_[flying[ref]].flying.pop(ref), ref)
                    if answer is not None:
                        answers[flying[ref]] = answer
            elif enough(answers.keys()):
                break
            else:
                with self._changed:
                    self._changed.wait(min(PROBE, max(0.0, deadline - now)))
        if len(answers) < len(orders):
            for part in orders.keys() - answers.keys():
                for replica in calls[part].flying.values():
                    self._down(replica)  # too late: until it answers a probe
        return {part: answers[part] for part in sorted(answers)}

    @property
    def up(self) -> dict[int, int]:
        """Living replicas of each part."""
        with self._changed:
            up = [r.part for r in self._replicas.values() if r.up]
            return {part: up.count(part) for part in self._parts}

    def close(self) -> None:
        """End the thread, unless Ray keeps it: it is waited for 10 s."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout=10.0)

    def _send(self, part: int, call: _Call, method: str, args: tuple[Any, ...], now: float) -> None:
        """Ask the least busy replica that is not asked yet."""
        asked = list(call.flying.values())
        call.hedge_at = now + max(self._hedge, PROBE) if self._hedge else float("inf")
        with self._changed:
            there = [r for r in self._replicas.values() if r.part == part and r.up and r not in asked]
            if not there:
                return
            replica = min(there, key=lambda r: (r.busy, random.random()))
            replica.busy += 1
        ref = getattr(replica.handle, method).remote(*args)
        call.flying[ref] = replica

        def done(_: Any) -> None:
            with self._changed:
                replica.busy -= 1

        ref.future().add_done_callback(done)

    def _received(self, replica: _Replica, ref: Any) -> Any:
        """The answer; None of one that leaves, died, or whose answer is lost."""
        try:
            answer = ray.get(ref, timeout=self._patience)
        except RayTaskError as error:  # its own code: a bug, or a Fault
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except RayError:
            answer = None
        else:
            replica.leaving = replica.leaving or answer is None
        if answer is None:
            self._down(replica)
        return answer

    def _down(self, replica: _Replica) -> None:
        with self._changed:
            replica.up = False
            self._changed.notify_all()

    def _watch(self) -> None:
        looked = time.monotonic()
        while True:
            with self._changed:
                if not self._closed:
                    self._changed.wait(REFRESH if all(r.up for r in self._replicas.values()) else PROBE)
                if self._closed or not ray.is_initialized():
                    return
                replicas = list(self._replicas.items())
            now = time.monotonic()
            for name, replica in replicas:
                self._probe(name, replica, now)
            if now - looked > REFRESH:
                self._look()
                looked = now

    def _look(self) -> None:
        """Find out who is there; whoever is new is asked first whether it is ready."""
        try:
            there = names(self._run, self.kind)
        except RayError:
            return  # the cluster's head is busy or away: those that are known stay
        for name in self._replicas.keys() - there.keys():
            with self._changed:
                self._replicas.pop(name).up = False
        for name in there.keys() - self._replicas.keys():
            if there[name] in self._parts:
                self._found(name, there[name])

    def _found(self, name: str, part: int) -> None:
        with suppress(ValueError, RayError):  # it left meanwhile, or the cluster's head is away: the next look tells
            replica = _Replica(part, ray.get_actor(name))
            self._probe(name, replica, time.monotonic())
            with self._changed:
                self._replicas[name] = replica

    def _probe(self, name: str, replica: _Replica, now: float) -> None:
        if replica.probe is None:
            if not replica.up or now - replica.asked >= REFRESH:
                replica.probe, replica.asked = replica.handle.ping.remote(), now
            return
        try:
            ray.get(replica.probe, timeout=0)
        except GetTimeoutError:
            if not replica.started or now - replica.asked <= self._patience:
                return
            ray.kill(replica.handle, no_restart=False)
            replica.started = False
        except RayError as error:  # it restarts, or it is gone for good: then its name goes too, or is another one's
            replica.started = False
            if isinstance(error, ActorDiedError):
                self._found(name, replica.part)
        else:
            replica.started = True
        with self._changed:
            replica.probe, replica.up = None, replica.started and not replica.leaving
            self._changed.notify_all()
