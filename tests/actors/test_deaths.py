"""An actor's death is told once: who, where, how, what it did, what it held, the end of its log, what comes next."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from trainruns import PATIENCE, until
from works import Work

from actors.crew import Patience, RayCrew
from actors.process import Alive
from actors.restarts import RAY, Policy, Restart
from actors.watch import deaths
from actors.watch.deaths import Death, Deaths, clean
from ssp.base.errors import Fault

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("joined")]

BUDGET = {"Worker": Restart(Policy(RAY, "its day", "it is told again"), 2)}


@ray.remote(num_cpus=0.1)
class Worker(Alive):
    """Writes to its log, and hangs."""

    def write(self, text: str) -> None:
        print(text, flush=True)

    def hang(self) -> None:
        time.sleep(3600)


def _died(look: Deaths) -> list[Death]:
    found: list[Death] = until("a death is seen", look.look, PATIENCE, 0.2)
    return found


def test_a_death_is_told_with_what_is_known_of_it(tmp_path: Path) -> None:
    actor: Any = Worker.options(name="run-worker-0", max_restarts=2).remote()
    crew, said = RayCrew(Work, "worker", [actor], Patience(PATIENCE, PATIENCE), lambda text: None), list[str]()
    look = Deaths("run", tmp_path / "deaths.jsonl", BUDGET, crew.calls.at_death, said.append)

    async def die(number: int) -> int:
        [pid] = await crew.pids()
        assert look.look() == [] and [seen.pid for seen in look.seen.values()] == [pid]
        hanging = asyncio.create_task(crew[0].hang())
        await asyncio.sleep(0.3)
        os.kill(pid, number)
        with pytest.raises(Fault, match="worker_died"):
            await hanging
        return pid

    async def play() -> None:
        await crew.ready()
        await crew[0].write("half way; api_key=abcdef0123")
        pid = await die(signal.SIGKILL)
        [death] = await asyncio.to_thread(_died, look)
        assert (death.actor, death.kind, death.pid) == ("worker-0", "Worker", pid)
        assert death.end.startswith("SYSTEM_ERROR") and "OOM" not in death.end and death.oom == "no sign"
        assert death.last_call.startswith("hang at ") and "its process ended during hang" in death.last_call
        assert 10 < death.rss_mb < 1000
        assert death.log[-1] == "half way; api_key=***"
        assert death.then == "Ray starts it again, 1 of 2 times; lost: its day; it is told again"
        assert look.look() == []

        await crew[0].write("again")
        await die(signal.SIGABRT)
        [death] = await asyncio.to_thread(_died, look)
        assert "SIGABRT" in death.signal or "Abort" in death.signal
        assert "2 of 2" in death.then

    asyncio.run(play())
    look.end()
    assert len(said) == 2 and "half way" in said[0] and "\n" not in said[0] and said[1].startswith("worker-0")
    lines = deaths.told(tmp_path, ["worker-0"])
    assert len({line["pid"] for line in lines}) == 2 and deaths.told(tmp_path, ["other"]) == []


def test_a_log_loses_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_JUDGE_KEY", "qwertyuiop")
    assert clean("asked with qwertyuiop") == "asked with ***"
    assert clean("Authorization: Bearer abc.def") == "Authorization: ***"
    assert clean("{'password': 'hunter2', 'user': 'me'}") == "{'password': ***, 'user': 'me'}"
    assert clean("1200 tokens: 3000 of them, token: 17") == "1200 tokens: 3000 of them, token: 17"
