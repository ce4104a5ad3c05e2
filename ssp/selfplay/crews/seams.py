"""What workers are asked for: players, judges, learners. Each Protocol's methods are the calls
(`ssp.base.crew`).

Actors and objects of one process answer the same calls. To actors a `Ref` is a payload by reference;
in one process it is the payload itself."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ssp.base.crew import call
from ssp.base.episode import Grade, Task, Verdict
from ssp.base.played import Ref, Subject
from ssp.base.values import Seconds, Values
from ssp.game.judge import Item
from ssp.learning.scored import Scored
from ssp.learning.warmup.taught import Taught
from ssp.selfplay.records import PlayOrder, PlayReport


class Players(Protocol):
    """One of the players of a role. `play` gives the block, in the tasks' order, and its report;
    Fault `payload_lost` where the parcel can no longer be read. `refresh` takes new weights in
    flight and gives the seconds of it. `sleep` gives the GPU's memory back until `wake`; Fault
    `engine_awake` when too much stays taken."""

    @call(payload=True, computes=True, work="play")
    async def play(
        self, tasks: Sequence[Task], order: PlayOrder, version: int, parcel: Ref, /
    ) -> tuple[Ref, PlayReport]: ...
    @call(beside=True)
    async def refresh(self, version: int, parcel: Ref, /) -> Seconds: ...
    @call(work="turn")
    async def sleep(self) -> None: ...
    @call(work="turn")
    async def wake(self) -> None: ...


class Judges(Protocol):
    """One of the judges. Its calls are pure, and give the seconds that they took too.

    `verify` gives the referee's verdict on each episode; `asked` has its target and the searches of
    its row, and with a parcel the live solver of `version` verifies. `check` gives the verdict of
    the game's own check of that name. `grade` gives a grade for each (row of the block, item).
    `answers` says whether the endpoint that it asks, if any, gives a verdict now."""

    @call(work="verify")
    async def verify(
        self, block: Ref, asked: Sequence[tuple[str, int]], version: int = -1, parcel: Ref = None, /
    ) -> tuple[list[Verdict], float]: ...
    @call(work="verify")
    async def check(
        self, block: Ref, subjects: Sequence[Subject], stage: str, /
    ) -> tuple[list[Verdict], float]: ...
    @call(work="grade")
    async def grade(
        self, block: Ref, items: Sequence[tuple[int, Item]], /
    ) -> tuple[list[Grade], float]: ...
    async def answers(self) -> bool: ...


class Learners(Taught, Protocol):
    """One learner, of one rank or several. `update` makes one step of the roles of `samples`, over
    the same blocks, and publishes. `weights` publishes what it has. `again` gives the last
    publication once more (Fault `weights_gone`). `anchor_weights` gives the weights of the
    reference, which is no publication."""

    @call(payload=True, computes=True, work="learn")
    async def update(
        self, samples: Mapping[str, Sequence[Scored]], names: Sequence[str], /, *blocks: Ref
    ) -> tuple[Ref, dict[str, Values]]: ...
    @call(payload=True, computes=True, work="sync")
    async def weights(self) -> tuple[Ref, Values]: ...
    @call(payload=True, computes=True, work="sync")
    async def again(self, serial: int, /) -> tuple[Ref, Values]: ...
    @call(payload=True, computes=True, work="sync")
    async def anchor_weights(self) -> tuple[Ref, Values]: ...


class Retriever(Protocol):
    """A shard or an encoder; players search it by its name (`actors.members`)."""

    async def state(self) -> dict[str, Any]: ...
