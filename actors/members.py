"""The replicas of retriever actors as one process sees them: found by name, asked, hedged, waited
for.

Replicas may join and leave while a run lasts; whoever asks looks now and then who is there. A lost
call is made again, elsewhere if it can be, until its deadline; an actor that hangs is killed, so
that it restarts."""

import random
import re
import threading
import time
from collections.abc import Mapping
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


def actor_name(run: str, kind: str, part: int, replica: int) -> str:
    """The name of a retriever actor."""
    return f"{run}-{kind}-{part}-{replica}"


def living(run: str, kind: str) -> list[tuple[str, str, int]]:
    """Namespace, name and part of every living actor of that kind, of any run with this name."""
    pattern = re.compile(re.escape(f"{run}-{kind}-") + r"(\d+)-\d+")
    actors: list[Any] = ray.util.list_named_actors(all_namespaces=True)
    found = [
        (actor["namespace"], actor["name"], pattern.fullmatch(actor["name"])) for actor in actors
    ]
    return [(space, name, int(match[1])) for space, name, match in found if match]


def names(run: str, kind: str) -> dict[str, int]:
    """Name → part of the living actors of that kind in this namespace."""
    here = ray.get_runtime_context().namespace
    return {name: part for space, name, part in living(run, kind) if space == here}


@dataclass(eq=False)
class _Replica:
    """One actor. `up`: it takes calls. `started`: it has answered a probe since its start,
    so one that it leaves unanswered means that it hangs. `busy`: calls under way, those that nobody
    waits for included."""

    part: int
    handle: Any
    up: bool = False
    started: bool = False
    busy: int = 0
    probe: Any = None
    asked: float = float("-inf")


@dataclass
class _MemberCall:
    """What is under way for one part: references by replica, and when the next replica is asked
    too."""

    flying: dict[Any, _Replica] = field(default_factory=dict)
    hedge_at: float = float("inf")


class Members:
    """The replicas of `parts` parts of one kind. Safe in several threads. `patience`: seconds of a
    call, and those after which a replica that does not answer a probe either is killed; after a
    quarter of them another one is asked too."""

    def __init__(self, run: str, kind: str, parts: int, patience: float) -> None:
        self.kind, self._run, self._parts, self._patience = kind, run, range(parts), patience
        self._replicas: dict[str, _Replica] = {}
        self._listed = float("-inf")
        self._lock, self._looking = threading.Lock(), threading.Lock()

    def ask(
        self, method: str, orders: Mapping[int, tuple[Any, ...]], deadline: float
    ) -> dict[int, Any]:
        """What `method` of one replica of each part gives, by part, of those that answered before
        `deadline` (monotonic). Parts without a living replica are waited for. Raises what the
        actors' own code raised."""
        answers: dict[int, Any] = {}
        calls = {part: _MemberCall() for part in orders}
        while len(answers) < len(orders) and (now := time.monotonic()) < deadline:
            self._look(now)
            open_ = {part: call for part, call in calls.items() if part not in answers}
            for part, call in open_.items():
                if not call.flying or now >= call.hedge_at:
                    self._send(part, call, method, orders[part], now)
            flying = {ref: part for part, call in open_.items() for ref in call.flying}
            # somebody may be back
            look = REFRESH if all(call.flying for call in open_.values()) else PROBE
            soon = max(
                0.0, min(deadline, now + look, *(call.hedge_at for call in open_.values())) - now
            )
            if not flying:
                time.sleep(soon)
                continue
            ready, _ = ray.wait(list(flying), num_returns=1, timeout=soon)
            for ref in ready:
                answer = self._received(open_[flying[ref]].flying.pop(ref), ref)
                if answer is not None:
                    answers[flying[ref]] = answer
        if len(answers) < len(orders):
            for part in orders.keys() - answers.keys():
                for replica in calls[part].flying.values():
                    self._down(replica)  # too late: until it answers a probe
        return {part: answers[part] for part in sorted(answers)}

    @property
    def deadline(self) -> float:
        """When a call that is made now must be answered (monotonic)."""
        return time.monotonic() + self._patience

    @property
    def up(self) -> dict[int, int]:
        """Living replicas of each part."""
        self._look(time.monotonic())
        with self._lock:
            up = [r.part for r in self._replicas.values() if r.up]
            return {part: up.count(part) for part in self._parts}

    def _send(
        self, part: int, call: _MemberCall, method: str, args: tuple[Any, ...], now: float
    ) -> None:
        """Ask the least busy replica that is not asked yet."""
        asked = list(call.flying.values())
        call.hedge_at = now + max(self._patience / 4, PROBE)
        with self._lock:
            there = [
                r for r in self._replicas.values() if r.part == part and r.up and r not in asked
            ]
            if not there:
                return
            replica = min(there, key=lambda r: (r.busy, random.random()))
            replica.busy += 1
        ref = getattr(replica.handle, method).remote(*args)
        call.flying[ref] = replica

        def done(_: Any) -> None:
            with self._lock:
                replica.busy -= 1

        ref.future().add_done_callback(done)

    def _received(self, replica: _Replica, ref: Any) -> Any:
        """The answer; None of one that died, or whose answer is lost."""
        try:
            return ray.get(ref, timeout=self._patience)
        except RayTaskError as error:  # its own code: a bug, or a Fault
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except RayError:
            self._down(replica)
            return None

    def _down(self, replica: _Replica) -> None:
        with self._lock:
            replica.up = False

    def _look(self, now: float) -> None:
        """Find out who is there and who answers, unless another thread is about it."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            if now - self._listed >= REFRESH:
                self._list()
                self._listed = now
            for name, replica in list(self._replicas.items()):
                self._probe(name, replica, now)
        finally:
            self._looking.release()

    def _list(self) -> None:
        """Find out who is there; whoever is new is asked first whether it is ready."""
        try:
            there = names(self._run, self.kind)
        except RayError:
            return  # the cluster's head is busy or away: those that are known stay
        for name in self._replicas.keys() - there.keys():
            with self._lock:
                self._replicas.pop(name).up = False
        for name in there.keys() - self._replicas.keys():
            if there[name] in self._parts:
                self._found(name, there[name])

    def _found(self, name: str, part: int) -> None:
        # it left meanwhile, or the cluster's head is away: the next look tells
        with suppress(ValueError, RayError):
            replica = _Replica(part, ray.get_actor(name))
            self._probe(name, replica, time.monotonic())
            with self._lock:
                self._replicas[name] = replica

    def _probe(self, name: str, replica: _Replica, now: float) -> None:
        if replica.probe is None:
            if now - replica.asked >= (REFRESH if replica.up else PROBE):
                replica.probe, replica.asked = replica.handle.ping.remote(), now
            return
        try:
            ray.get(replica.probe, timeout=0)
        except GetTimeoutError:
            if not replica.started or now - replica.asked <= self._patience:
                return
            ray.kill(replica.handle, no_restart=False)
            replica.started = False
        except RayError as error:
            # it restarts, or it is gone for good: then its name goes too, or is another one's
            replica.started = False
            if isinstance(error, ActorDiedError):
                self._found(name, replica.part)
        else:
            replica.started = True
        with self._lock:
            replica.probe, replica.up = None, replica.started
