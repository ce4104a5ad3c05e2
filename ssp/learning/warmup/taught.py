"""What a learner is asked for where it is taught from files: the part of its calls that knows no publication."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ssp.base.crew import call


class PlanItem(NamedTuple):
    """One episode of a learner's batch: row `row` of the block at place `block`, its reward and group. `baseline`: what
    the greedy answer to its question earned (ReMax), None without one. `turns`: what each of its turns earned, () where only
    the sum is known."""

    block: int
    row: int
    reward: float
    group: int
    baseline: float | None = None
    turns: tuple[float, ...] = ()


BatchPlan = Sequence[PlanItem]
"""Episodes of a batch, in order."""


class Taught(Protocol):
    """A learner that is given blocks of episodes, by reference or as they are.

    `learn`: one learner step on `plan`; its figures. `measure`: the same without a step. `save`: write a checkpoint folder,
    aside and renamed; `load` reads it back. `export`: write the policy alone, as a model folder that a run can start from.
    """

    @call(computes=True)
    async def learn(self, plan: BatchPlan, /, *blocks: Any) -> dict[str, float]: ...
    @call(computes=True)
    async def measure(self, plan: BatchPlan, /, *blocks: Any) -> dict[str, float]: ...
    @call(computes=True, work="save")
    async def save(self, folder: str, meta: dict[str, Any], /) -> None: ...
    @call(computes=True)
    async def export(self, folder: str, meta: dict[str, Any], /) -> None: ...
    @call(computes=True, work="load")
    async def load(self, folder: str, /) -> None: ...
