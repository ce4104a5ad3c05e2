"""What workers are asked for: players, judges, learners. Each Protocol's methods are the calls (`ssp.base.crew`).

Actors and objects of one process answer the same ones; a `Ref` is a payload by reference there, and itself here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ssp.base.crew import call
from ssp.base.episode import Grade, Task, Verdict
from ssp.learning.warmup.taught import BatchPlan, Taught
from ssp.selfplay.records import PlayOrder, PlayReport, Ref
from ssp.selfplay.transfer.broadcast import Call
from ssp.selfplay.transfer.parcel import Place, Plan


class Players(Protocol):
    """One of the players of a role."""

    @call(payload=True, computes=True, work="play")
    async def play(
        self, tasks: Sequence[Task], order: PlayOrder, version: int, parcel: Ref, /
    ) -> tuple[Ref, PlayReport]:
        """Play `tasks` to the end with the weights of `version`: the block in the tasks' order, and its report.

        Fault `payload_lost` or `weights_missed` where the parcel is of no use any more.
        """
        ...

    @call(beside=True)
    async def refresh(self, version: int, parcel: Ref, /) -> dict[str, float]:
        """Take new weights while it plays (in flight); seconds of transfer and load."""
        ...

    @call(work="turn")
    async def sleep(self) -> None:
        """Give the GPU's memory back until `wake`. Fault `engine_awake` when too much of it stays taken."""
        ...

    @call(work="turn")
    async def wake(self) -> None:
        """Take the memory again."""
        ...

    async def place(self) -> Place:
        """Where this process is."""
        ...

    async def join(self, group: Call, rank: int, host: str, /) -> None:
        """Become a member of a group of broadcasts. Fault `broadcast_failed`."""
        ...

    @call(beside=True)
    async def receive(self, version: int, parcel: Ref, /) -> dict[str, float]:
        """Take part in a broadcast; seconds. Fault `broadcast_failed`."""
        ...

    async def leave(self) -> None:
        """Leave the group of broadcasts."""
        ...


class Judges(Protocol):
    """One of the judges. Its calls are pure."""

    @call(work="verify")
    async def verify(
        self, block: Ref, targets: Sequence[str], version: int = -1, parcel: Ref = None, /
    ) -> tuple[list[Verdict], float]:
        """One verdict an episode, and the seconds it took. With a parcel, the live solver of `version` verifies."""
        ...

    @call(work="grade")
    async def grade(self, block: Ref, items: Sequence[tuple[int, str, Sequence[str]]], /) -> tuple[list[Grade], float]:
        """A grade for each (row of the block, question, gold answers), and the seconds it took."""
        ...

    async def answers(self) -> bool:
        """Whether the endpoint that it asks, if any, gives a verdict now."""
        ...


class Learners(Taught, Protocol):
    """One learner, of one rank or several."""

    @call(payload=True, computes=True, work="learn")
    async def update(self, plans: Mapping[str, BatchPlan], /, *blocks: Ref) -> tuple[Ref, dict[str, dict[str, float]]]:
        """One step of the roles in `plans`, over the same blocks, and a publication; the figures by role."""
        ...

    @call(payload=True, computes=True, work="sync")
    async def weights(self) -> tuple[Ref, dict[str, float]]:
        """A publication of the current weights, and its figures."""
        ...

    @call(payload=True, computes=True, work="sync")
    async def again(self, serial: int, /) -> tuple[Ref, dict[str, float]]:
        """An earlier publication once more, by the object store. Fault `weights_gone` when it is too old."""
        ...

    @call(payload=True, computes=True, work="sync")
    async def anchor_weights(self) -> tuple[Ref, dict[str, float]]:
        """The weights of the reference that the policy is held to, outside of the publications."""
        ...

    @call(first=True)
    async def place(self) -> Place:
        """Where this process is, and how large its weights are."""
        ...

    @call(first=True)
    async def publish_by(self, plan: Plan, /) -> None:
        """Publish by `plan` from now on; what was shared before is given up."""
        ...

    @call(first=True, computes=True)
    async def listen(self, host: str, /) -> int:
        """Open the port of a new group of broadcasts at `host`."""
        ...

    @call(first=True, computes=True)
    async def join(self, group: Call, host: str, /) -> None:
        """Wait until the group's members are there. Fault `broadcast_failed`."""
        ...

    @call(first=True, computes=True, work="sync")
    async def send(self, serial: int, /) -> float:
        """Broadcast a publication; seconds. Fault `broadcast_failed`."""
        ...

    @call(first=True, computes=True)
    async def leave(self) -> None:
        """End the group."""
        ...


class Retriever(Protocol):
    """A shard or an encoder; players search it by its name (`actors.members`)."""

    async def state(self) -> dict[str, Any]:
        """How busy it is."""
        ...
