"""The actors and the crew on a real cluster: faults typed, restarts waited for, light processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import pytest
import ray
from ray.util.state import list_actors
from trainruns import PATIENCE, POLICY
from works import Repeated, Work

from actors import placement
from actors.crew import Patience, RayCrew
from actors.fleet import join
from actors.process import Alive, Guarded
from actors.program import Program, needed_cpus
from actors.retriever import ShardActor
from actors.services import LedgerActor
from ssp.base.errors import Fault, InputError, SspError
from ssp.config.schema import Config
from ssp.engines.orders import OrderThread
from ssp.record.runfolder import RunFolder
from ssp.selfplay.scene import concrete
from ssp.selfplay.settings import load

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("joined")]


@ray.remote(num_cpus=0.1)
class Worker(Alive):
    def add(self, a: int, b: int) -> int:
        return a + b

    def fail(self) -> None:
        raise InputError("a rule", "a value", "do this")

    def hang(self) -> None:
        time.sleep(3600)

    def play(self) -> tuple[list[int], str]:
        return [1] * 100_000, "report"


def _crew(actor: object, call: float = PATIENCE, kind: Any = Work) -> tuple[RayCrew[Any], list[str]]:
    said: list[str] = []
    return RayCrew(kind, "worker", [actor], Patience(call, PATIENCE), said.append), said


def test_a_call_returns_a_payload_stays_where_it_is_and_an_error_is_raised_as_it_was():
    crew, _ = _crew(Worker.remote())

    async def play() -> None:
        await crew.ready()
        assert await crew[0].add(2, 3) == 5
        payload, report = await crew[0].play()
        assert isinstance(payload, ray.ObjectRef) and report == "report" and len(await payload) == 100_000
        with pytest.raises(InputError, match="a rule"):
            await crew[0].fail()

    asyncio.run(play())


def test_a_dead_actor_is_a_fault_and_the_next_call_waits_for_its_restart():
    crew, said = _crew(Worker.options(max_restarts=1).remote())

    async def play() -> None:
        [pid] = await crew.pids()
        waiting = asyncio.create_task(crew[0].hang())
        await asyncio.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Fault, match="worker_died"):
            await waiting
        assert await crew[0].add(1, 1) == 2 and await crew.pids() != [pid]
        [pid] = await crew.pids()
        os.kill(pid, signal.SIGKILL)  # its one restart is used up
        with pytest.raises(Fault):
            while True:
                await crew[0].add(1, 1)
        with pytest.raises(SspError, match="used up its restarts"):
            await crew[0].add(1, 1)

    asyncio.run(play())
    assert said[:2] == ["worker-0 died: its process ended during hang", "worker-0 is back"]


def test_a_call_that_may_be_repeated_is_made_again():
    crew, said = _crew(Worker.options(max_restarts=1).remote(), call=2.0, kind=Repeated)

    async def play() -> int:
        await crew.ready()
        [pid] = await crew.pids()
        os.kill(pid, signal.SIGSTOP)
        return await crew[0].add(1, 1)

    assert asyncio.run(play()) == 2 and len(said) == 2


def test_an_actor_whose_engine_is_down_starts_again():
    """Nothing but a new process gives it another engine. Its classes are local: other processes cannot import a test."""

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

    crew, said = _crew(EngineActor.remote(load("quickstart", [])))

    async def play() -> None:
        await crew.ready()
        first = await crew[0].turn(False)
        with pytest.raises(Fault, match="worker_died"):
            await crew[0].turn(True)
            await crew[0].turn(True)
        assert await crew[0].turn(False) != first

    asyncio.run(play())
    assert said[-1] == "worker-0 is back"


def test_ledger_and_shard_processes_import_neither_torch_nor_transformers(tmp_path):
    cfg = concrete(load("quickstart", []))

    def modules(self: object) -> list[str]:
        return sorted(sys.modules)

    actors = [
        LedgerActor.options(num_cpus=0.1).remote(tmp_path / "ledger.db"),
        ShardActor.options(num_cpus=0.1).remote(cfg, 0),
    ]
    loaded = ray.get([actor.__ray_call__.remote(modules) for actor in actors], timeout=PATIENCE)
    for names in loaded:
        assert not {"torch", "transformers"} & set(names)


def test_a_program_is_named_fits_its_cpus_and_ends_alone(tmp_path, ray_cluster):
    few = ["placement.proposers=1", "placement.judges=1", "retriever.replicas=2"]
    cfg = concrete(load("simulated", [f"defaults.model={POLICY}", *few]))
    bystander = Worker.remote()
    (tmp_path / "named" / "episodes").mkdir(parents=True)
    folder, models = RunFolder(tmp_path / "named"), dict.fromkeys(("proposer", "solver"), POLICY)
    program = Program(cfg, folder, models, print, placement.planned(cfg))
    asyncio.run(program.ready())
    names = set(ray_cluster.actors("named"))
    assert names == {
        "proposer-0", "solver-0", "solver-1", "judge-0", "shard-0-0", "shard-1-0", "shard-0-1", "shard-1-1",
        "learner-proposer-0", "learner-solver-0", "ledger-0",
    }  # fmt: skip
    shown = list_actors(ray_cluster.dashboard, filters=[("state", "=", "ALIVE")], detail=True, limit=1000)
    says = {actor.name.removeprefix("named-"): actor.repr_name for actor in shown if actor.name.startswith("named-")}
    assert set(says) == names and says["shard-1-0"].startswith("shard 1: ")
    assert all(said == f"named-{name}" for name, said in says.items() if "shard" not in name)
    assert needed_cpus(cfg) == pytest.approx((len(names) - 1) * cfg.placement.cpus)  # none for the ledger
    assert join(cfg, "named", 1) == "named-shard-1-2"
    program.end()
    deadline = time.monotonic() + PATIENCE
    while ray_cluster.actors("named") and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not ray_cluster.actors("named") and ray.get(bystander.add.remote(1, 1), timeout=PATIENCE) == 2
