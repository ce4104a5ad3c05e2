"""A run under random faults for minutes: does memory stay flat, and do the laws hold?

    python tests/bench/soak.py                  two minutes
    python tests/bench/soak.py --minutes 30     the long form

Plays configs/simulated.yaml (no model; everything around it is real) on a Ray of its own, with a seeded schedule of kills and
stalls, one every few steps (`chaos.faults`), ends it after the time, checks the ledger as `ssp doctor --ledger` does, and prints
the counts. Memory: resident bytes of the run's processes by kind, by the least squares line over the second half of the time
(a start fills caches); the soak fails when the driver, a queue or the ledger grows by more than GROWTH per hour, or a law is
broken. Prints the load of the machine, which decides how many steps there are and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from trainruns import Run, ledger_is_sound, marked, run  # noqa: E402

from actors.watch import deaths  # noqa: E402
from ssp.config import load  # noqa: E402
from ssp.config.chaos_rules import actors  # noqa: E402
from ssp.config.load import find  # noqa: E402
from ssp.episode import State  # noqa: E402

SETTINGS = [
    "ray.dashboard=false",
    "placement.call_timeout=20",
    "placement.restarts=100000",
    "void.limit=1",
    "steps=1000000",
]
WATCHED = ("driver", "queue", "ledger")
"""Processes that live through the whole time, or hold what could pile up."""
GROWTH = 200e6
"""Bytes an hour."""
EVERY = 5.0
KINDS = ("queue", "ledger", "solver", "learner", "gcs_server")


def schedule(seed: int, every: int, count: int) -> str:
    """`count` faults, one every `every` steps: four kills of any actor to one stall of a player, judge or shard."""
    draw, names = random.Random(seed), actors(load("simulated", []))
    held = [name for name in names if name.startswith(("solver", "proposer", "judge", "shard"))]
    faults = [
        {"at_step": every * (i + 1), "do": "stall", "who": draw.choice(held), "seconds": draw.choice([1, 3, 40])}
        if draw.random() < 0.2
        else {"at_step": every * (i + 1), "do": "kill", "who": draw.choice(names)}
        for i in range(count)
    ]
    return json.dumps(faults)


def memory(made: Run) -> dict[str, int]:
    """Resident bytes of the run's processes, the largest of each kind. Ray titles an actor's process by its name."""
    found: dict[str, int] = {"driver": psutil.Process(made.process.pid).memory_info().rss}
    for pid in marked(made.mark):
        with suppress(psutil.Error, IndexError):
            process = psutil.Process(pid)
            title = process.cmdline()[0].lower()
            kinds = [kind for kind in KINDS if kind in title and (title.startswith("ray::") or kind == "gcs_server")]
            for kind in kinds:
                found[kind] = max(found.get(kind, 0), process.memory_info().rss)
    return found


def slope(samples: list[tuple[float, int]]) -> float:
    """Bytes an hour over the second half."""
    late = samples[len(samples) // 2 :]
    if len(late) < 3:
        return 0.0
    return float(np.polyfit([at for at, _ in late], [size for _, size in late], 1)[0]) * 3600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=4, help="steps between two faults")
    given = parser.parse_args()
    samples: dict[str, list[tuple[float, int]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        file = Path(place) / "soak.yaml"
        faults = schedule(given.seed, given.every, count=int(60 * given.minutes))
        file.write_text(f"{find('simulated').read_text()}\nchaos:\n  faults: {faults}\n", encoding="utf-8")
        with run(Path(place) / "soak", *SETTINGS, config=str(file)) as made:
            made.until("the first step", lambda: made.steps() >= 1, every=1.0)
            began, load_before = time.monotonic(), os.getloadavg()[1]
            while time.monotonic() - began < given.minutes * 60:
                time.sleep(EVERY)
                if made.process.poll() is not None:
                    print(made.text()[-5000:])
                    return 1
                for kind, size in memory(made).items():
                    samples[kind].append((time.monotonic() - began, size))
            made.process.send_signal(signal.SIGINT)
            code = made.wait(600)
        ledger_is_sound(made)
        told = deaths.told(made.folder)
        states = made.sql("SELECT role, state, count(*) FROM episodes GROUP BY role, state")
        print(
            f"{given.minutes:g} minutes, {made.steps()} steps, exit {code}, load {load_before:.0f}, {os.cpu_count()} cores"
        )
        print(
            f"faults: {made.text().count('chaos: kill')} kills, {made.text().count('chaos: stall')} stalls; {len(told)} deaths"
        )
        print(f"deaths by actor: {dict(Counter(line['actor'].rpartition('-')[0] for line in told))}")
        print(f"episodes: {', '.join(f'{role} {state} {count}' for role, state, count in states)}")
        print(f"by cause: {made.counts()}")
        assert all(state in {known.value for known in State} for _, state, _ in states)
    growing = {kind: slope(found) for kind, found in samples.items()}
    for kind, found in samples.items():
        print(
            f"memory of {kind}: {found[0][1] / 1e6:.0f} -> {found[-1][1] / 1e6:.0f} MB, {growing[kind] / 1e6:+.0f} MB/h"
        )
    # Minutes are too short for a slope: there only the ledger's word counts.
    flat = given.minutes < 10 or all(growing.get(kind, 0.0) < GROWTH for kind in WATCHED)
    print("laws hold; memory is flat" if flat else "laws hold; memory grows")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
