"""The replicas of retriever actors as one process sees them: looked up by name, asked, hedged,
waited for.

Replicas may join and leave while a run lasts; whoever asks looks now and then who is there. A lost
call is made again, elsewhere if it can be, until its deadline. An actor that hangs is killed, so
that it restarts."""

import math
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

from actors.crew import cause_of

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
    replicas = []
    for actor in actors:
        match = pattern.fullmatch(actor["name"])
        if match:
            replicas.append((actor["namespace"], actor["name"], int(match[1])))
    return replicas


def names(run: str, kind: str) -> dict[str, int]:
    """Name → part of the living actors of that kind in this namespace."""
    here = ray.get_runtime_context().namespace
    return {name: part for space, name, part in living(run, kind) if space == here}


@dataclass(eq=False)
class _Replica:
    """One actor. `up`: it takes calls. `started`: it has answered a probe since its start, so that
    an unanswered one means that it hangs. `busy`: calls under way, also those that nobody waits
    for. `probe`: the one under way, which was `asked` then (monotonic)."""

    part: int
    handle: Any
    up: bool = False
    started: bool = False
    busy: int = 0
    probe: Any = None
    asked: float = -math.inf


@dataclass
class _MemberCall:
    """The call to one part: which replica each reference is from, and when the next replica is
    asked too."""

    flying: dict[Any, _Replica] = field(default_factory=dict)
    hedge_at: float = math.inf


class Members:
    """The replicas of `parts` parts of one kind. Safe in several threads.

    `patience`: seconds that a call may take. After a quarter of them another replica is asked too;
    one that leaves a probe unanswered for as long is killed."""

    def __init__(self, run: str, kind: str, parts: int, patience: float) -> None:
        self.kind = kind
        self._run = run
        self._parts = range(parts)
        self._patience = patience
        self._replicas: dict[str, _Replica] = {}
        self._listed = -math.inf
        self._lock = threading.Lock()
        self._looking = threading.Lock()

    def ask(
        self, method: str, orders: Mapping[int, tuple[Any, ...]], deadline: float
    ) -> dict[int, Any]:
        """Call `method` on one replica of each part; returns, by part, the answers that came before
        `deadline` (monotonic). Parts without a living replica are waited for. Raises what the
        actors' own code raised."""
        answers: dict[int, Any] = {}
        calls = {part: _MemberCall() for part in orders}  # those without an answer
        now = time.monotonic()
        while calls and now < deadline:
            self._look(now)
            for part, call in calls.items():
                if not call.flying or now >= call.hedge_at:
                    self._send(part, call, method, orders[part], now)
            flying = {ref: part for part, call in calls.items() for ref in call.flying}
            idle = any(not call.flying for call in calls.values())
            look_at = now + (PROBE if idle else REFRESH)  # somebody may be back
            wake_at = min(deadline, look_at, *(call.hedge_at for call in calls.values()))
            wait = max(0.0, wake_at - now)
            if flying:
                ready, _ = ray.wait(list(flying), num_returns=1, timeout=wait)
                for ref in ready:
                    part = flying[ref]
                    answer = self._received(calls[part].flying.pop(ref), ref)
                    if answer is not None:
                        answers[part] = answer
                        del calls[part]
            else:
                time.sleep(wait)
            now = time.monotonic()
        for call in calls.values():
            for replica in call.flying.values():
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
            up = [replica.part for replica in self._replicas.values() if replica.up]
        return {part: up.count(part) for part in self._parts}

    def _send(
        self, part: int, call: _MemberCall, method: str, args: tuple[Any, ...], now: float
    ) -> None:
        """Ask the least busy replica that is not asked yet."""
        asked = list(call.flying.values())
        call.hedge_at = now + max(self._patience / 4, PROBE)
        with self._lock:
            up = [one for one in self._replicas.values() if one.up and one.part == part]
            free = [one for one in up if one not in asked]
            if not free:
                return
            replica = min(free, key=lambda one: (one.busy, random.random()))
            replica.busy += 1
        ref = getattr(replica.handle, method).remote(*args)
        call.flying[ref] = replica

        def done(_: Any) -> None:
            with self._lock:
                replica.busy -= 1

        ref.future().add_done_callback(done)

    def _received(self, replica: _Replica, ref: Any) -> Any:
        """The answer; None where the replica died, or the answer is lost."""
        try:
            return ray.get(ref, timeout=self._patience)
        except RayTaskError as error:  # its own code: a bug, or a Fault
            raise cause_of(error) from error
        except RayError:
            self._down(replica)
            return None

    def _down(self, replica: _Replica) -> None:
        with self._lock:
            replica.up = False

    def _look(self, now: float) -> None:
        """See who is there and who answers, unless another thread is about it."""
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
        """See who is there; a new one is asked first whether it is ready."""
        try:
            there = names(self._run, self.kind)
        except RayError:
            return  # the cluster's head is busy or away: those that are known stay
        for name in self._replicas.keys() - there.keys():
            with self._lock:
                self._replicas.pop(name).up = False
        for name in there.keys() - self._replicas.keys():
            if there[name] in self._parts:
                self._add(name, there[name])

    def _add(self, name: str, part: int) -> None:
        """Take the actor of this name for a replica, and probe it."""
        # it left meanwhile, or the cluster's head is away: the next look tells
        with suppress(ValueError, RayError):
            replica = _Replica(part, ray.get_actor(name))
            self._probe(name, replica, time.monotonic())
            with self._lock:
                self._replicas[name] = replica

    def _probe(self, name: str, replica: _Replica, now: float) -> None:
        """Start a probe when it is time for one, or hear how the last one ended."""
        if replica.probe is None:
            if now - replica.asked >= (REFRESH if replica.up else PROBE):
                replica.probe = replica.handle.ping.remote()
                replica.asked = now
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
                self._add(name, replica.part)
        else:
            replica.started = True
        with self._lock:
            replica.probe = None
            replica.up = replica.started
