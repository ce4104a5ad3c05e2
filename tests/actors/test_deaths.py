"""An actor's death is told once: who, where, how, what it did, what comes next."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from faults import deaths
from trainruns import PATIENCE
from works import Work

from actors.crew import Patience, RayCrew
from actors.deaths import Deaths
from actors.process import Alive
from actors.restarts import POLICIES, RAY, US, RestartPolicy
from ssp.base.errors import Fault

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("joined")]


@ray.remote(num_cpus=0.1)
class Worker(Alive):
    def hang(self) -> None:
        time.sleep(3600)


def test_a_death_is_told_with_what_is_known_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "Worker", RestartPolicy(RAY, "its day", "it is told again"))
    actor: Any = Worker.options(max_restarts=2).remote()
    crew, said = RayCrew(Work, "worker", [actor], Patience(PATIENCE, PATIENCE), lambda text: None), list[str]()
    program: Any = SimpleNamespace()
    look = Deaths(tmp_path / "deaths.jsonl", 2, program, said.append)

    async def until_told(number: int) -> None:
        for _ in range(int(PATIENCE)):
            program.actors = [("worker-0", actor, crew.last.get("worker-0"))]
            await look.look()
            if len(said) >= number:
                return

    async def play() -> None:
        await crew.ready()
        for number in (1, 2, 3):
            [pid] = await crew.pids()
            program.actors = [("worker-0", actor, None)]
            while look._asked or not look._seen:
                await look.look()
            hanging = asyncio.create_task(crew[0].hang())
            await asyncio.sleep(0.3)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(Fault, match="worker_died"):
                await hanging
            await until_told(number)
            if number < 3:
                await crew._revived(crew.members[0])
        await look.look()

    asyncio.run(play())
    look.close()
    lines = deaths(tmp_path)
    assert len(said) == len(lines) == len({line["pid"] for line in lines}) == 3
    assert all(text.startswith("worker-0: process ") and "\n" not in text for text in said)
    assert lines[0]["last_call"].startswith("hang at ") and "its process ended during hang" in lines[0]["last_call"]
    assert lines[0]["then"] == "Ray starts it again, 1 of 2 times; lost: its day; it is told again"
    assert "2 of 2" in lines[1]["then"] and lines[2]["then"].startswith("it does not start again")
    assert lines[2]["end"].endswith("End of file")
    assert (lines[0]["actor"], lines[0]["kind"]) == ("worker-0", "Worker") and len(lines[0]["node"].split(".")) == 4


def test_one_that_its_crew_replaces_between_two_looks_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a learner's crew does: the name stays, the actor is another one."""
    monkeypatch.setitem(POLICIES, "Worker", RestartPolicy(US, "its day", "it goes back"))
    old, new = Worker.remote(), Worker.remote()
    program: Any = SimpleNamespace(actors=[("learner-0", old, None)])
    said = list[str]()
    look = Deaths(tmp_path / "deaths.jsonl", 2, program, said.append)

    async def play() -> None:
        while not look._seen:
            await look.look()
        ray.kill(old)
        program.actors = [("learner-0", new, None)]
        while not said or new not in look._seen:
            await look.look()
        await look.look()

    asyncio.run(asyncio.wait_for(play(), PATIENCE))
    look.close()
    assert len(said) == 1 and said[0].startswith("learner-0: process ")
    assert list(look._seen) == [new]
