"""Who does what: every call to an actor, seen where all calls pass (`ssp.base.crew.Crew`).

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
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ssp.base.crew import Crew
from ssp.base.episode import PROPOSER, SOLVER
from ssp.config.crews import at_once
from ssp.config.schema import Config
from ssp.selfplay.cast import Cast
from ssp.selfplay.records import PlayReport

STEP: ContextVar[int] = ContextVar("step")
"""The step that the calls of this task are for, for their spans."""

WORK = {"verify": "verify", "grade": "grade", "update": "learn", "update_all": "learn", "save": "save", "load": "load"}
WORK |= dict.fromkeys(("weights", "again", "anchor_weights", "send"), "sync")
WORK |= dict.fromkeys(("sleep", "wake"), "turn")
"""Method → what it is called in the timeline. Others, but for `play`, are no work: they ask or tell something."""

BESIDE = frozenset({"refresh", "receive"})
"""Methods that a player answers while it plays."""


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


class Watched:
    """A crew whose calls are seen by `activity`; otherwise the crew itself. `at_once`: calls that an actor makes at once."""

    def __init__(self, inner: Crew, activity: Activity, at_once: int = 1) -> None:
        self.name, self._inner, self._activity, self._at_once = inner.name, inner, activity, at_once
        self._enrol()

    @property
    def size(self) -> int:
        """See `Crew.size`."""
        return self._inner.size

    def _enrol(self) -> None:
        self._enrolled = self.size
        self._activity.enrol(self.name.replace("-", "_"), [f"{self.name}-{i}" for i in range(self.size)])

    async def call(self, worker: int, method: str, *args: Any) -> Any:
        """See `Crew.call`."""
        if self.size > self._enrolled:
            self._enrol()
        actor, shown = f"{self.name}-{worker}", _shown(method, args)
        if method in BESIDE:
            started = time.perf_counter()
            answer = await self._inner.call(worker, method, *args)
            self._activity.beside(actor, "sync", started, shown)
            return answer
        work = _played(self.name, args) if method == "play" else WORK.get(method)
        if work is None:
            return await self._inner.call(worker, method, *args)
        with self._activity.call(actor, work, shown, self._at_once) as more:
            answer = await self._inner.call(worker, method, *args)
            if method == "play":
                more |= _parts(answer[1])
            return answer


def watched(cast: Cast, activity: Activity, cfg: Config) -> Cast:
    """The cast with every crew that computes watched. Queues and the ledger are not: they answer at once."""
    proposers = Watched(cast.proposers, activity, at_once(cfg, PROPOSER)) if cast.proposers.size else cast.proposers
    learners = {id(crew): Watched(crew, activity) for crew in cast.learners.values()}
    return replace(
        cast,
        proposers=proposers,
        solvers=Watched(cast.solvers, activity, at_once(cfg, SOLVER)),
        judges=Watched(cast.judges, activity),
        learners={role: learners[id(crew)] for role, crew in cast.learners.items()},
    )


def _played(crew: str, args: Sequence[Any]) -> str:
    """What a block of episodes is: only evaluations name the question that they ask."""
    if args[0] and args[0][0].item:
        return "evaluate"
    return "propose" if crew == "proposer" else "solve"


def _shown(method: str, args: Sequence[Any]) -> dict[str, float]:
    shown: dict[str, float] = {}
    if (step := STEP.get(-1)) >= 0:
        shown["step"] = step
    if method == "play":
        shown |= {"episodes": len(args[0]), "version": args[2]}
    elif method in BESIDE:
        shown["version"] = args[0]
    return shown


def _parts(report: PlayReport) -> dict[str, float]:
    """Seconds of a block's parts. Searching is done elsewhere while the player waits."""
    seconds = report.seconds
    parts = {f"{part}_s": seconds[part] for part in ("generate", "search") if part in seconds}
    sync = sum(seconds.get(part, 0.0) for part in ("sync_transfer", "sync_load"))
    return {name: round(value, 6) for name, value in (parts | {"sync_s": sync}).items()}
