"""Faults on a schedule, made from outside while a run plays: processes of its actors are killed or stopped, a disk is full.

Owns the making of faults. Promises that only processes of that run's actors are touched, and that a fault whose actor is just
away waits for it. Needs no word of the program's. Refuses to judge what comes of it: the laws do (`ssp doctor --ledger`).

    python tests/faults.py ADDRESS ACTOR     from now on no file can be renamed in that actor's process, as on a full disk
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ssp.config.crews import learners, players, ranks
from ssp.config.schema import Config

EVERY = 0.1
"""Seconds between two looks at the step."""

AWAY = 300.0
"""Seconds that an actor gets to be there before the fault is left out."""


@dataclass(frozen=True)
class Fault:
    """What is done to the process of actor `who` (`solver-0`, `shard-0-0`) once `at_step` steps are done, counted from when
    the schedule began. `do`: kill (SIGKILL), stall (SIGSTOP for `seconds`), full (its renames fail with ENOSPC)."""

    at_step: int
    do: str
    who: str
    seconds: float = 5.0


def deaths(folder: Path) -> list[dict[str, Any]]:
    file = folder / "deaths.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Faults:
    """The faults of one run, in the order of their steps, made by a thread until `end`.

    `steps`: how many were done so far; `actors`: process ids of the living, by name; `fill`: makes the renames of one fail.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        steps: Callable[[], int],
        actors: Callable[[], Mapping[str, int]],
        fill: Callable[[str], None],
    ) -> None:
        self._due, self._steps, self._actors, self._fill = sorted(faults, key=lambda f: f.at_step), steps, actors, fill
        self._stopped: list[tuple[float, psutil.Process]] = []
        self._over = threading.Event()
        self.made: dict[int, Fault] = {}
        """By the process that they struck."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Make no further one, and let those go on that are stopped."""
        self._over.set()
        self._thread.join()
        self._wake(float("inf"))

    def _run(self) -> None:
        first = self._steps()
        for fault in self._due:
            while self._steps() - first < fault.at_step:
                if self._pause():
                    return
            deadline = time.monotonic() + AWAY
            while time.monotonic() < deadline and not self._strike(fault):
                if self._pause():
                    return
        while not self._pause():
            pass

    def _strike(self, fault: Fault) -> bool:
        """Whether it was there: one that is being killed is listed for a moment more."""
        pid = self._actors().get(fault.who)
        if pid is None or (pid in self.made and self.made[pid].do == "kill"):
            return False
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if fault.do == "full":
                self._fill(fault.who)
            elif fault.do == "kill":
                process.kill()
            else:
                process.suspend()
                self._stopped.append((time.monotonic() + fault.seconds, process))
            self.made[pid] = fault
            return True
        return False

    def _pause(self) -> bool:
        self._wake(time.monotonic())
        return self._over.wait(EVERY)

    def _wake(self, now: float) -> None:
        for until, process in self._stopped[:]:
            if until <= now:
                with suppress(psutil.Error):  # its crew may have found that it hangs, and ended it
                    process.resume()
                self._stopped.remove((until, process))


def names(cfg: Config) -> list[str]:
    """Names of the actors of a run, without the run's."""
    place, search = cfg.placement, cfg.retriever
    pairs = place.layout == "shared-base"
    kinds = {} if pairs else {"proposer": players(cfg, "proposer")}
    kinds |= {"engine" if pairs else "solver": place.players["solver"], "judge": place.judges, "ledger": 1}
    kinds |= {f"learner-{name}": ranks(cfg, name) for name in learners(cfg)}
    kinds |= {f"shard-{shard}": search.replicas for shard in range(search.shards)}
    return [f"{kind}-{i}" for kind, count in kinds.items() for i in range(count)]


def filled(address: str, actor: str) -> None:
    """Have `fill` run in the process of that actor of a cluster: by a process of its own, which joins it."""
    subprocess.run([sys.executable, __file__, address, actor], check=True, timeout=AWAY, capture_output=True)


def fill(worker: Any) -> None:
    """In the process of a learner: from now on no checkpoint that is written aside can take its place."""

    def full(source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    os.rename = full  # type: ignore[assignment]


def main() -> None:
    import ray

    address, actor = sys.argv[1:]
    ray.init(address=address, log_to_driver=False)
    named: list[Any] = ray.util.list_named_actors(all_namespaces=True)
    [space] = [found["namespace"] for found in named if found["name"] == actor]
    handle: Any = ray.get_actor(actor, namespace=space)
    ray.get(handle.__ray_call__.remote(fill), timeout=AWAY)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    main()
