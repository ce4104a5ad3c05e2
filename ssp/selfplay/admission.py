"""When work may start. `Pace` holds back a stage whose result would be staler than its role's bound
allows (law 5). `VoidGate` holds back everything while too much fails for our own reasons (law 2)."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import groupby

from ssp.base.errors import Fault, VoidLimit
from ssp.config.schema import VoidConfig

Say = Callable[[str], None]
Answers = Callable[[], Awaitable[bool]]
PLAY = "play"
VERIFY = "verify"
JUDGE = "judge"
"""The stages that the gate counts apart."""


class Pace:
    """Holds rounds to the staleness bounds. Round r trains as step r + 1 of each role.

    Its generation may start once `done[role] >= r - bound[role]`. Then the batch is at most `bound`
    versions old when it is trained, and bound + 1 rounds are in flight (Little's law)."""

    def __init__(self, bounds: Mapping[str, int], done: int = 0) -> None:
        self._bounds = dict(bounds)
        self.done = dict.fromkeys(bounds, done)
        self.over = False
        self._moved = asyncio.Condition()

    async def admit(self, role: str, round_: int) -> None:
        """Wait until round `round_` may generate episodes of `role`, or until the waiting is
        `over`."""
        needed = round_ - self._bounds[role]
        async with self._moved:
            await self._moved.wait_for(lambda: self.over or self.done[role] >= needed)

    async def release(self) -> None:
        """Wake everyone who waits: the run ends, and they must not start."""
        async with self._moved:
            self.over = True
            self._moved.notify_all()

    async def advance(self, role: str) -> None:
        """Count a learner step of `role`, whose weights are published."""
        async with self._moved:
            self.done[role] += 1
            self._moved.notify_all()


class VoidGate:
    """Shuts when the share of voids among the last `window` outcomes of a stage is past `limit`,
    and opens when no stage is above half of it.

    A shut gate lets one round through every `probe_every` seconds if the judges `answer`; after
    `give_up_after` seconds it raises VoidLimit with the causes. Stages count apart: while a judge
    is down every attempt is still played well, which must not open the gate."""

    def __init__(
        self, cfg: VoidConfig, say: Say = lambda text: None, answers: Answers | None = None
    ) -> None:
        self._cfg = cfg
        self._say = say
        self._answers = answers
        self._last = {stage: deque[bool](maxlen=cfg.window) for stage in (PLAY, VERIFY, JUDGE)}
        self.causes: Counter[str] = Counter()
        self._fresh: Counter[str] = Counter()
        self.shut_since: float | None = None
        self._probed = 0.0
        self.stopping = False
        """Nobody waits any more."""

    @property
    def share(self) -> float:
        """Share of voids in the worst stage's window. It counts by the full size of the window: one
        early void is not 100 %."""
        return max(sum(last) for last in self._last.values()) / self._cfg.window

    def record(self, cause: str, count: int = 1, stage: str = PLAY, told: bool = True) -> None:
        """Count outcomes of a stage: void for `cause`, or good when `cause` is empty. `told`: they
        are news of a round."""
        self._last[stage].extend([bool(cause)] * count)
        if cause:
            self.causes[cause] += count
            self._fresh[cause] += count * told
        if self.shut_since is None and self.share > self._cfg.limit:
            self.shut_since = self._probed = time.monotonic()
            share = f"{self.share:.0%} of the last {self._cfg.window} outcomes of {stage} are void"
            self._say(f"admission stopped: {share} ({self._table()})")
        elif self.shut_since is not None and self.share <= self._cfg.limit / 2:
            self.shut_since = None
            self._say("admission resumed")

    def record_all(self, causes: Iterable[str], stage: str = PLAY, told: bool = True) -> None:
        """Count many outcomes of a stage, in order, by their causes ("": good)."""
        for cause, alike in groupby(causes):
            self.record(cause, len(list(alike)), stage, told)

    def news(self) -> dict[str, int]:
        """Voids by cause since the last call; they include blocks that were lost with their
        worker."""
        fresh = +self._fresh
        self._fresh = Counter()
        return dict(fresh)

    def verdict(self) -> VoidLimit | None:
        """The error to end a run with whose last steps were probes that brought nothing but voids;
        else None."""
        most = max((len(last) for last in self._last.values() if all(last)), default=0)
        if self.shut_since is None or not most:
            return None
        ended = f"the run ended with all of its last {most} outcomes void"
        return VoidLimit(f"{ended}: {self._table()}")

    def _table(self) -> str:
        causes = (+self.causes).most_common()
        return ", ".join(f"{cause} {count}" for cause, count in causes)

    async def admit(self) -> None:
        """Wait until work may start: at once when the gate is open, as a probe when it is shut."""
        while self.shut_since is not None:
            now = time.monotonic()
            lasted = now - self.shut_since
            if self.stopping or lasted > self._cfg.give_up_after:
                stayed = f"void outcomes stayed above the limit for {lasted:.0f} s"
                raise VoidLimit(f"{stayed}: {self._table()}")
            if now - self._probed >= self._cfg.probe_every:
                self._probed = now
                # Without a judge, training would learn from exact answers only.
                with suppress(Fault):
                    if self._answers is None or await self._answers():
                        self._say("probing with one round")
                        return
            await asyncio.sleep(self._cfg.probe_every / 10)
