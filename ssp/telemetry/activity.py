"""Who does what: every call to an actor, as whoever sees all calls tells.

Owns the busy seconds of each actor, what it does now, and its spans of the timeline. Promises that an actor is busy while a
call to it is under way, that a call's span counts from when its actor could begin it (one after the other; blocks that an
engine plays at once in flight are on lines of their own, `solver-0`, `solver-0 2`), that what reaches an actor beside its
calls (new weights in flight) has a track of its own and does not count as busy, and that nothing is asked of an actor for
it. Refuses to influence a call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

STEP: ContextVar[int] = ContextVar("step")
"""The step that the calls of this task are for, for their spans."""


class Span(Protocol):
    """Where spans go (`Timeline.span`)."""

    def __call__(self, track: str, name: str, start: float, end: float, args: dict[str, float] | None = None) -> None:
        """One span, perf_counter seconds."""
        ...


@dataclass
class _Line:
    """Calls that follow each other. `sent`: what is under way, oldest first: when it was sent, and what it is; `last`: when
    the one before ended."""

    track: str
    last: float
    sent: deque[tuple[float, str]] = field(default_factory=deque)

    @property
    def began(self) -> float:
        """When the call that is made now could begin."""
        return max(self.sent[0][0], self.last)


@dataclass
class _Actor:
    """`lines`: one, and one more for each call that it makes beside others. `done`: busy seconds until it was last idle;
    `since`: when it was not any more."""

    kind: str
    lines: list[_Line]
    under_way: int = 0
    done: float = 0.0
    since: float = 0.0
    version: int = -1

    def line(self, at_once: int) -> _Line:
        """Where a call that is sent now stands."""
        found = min(self.lines, key=lambda line: len(line.sent))
        if found.sent and len(self.lines) < at_once:
            found = _Line(f"{self.lines[0].track} {len(self.lines) + 1}", 0.0)
            self.lines.append(found)
        return found

    def busy(self, now: float) -> float:
        """Seconds up to `now`, with what is under way."""
        return self.done + (now - self.since if self.under_way else 0.0)


class Activity:
    """What the actors of one run do. `span` receives every piece of work."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._actors: dict[str, _Actor] = {}
        self._cut = time.perf_counter()
        self._before: dict[str, float] = {}

    def enrol(self, kind: str, actors: Sequence[str]) -> None:
        """There are these actors of `kind`, also before their first call."""
        for actor in actors:
            self._actors.setdefault(actor, _Actor(kind, [_Line(actor, time.perf_counter())]))

    @contextmanager
    def call(self, name: str, work: str, args: dict[str, float], at_once: int = 1) -> Iterator[dict[str, float]]:
        """Around a call to an actor that does `work`, `at_once` of them at most; what is added to `args` is shown too."""
        actor, sent = self._actors[name], (time.perf_counter(), work)
        line = actor.line(at_once)
        line.sent.append(sent)
        if not actor.under_way:
            actor.since = sent[0]
        actor.under_way += 1
        actor.version = int(args.get("version", actor.version))
        try:
            yield args
        finally:
            end, start = time.perf_counter(), max(sent[0], line.last)
            line.sent.remove(sent)
            line.last = end
            actor.under_way -= 1
            if not actor.under_way:
                actor.done += end - actor.since
            self._span(line.track, work, start, end, args)
            load = args.get("sync_s", 0.0)
            if load > 0:
                self._span(line.track, "sync", start, min(end, start + load))

    def beside(self, name: str, work: str, start: float, args: dict[str, float]) -> None:
        """A piece of work beside the actor's calls has ended."""
        self._span(f"{name} {work}", work, start, time.perf_counter(), args)

    def busy(self) -> dict[str, float]:
        """Busy seconds so far, by actor."""
        now = time.perf_counter()
        return {name: actor.busy(now) for name, actor in list(self._actors.items())}

    def kinds(self) -> dict[str, list[str]]:
        """Kind → its actors."""
        found: dict[str, list[str]] = {}
        for name, actor in list(self._actors.items()):
            found.setdefault(actor.kind, []).append(name)
        return found

    def version(self, kind: str) -> int:
        """The oldest version that an actor of `kind` was last told to play with, -1 where none was."""
        told = [actor.version for actor in list(self._actors.values()) if actor.kind == kind and actor.version >= 0]
        return min(told, default=-1)

    def idle(self) -> dict[str, float]:
        """`time/idle_share_<kind>`: share of the time since the last such call in which actors of that kind had nothing to
        do, their mean."""
        now, busy = time.perf_counter(), self.busy()
        wall, self._cut = max(now - self._cut, 1e-9), now
        spent = {name: seconds - self._before.get(name, 0.0) for name, seconds in busy.items()}
        self._before = busy
        return {
            f"time/idle_share_{kind}": max(0.0, 1 - sum(spent[name] for name in names) / len(names) / wall)
            for kind, names in self.kinds().items()
        }

    def now(self) -> str:
        """What is under way, for a person: "solver solve 2/2 3s, learner_solver learn 1s"."""
        at, doing = time.perf_counter(), dict[tuple[str, str], list[float]]()
        for actor in list(self._actors.values()):
            oldest = min((line for line in actor.lines if line.sent), key=lambda line: line.began, default=None)
            if oldest is not None:
                doing.setdefault((actor.kind, oldest.sent[0][1]), []).append(at - oldest.began)
        sizes = {kind: len(names) for kind, names in self.kinds().items()}
        return ", ".join(
            f"{kind} {work}{f' {len(waits)}/{sizes[kind]}' if sizes[kind] > 1 else ''} {max(waits):.0f}s"
            for (kind, work), waits in doing.items()
        )
