"""What a learner is asked for where it is taught from files: the part of its calls that knows no
publication."""

from collections.abc import Sequence
from typing import Any, Protocol

from ssp.base.crew import call
from ssp.base.values import Values
from ssp.learning.scored import Scored


class Taught(Protocol):
    """A learner that is given samples, and the blocks that they lie in, by reference or as they
    are. `names`: the ids by which samples know the blocks, in order.

    `learn`: one learner step on the samples; its figures. `measure`: the same without a step.
    `save`: write a checkpoint folder, aside and renamed; `load` reads it back. `export`: write the
    policy alone, as a model folder that a run can start from.
    """

    @call(computes=True)
    async def learn(
        self, samples: Sequence[Scored], names: Sequence[str], /, *blocks: Any
    ) -> Values: ...
    @call(computes=True)
    async def measure(
        self, samples: Sequence[Scored], names: Sequence[str], /, *blocks: Any
    ) -> Values: ...
    @call(computes=True, work="save")
    async def save(self, folder: str, meta: dict[str, Any], /) -> None: ...
    @call(computes=True)
    async def export(self, folder: str, meta: dict[str, Any], /) -> None: ...
    @call(computes=True, work="load")
    async def load(self, folder: str, /) -> None: ...
