"""A player whose engine fails for good ends its process: Ray starts another one, with an engine that works."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator

import pytest
import ray
from trainruns import PATIENCE
from works import Work

from actors.crew import Patience, RayCrew
from actors.process import Guarded
from ssp.base.errors import Fault
from ssp.config.schema import Config
from ssp.engines.orders import OrderThread
from ssp.selfplay.settings import load

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def carried(joined: None) -> Iterator[None]:
    """Other processes cannot import a test."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Engine:
    """One thread, as engines have; `turn` breaks it when it is told to."""

    def __init__(self, cfg: Config) -> None:
        self._broken = False
        self._thread = OrderThread("engine", lambda: self._broken, self._round, lambda fault: None)

    def _round(self) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    def turn(self, broken: bool) -> int:
        self._broken = broken
        self._thread.ask(lambda: None)
        return os.getpid()


@ray.remote(num_cpus=0.1, max_restarts=1)
class EngineActor(Guarded, Engine):
    """It restarts once."""


def test_an_actor_whose_engine_is_down_starts_again() -> None:
    said: list[str] = []
    crew = RayCrew(
        Work, "solver", [EngineActor.remote(load("quickstart", []))], Patience(PATIENCE, PATIENCE), said.append
    )

    async def play() -> None:
        await crew.ready()
        first = await crew[0].turn(False)
        with pytest.raises(Fault, match="solver_died"):
            await crew[0].turn(True)
            await crew[0].turn(True)
        assert await crew[0].turn(False) != first

    asyncio.run(play())
    assert said[-1] == "solver-0 is back"
