"""Who does what: every call to an actor. An actor is busy while a call is under way. A call's span
counts from when its actor could begin it. Calls that an actor does at once are on lines of their
own (`solver-0`, `solver-0 2`)."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from ssp.base.values import Seconds, Values

STEP: ContextVar[int] = ContextVar("step")
"""The step that the calls of this task are for, for their spans."""

Span = Callable[[str, str, float, float, Values | None], None]
"""(track, name, start, end, what is shown with it), in perf_counter seconds: `Timeline.span`."""


@dataclass
class _Line:
    """Calls that follow each other. `sent`: time and work of what is under way, oldest first;
    `last`: when the call before ended."""

    track: str
    last: float
    sent: list[tuple[float, str]] = field(default_factory=list)


@dataclass
class _Actor:
    """One actor. `lines`: one, and one more a call beside others. `done`: busy seconds before
    `since`, when it was set to work."""

    kind: str
    lines: list[_Line]
    under_way: int = 0
    done: float = 0.0
    since: float = 0.0
    version: int = -1


class Activity:
    """What the actors of one run do. `span` receives every piece of work."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._actors: dict[str, _Actor] = {}
        self._cut = time.perf_counter()
        self._before: Seconds = {}

    def enrol(self, kind: str, actors: Sequence[str]) -> None:
        """Count these actors of `kind`, also before their first call."""
        for actor in actors:
            line = _Line(actor, time.perf_counter())
            self._actors.setdefault(actor, _Actor(kind, [line]))

    @contextmanager
    def call(self, name: str, work: str, args: Values, at_once: int = 1) -> Iterator[Values]:
        """Around a call to an actor that does `work`; the actor does `at_once` calls at most. What
        is added to `args` is shown too."""
        actor = self._actors[name]
        sent = (time.perf_counter(), work)
        line = min(actor.lines, key=lambda line: len(line.sent))
        if line.sent and len(actor.lines) < at_once:
            line = _Line(f"{name} {len(actor.lines) + 1}", 0.0)
            actor.lines.append(line)
        line.sent.append(sent)
        if not actor.under_way:
            actor.since = sent[0]
        actor.under_way += 1
        actor.version = int(args.get("version", actor.version))
        try:
            yield args
        finally:
            end = time.perf_counter()
            start = max(sent[0], line.last)
            line.sent.remove(sent)
            line.last = end
            actor.under_way -= 1
            if not actor.under_way:
                actor.done += end - actor.since
            self._span(line.track, work, start, end, args)
            load = args.get("sync_s", 0.0)
            if load > 0:
                self._span(line.track, "sync", start, min(end, start + load), None)

    def beside(self, name: str, work: str, start: float, args: Values) -> None:
        """Show a piece of work beside the actor's calls, which has just ended. It has a track of its
        own, and does not count as busy."""
        self._span(f"{name} {work}", work, start, time.perf_counter(), args)

    def busy(self) -> Seconds:
        """Busy seconds so far, with what is under way, by actor."""
        now = time.perf_counter()
        seconds = {}
        for name, actor in list(self._actors.items()):
            seconds[name] = actor.done
            if actor.under_way:
                seconds[name] += now - actor.since
        return seconds

    def kinds(self) -> dict[str, list[str]]:
        """Kind → its actors."""
        kinds: dict[str, list[str]] = {}
        for name, actor in list(self._actors.items()):
            kinds.setdefault(actor.kind, []).append(name)
        return kinds

    def version(self, kind: str) -> int:
        """The oldest version that an actor of `kind` was last told to play with, -1 where none
        was."""
        versions = [actor.version for actor in list(self._actors.values()) if actor.kind == kind]
        return min((version for version in versions if version >= 0), default=-1)

    def idle(self) -> Seconds:
        """`time/idle_share_<kind>`: mean share of the time since the last such call in which its
        actors had no work."""
        now = time.perf_counter()
        busy = self.busy()
        wall = max(now - self._cut, 1e-9)
        before = self._before
        self._before = busy
        self._cut = now
        shares = {}
        for kind, names in self.kinds().items():
            spent = sum(busy[name] - before.get(name, 0.0) for name in names)
            shares[f"time/idle_share_{kind}"] = max(0.0, 1 - spent / len(names) / wall)
        return shares

    def now(self) -> str:
        """What is under way, for a person: "solver solve 2/2 3s, learner_solver learn 1s"."""
        at = time.perf_counter()
        waits: dict[tuple[str, str], list[float]] = {}
        for actor in list(self._actors.values()):
            calls = [(line.last, *line.sent[0]) for line in actor.lines if line.sent]
            if calls:
                start, work = min((max(last, sent), work) for last, sent, work in calls)
                waits.setdefault((actor.kind, work), []).append(at - start)
        kinds = self.kinds()
        doing = []
        for (kind, work), seconds in waits.items():
            actors = len(kinds[kind])
            share = f" {len(seconds)}/{actors}" if actors > 1 else ""
            doing.append(f"{kind} {work}{share} {max(seconds):.0f}s")
        return ", ".join(doing)
