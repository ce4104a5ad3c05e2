"""A run under random faults for minutes: is every episode accounted for, do the laws hold, does memory stay flat?

    python tests/bench/soak.py                  two minutes
    python tests/bench/soak.py --minutes 30     the long form

Plays configs/simulated.yaml (no model; everything around it is real) in a Ray cluster of its own. All the time, actors are
killed and stalled by a seeded schedule (`tests/faults.py`), two a step. For the first part of the time the driver
is killed too, with SIGKILL: at the moments of `tests/moments.py` in turn, and at any. The same command then goes on with the
run folder. The last part is one driver's, for the figures of memory; Ctrl-C ends it.

After each of the driver's deaths, after each first step of the next one, and at the end, `audit` reads ledger and checkpoints.
Memory: resident bytes of processes by kind, least squares over the last driver's time without its first quarter (a start
fills caches); the soak fails when the driver, a queue or the ledger grows by more than GROWTH an hour.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

import conftest  # noqa: E402, F401  (Ray as tests have it: on loopback, without tokens)
from faults import Fault, Faults, deaths, filled, names  # noqa: E402
from moments import MOMENTS, kill_at  # noqa: E402
from trainruns import Cluster, Left, Run, ledger_is_sound, marked, run  # noqa: E402

from ssp.base.episode import ROLES  # noqa: E402
from ssp.record.ledger import Ledger  # noqa: E402
from ssp.selfplay.settings import load  # noqa: E402

SETTINGS = [
    "placement.proposers=1",
    "placement.judges=1",
    "retriever.shards=1",
    "retriever.replicas=2",
    "placement.call_timeout=60",
    "void.limit=1",
    "save.every=1",
    "eval.final_questions_per_hop=1",
    "resume=auto",
    "steps=1000000",
    "defaults.engine.sequences=64",
    "defaults.engine.simulated.tokens=40",
]
BATCH = 32
WATCHED = ("driver", "queue", "ledger")
"""Processes that hold what could pile up."""
KINDS = ("queue", "ledger", "solver", "learner", "gcs_server", "raylet")
GROWTH = 200e6
"""Bytes an hour."""
LOOK = 5.0
"""Seconds between two looks at memory."""
BUSY = 900.0
"""Seconds that a driver may take to its first step, or to its end: what else the machine does is no failure."""
PATIENCE = 60.0
"""Seconds to wait for a moment; then the driver dies at any."""


class Soak:
    """One run folder, the lives of its drivers, and what was counted."""

    def __init__(self, place: Path, cluster: Cluster, seed: int, rate: float, settings: Sequence[str] = ()) -> None:
        self.made, self.cluster, self.rate = Left(place / "soak"), cluster, rate
        self.draw = random.Random(seed)
        self.settings = [*SETTINGS, *(f"{role}.batch={BATCH}" for role in ROLES), *settings]
        self.cfg = load("simulated", self.settings)
        self.killed: Counter[str] = Counter()
        self.audits = self.stalls = 0
        self.struck: set[int] = set()
        self.starts: list[float] = []
        self.samples: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def schedule(self, count: int) -> list[Fault]:
        """`count` faults: nine kills of any actor to one stall of a player, judge or shard. Each actor
        has its turn before one has another: most are back by then."""
        there, faults = names(self.cfg), list[Fault]()
        for number in range(count):
            if number % len(there) == 0:
                self.draw.shuffle(there)
            who, at = there[number % len(there)], 1 + int(number / self.rate)
            stalls = who.startswith(("solver", "proposer", "judge", "shard")) and self.draw.random() < 0.2
            held = self.draw.choice([1.0, 3.0, 90.0])
            faults.append(Fault(at, "stall", who, held) if stalls else Fault(at, "kill", who))
        return faults

    def faults(self, made: Run, schedule: Sequence[Fault]) -> Faults:
        """Make these while a run plays."""
        run_name = made.folder.name
        return Faults(
            schedule,
            lambda: len(made.rows("solver")),
            lambda: self.cluster.actors(run_name),
            lambda who: filled(self.cluster.address, f"{run_name}-{who}"),
        )

    def note(self, faults: Faults) -> None:
        """End a schedule, and count what it made."""
        faults.end()
        self.struck |= {pid for pid, fault in faults.made.items() if fault.do == "kill"}
        self.stalls += sum(fault.do == "stall" for fault in faults.made.values())

    def life(self, moment: str, seconds: float) -> None:
        """One driver: some seconds after its first step it is killed at `moment`, or ended by Ctrl-C without one."""
        began = time.monotonic()
        with run(
            self.made.folder, *self.settings, config="simulated", env=self.cluster.env, module="tests.bench.soaked"
        ) as made:
            faults = self.faults(made, self.schedule(500))
            # Not Run.mark: only the driver has it. A row of an earlier life may name a later step.
            before = len(made.rows("solver"))
            made.until("the first step", lambda: len(made.rows("solver")) > before, 0.25, BUSY)
            self.starts.append(time.monotonic() - began)
            self.audit()
            self.wait(made, seconds, watched=not moment)
            if not moment:
                made.process.send_signal(signal.SIGINT)
                assert made.wait(BUSY) == 130, made.text()
            elif kill_at(made, MOMENTS[moment], PATIENCE) if moment in MOMENTS else False:
                self.killed[moment] += 1
            else:
                os.kill(made.process.pid, signal.SIGKILL)
                made.wait()
                self.killed["any moment"] += 1
            self.note(faults)
            assert "Traceback" not in made.text(), made.text()
            print(f"driver {len(self.starts)}: step {self.made.steps()}, {self.games()} games, {self.kills()} SIGKILLs, "
                  f"killed at {dict(self.killed)}", flush=True)  # fmt: skip
        self.audit()

    def wait(self, made: Run, seconds: float, watched: bool) -> None:
        """Let it play, and look at memory in the watched part."""
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
            assert made.process.poll() is None, f"the driver ended by itself:\n{made.text()[-5000:]}"
            for kind, size in self.memory(made).items() if watched else ():
                self.samples[kind].append((time.monotonic() - began, size))

    def memory(self, made: Run) -> dict[str, int]:
        """Resident bytes of processes, the largest of each kind. Ray titles an actor's process by its name."""
        found: dict[str, int] = {"driver": psutil.Process(made.process.pid).memory_info().rss}
        for pid in marked(self.cluster.mark):
            with suppress(psutil.Error, IndexError):
                process = psutil.Process(pid)
                title = process.cmdline()[0].lower()
                for kind in KINDS:
                    if kind in title and (title.startswith("ray::") or title.endswith(kind)):
                        found[kind] = max(found.get(kind, 0), process.memory_info().rss)
        return found

    def audit(self) -> None:
        """The ledger's own law (`ssp doctor --ledger`); no work trained twice under the commits that live; and a checkpoint
        has been updated as often as commits say that lead to it."""
        ledger = Ledger(self.made.folder / "ledger.db", readonly=True)
        ledger.check()
        ledger.close()
        trained = self.made.sql("SELECT id FROM episodes WHERE state = 'trained'")
        work = Counter(re.sub(r"-i\d+|\.\d+$", "", id) for (id,) in trained)  # the same whatever issue of it this is
        assert not [name for name, count in work.items() if count > 1]
        for role in ROLES if self.made.saved() >= 0 else ():
            # Files first: what lives goes on meanwhile, and may prune them.
            with suppress(FileNotFoundError):
                state = json.loads((self.made.folder / "checkpoints" / "state.json").read_text())
                updates = json.loads((self.made.folder / state["folders"][role] / "ssp.json").read_text())["step"]
                sql = f"SELECT count(*) FROM commits WHERE role = '{role}' AND NOT rolled_back AND step <= {state['step']}"
                assert self.made.sql(sql) == [(updates,)], (role, state["step"], updates, self.made.sql(sql))
        self.audits += 1

    def deaths(self) -> list[dict[str, Any]]:
        """Killed actors, as the run's own reports tell it: a kill that a driver did not live to tell is not counted."""
        return [line for line in deaths(self.made.folder) if line["pid"] in self.struck]

    def kills(self) -> int:
        """SIGKILLs of drivers and actors."""
        return self.killed.total() + len(self.deaths())

    def games(self) -> int:
        """Games that were asked, in all attempts."""
        return int(self.made.sql("SELECT count(*) FROM games")[0][0])


def slope(samples: list[tuple[float, int]]) -> float:
    """Bytes an hour, without the first quarter."""
    late = samples[len(samples) // 4 :]
    if len(late) < 3:
        return 0.0
    return float(np.polyfit([at for at, _ in late], [size for _, size in late], 1)[0]) * 3600


def soak(place: Path, cluster: Cluster, minutes: float, seed: int = 0, rate: float = 2.0) -> Soak:
    """The lives of one run; AssertionError when a law is broken."""
    made, ends = Soak(place, cluster, seed, rate), cycle([*MOMENTS, "any moment"])
    began, share = time.monotonic(), 0.45 if minutes >= 10 else 0.8
    while time.monotonic() - began < share * minutes * 60:
        made.life(next(ends), made.draw.uniform(5, 30) if minutes >= 10 else 2.0)
    made.life("", max(10.0, began + minutes * 60 - time.monotonic()))
    ledger_is_sound(made.made)
    return made


def grows(made: Soak) -> list[str]:
    """Kinds of processes that take more and more memory."""
    return [kind for kind in WATCHED if slope(made.samples[kind]) > GROWTH]


def told(made: Soak, minutes: float) -> None:
    """The note."""
    states = made.made.sql("SELECT role, state, count(*) FROM episodes GROUP BY role, state")
    by_actor = Counter(re.sub(r"(-\d+)+$", "", line["actor"]) for line in made.deaths())
    live = made.made.sql("SELECT role, count(*), max(step) FROM commits WHERE NOT rolled_back GROUP BY role")
    print(f"{minutes:g} minutes, {made.games()} games, {made.made.steps()} steps, {len(made.starts)} drivers")
    print(
        f"{made.kills()} SIGKILLs: {made.killed.total()} of the driver, {len(made.deaths())} of actors; {made.stalls} stalls"
    )
    print(f"driver killed at: {dict(made.killed)}")
    print(f"actors killed: {dict(by_actor.most_common())}")
    print(f"start of a driver to its first step: {np.median(made.starts):.0f} s, at most {max(made.starts):.0f} s")
    print(f"episodes: {', '.join(f'{role} {state} {count}' for role, state, count in states)}")
    print(f"by cause: {made.made.counts()}")
    print(f"live commits: {', '.join(f'{role} {count}, the last is step {last}' for role, count, last in live)}")
    print(f"{made.audits} audits of ledger and checkpoints, and the end's: laws hold")
    for kind, found in made.samples.items():
        change = f"{found[0][1] / 1e6:.0f} -> {found[-1][1] / 1e6:.0f} MB in {found[-1][0] - found[0][0]:.0f} s"
        print(f"memory of {kind}: {change}, {slope(found) / 1e6:+.0f} MB/h")


def main() -> int:
    gc.enable()  # conftest leaves that to pytest
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=2.0, help="faults of actors a step")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp"))  # short: Ray puts socket files below it
    os.environ["RAY_worker_niceness"] = "0"  # a soak beside other work would else play next to nothing
    cluster, load_before = Cluster(place / "ray"), os.getloadavg()[1]
    try:
        made = soak(place, cluster, given.minutes, given.seed, given.rate)
    finally:
        cluster.end()
    told(made, given.minutes)
    print(f"load {load_before:.0f} before, {os.getloadavg()[1]:.0f} after, {os.cpu_count()} cores")
    shutil.rmtree(place, ignore_errors=True)
    more = grows(made) if given.minutes >= 10 else []  # else too short for a slope: there only the ledger's word counts
    print(f"memory grows: {', '.join(more)}" if more else "memory is flat")
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
