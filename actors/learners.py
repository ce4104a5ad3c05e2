"""The crew of a learner: one actor, or with DeepSpeed one a rank, called together.

A call goes to all ranks and returns the answer of rank 0. When one dies, hangs, or fails where the
others do not, the caller gets a `Fault`; all ranks are ended, and made anew without state at the
next call."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ObjectLostError, OwnerDiedError, RayTaskError

from actors import restarts
from actors.crew import ENDED, LastCall, Member, Patience, RayCrew, cause_of, starting
from actors.workers import LearnerActor, RankActor, SimulatedLearnerActor
from ssp.base.crew import CrewCall
from ssp.base.errors import Fault, SspError
from ssp.config.schema import Config
from ssp.selfplay.crews.seams import Learners

GRACE = 10.0
"""Seconds that the other ranks get to end a call that has failed on one of them."""

Options = Callable[[int], dict[str, Any]]
"""Rank → Ray's options of its actor: name, CPUs, place."""


class LearnerCrew(RayCrew[Learners]):
    """A crew of one worker, the learner called after `role`: one actor, or `ranks` of them. Starts
    them."""

    def __init__(
        self,
        cfg: Config,
        role: str,
        model: Path,
        name: str,
        options: Options,
        patience: Patience,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(Learners, name, (), patience, say)
        learner = cfg.block(role).learner
        kinds: dict[str, Any] = {"deepspeed": RankActor, "simulated": SimulatedLearnerActor}
        self._cfg = cfg
        self._actor = kinds.get(learner.kind, LearnerActor)
        self._args: list[tuple[Any, ...]] = [(cfg, role, model)]
        if self._actor is RankActor:
            self._args = [(cfg, role, model, rank) for rank in range(learner.ranks)]
        self._options = options
        self._restarts = cfg.placement.restarts
        self._formed = False
        self._turn = asyncio.Lock()
        self._start()

    @property
    def size(self) -> int:
        """One: its ranks are asked together."""
        return 1

    def _start(self) -> None:
        usual = restarts.options(self._cfg, self._actor)
        members = []
        for rank, args in enumerate(self._args):
            actor = self._actor.options(**usual, **self._options(rank))
            members.append(Member(f"{self.name}-{rank}", actor.remote(*args)))
        self.members = members

    async def ready(self) -> None:
        """Wait until all have their model and, of several ranks, have met. What one of them cannot
        start for is raised here."""
        async with starting(self.name, self._patience.start):
            await self.pids()
            if self._actor is RankActor:
                from ssp.learning.backends.ranks import LOOPBACK  # here, since it imports torch

                ranks = self.handles
                seconds = self._patience.call
                places = await asyncio.gather(*[rank.node.remote() for rank in ranks])
                nodes = {node for node, _ in places}
                # Rank 0 opens a port, on this machine's own network where one node has all ranks.
                host = LOOPBACK if len(nodes) == 1 else places[0][1]
                address = await ranks[0].open.remote(host)
                await asyncio.gather(*[rank.form.remote(address, seconds) for rank in ranks])
            self._formed = True

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        """Make one call to all ranks, which rank 0 answers. Calls come one after the other, each
        with its own deadline."""
        async with self._turn:
            if not self._formed:
                await self._again()
            asked = LastCall(call.name)
            self.last = {member.name: asked for member in self.members}
            payloads = []
            waits = []
            for handle in self.handles:
                method = getattr(handle, call.name)
                if call.payload:
                    payload, report = method.options(num_returns=2).remote(*args)
                    payloads.append(payload)
                else:
                    report = method.remote(*args)
                waits.append(asyncio.ensure_future(report))
            seconds = self._patience.call
            first = asyncio.FIRST_EXCEPTION
            await asyncio.wait(waits, timeout=seconds, return_when=first)
            asked.until = time.time()
            if not all(wait.done() and wait.exception() is None for wait in waits):
                await self._failed(asked, waits, payloads)
            answer = waits[0].result()
            return (payloads[0], answer) if payloads else answer

    async def _failed(
        self, asked: LastCall, waits: Sequence[asyncio.Future[Any]], payloads: Sequence[Any]
    ) -> None:
        """Raise what a call ended with. The group stays only where all ranks raised the same: they
        are still at the same place then."""
        late = not any(wait.done() and wait.exception() for wait in waits)
        if not late:
            await asyncio.wait(waits, timeout=GRACE)
        errors = [wait.exception() if wait.done() else None for wait in waits]
        for wait in waits:
            wait.cancel()
        # A payload has the error of its call, and Ray prints the stack of one that nobody has asked
        # for.
        failed = compress(payloads, [error is not None for error in errors])
        await asyncio.gather(*failed, return_exceptions=True)
        if late:
            detail = f"{asked.method} took longer than {self._patience.call:g} s"
            raise self._lost(asked, "deadline", detail)
        if any(isinstance(error, ENDED) for error in errors):
            raise self._lost(asked, "died", f"its process ended during {asked.method}")
        if all(isinstance(error, (ObjectLostError, OwnerDiedError)) for error in errors):
            raise Fault("payload_lost", str(errors[0]).splitlines()[0]) from errors[0]
        causes = [cause_of(error) for error in errors if isinstance(error, RayTaskError)]
        together = len(causes) == len(errors) and len({type(cause) for cause in causes}) == 1
        if not together:
            self.end()
        known = [cause for cause in causes if isinstance(cause, SspError)]
        if known or together:
            raise known[0] if known else causes[0]
        first = next(filter(None, errors))
        raise self._lost(asked, "died", f"{asked.method} failed on one rank: {first}")

    def _lost(self, asked: LastCall, kind: str, detail: str) -> Fault:
        asked.lost = detail
        self.end()
        self._say(f"{self.name} {kind}: {detail}")
        return Fault(f"{self.name}_{kind}", detail)

    def end(self) -> None:
        """End every rank; the next call makes them anew."""
        self._formed = False
        for handle in self.handles:
            ray.kill(handle, no_restart=True)

    async def _again(self) -> None:
        """Make all ranks anew."""
        if not self._restarts:
            raise SspError(f"{self.name} died for good: its restarts are used up")
        self._restarts -= 1
        self.end()
        deadline = time.monotonic() + self._patience.start
        while True:
            try:
                self._start()
                break
            except ValueError:  # Ray frees an actor's name a moment after its end
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)
        await self.ready()
        self._say(f"{self.name} is back")
