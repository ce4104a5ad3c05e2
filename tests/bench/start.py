"""From the command to the first episode, by part: wall seconds, and CPU seconds of each kind of process of `ssp train`.

    python tests/bench/start.py [--config quickstart] [--until "first episode"] [--imports 8] [settings ...]
    python tests/bench/start.py --against OTHER_CHECKOUT --pairs 3 [settings ...]

A part ends where a user sees it: the driver says that Ray starts, the run folder, that actors start; the ledger has an
episode, the folder a transcript, metrics.jsonl a step; the command has ended. All processes carry a mark in their
environment and are looked at every 50 ms in /proc, so that one which ends is short of at most that. --until: end the
command there, as Ctrl-C does. --imports: the packages that took most of each kind of process, in CPU seconds without
what they import themselves; such a run is slower. --against: both checkouts in turn, and the ratio of each pair.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from trainruns import FEW, MARK, REPO, Left, end_marked, marked

EVERY = 0.05
"""Seconds between two looks."""
LIMIT = 900.0
SHORT = ["steps=1", "eval.every=0", "eval.final_questions_per_hop=1", *FEW]
TICKS = os.sysconf("SC_CLK_TCK")
SAID = {"read and check": "starting Ray", "Ray's own start": "run folder:", "placing": "actors are starting"}
"""Parts that end with a line of the driver."""
PARTS = (*SAID, "actors", "first episode", "first step", "the end")
KINDS = {
    "launch.main": "driver",
    "ray::PlayerActor": "players",
    "ray::JudgeActor": "judges",
    "ray::LearnerActor": "learners",
    "ray::ShardActor": "shards",
    "ray::LedgerActor": "ledger",
    "gcs_server": "Ray: gcs",
    "raylet/raylet": "Ray: raylet",
    "dashboard/dashboard.py": "Ray: dashboard",
    "dashboard/agent.py": "Ray: dashboard's agent",
    "runtime_env/agent": "Ray: runtime env's agent",
    "log_monitor.py": "Ray: log monitor",
    "monitor.py": "Ray: autoscaler's monitor",
    "default_worker.py": "Ray: idle workers",
}
"""What tells a process in its title, in this order; a worker's title changes once it has its actor."""
HOOK = """
import importlib._bootstrap as bootstrap, os, threading, time
inner, local = bootstrap._find_and_load, threading.local()
def timed(name, import_):
    spent = local.__dict__.setdefault("spent", [0.0])
    spent.append(0.0)
    started = time.thread_time()
    try:
        return inner(name, import_)
    finally:
        took = time.thread_time() - started
        own = took - spent.pop()
        spent[-1] += took
        with open(f"{os.environ['IMPORT_TIMES']}/{os.getpid()}", "a") as file:
            file.write(f"{name.partition('.')[0]} {own}\\n")
bootstrap._find_and_load = timed
"""
"""Stands as sitecustomize.py before the import path of all processes."""


@dataclass
class Seen:
    """What a process has used, by part, and what it was last."""

    used: float = 0.0
    parts: Counter[str] = field(default_factory=Counter)
    kind: str = "others"


@dataclass
class Start:
    """One command: wall seconds by part, and its processes by id."""

    wall: dict[str, float] = field(default_factory=dict)
    processes: dict[int, Seen] = field(default_factory=lambda: defaultdict(Seen))
    imports: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def cpu(self, *parts: str) -> float:
        return sum(seen.parts[part] for seen in self.processes.values() for part in parts)


def measured(repo: Path, config: str, settings: list[str], until: str, imports: bool) -> Start:
    """Run `ssp train` of the checkout `repo`, and watch it."""
    start, mark = Start(), uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        made, said = Left(base / "run"), base / "said.txt"
        environment = {**os.environ, MARK: mark, "PYTHONPATH": str(repo), "IMPORT_TIMES": temporary}
        environment.pop("RAY_ADDRESS", None)
        if imports:
            (base / "hook").mkdir()
            (base / "hook" / "sitecustomize.py").write_text(HOOK)
            environment["PYTHONPATH"] = f"{base / 'hook'}:{repo}"
        words = ["-m", "launch.main", "train", "--config", config, f"run.dir={made.folder}", *settings]
        with said.open("wb") as file:
            command = subprocess.Popen([sys.executable, *words], env=environment, cwd=base, stdout=file, stderr=file)
        try:
            _watch(start, command, made, said, mark, until)
        finally:
            end_marked(mark)
        if command.returncode not in (0, 130):
            raise SystemExit(f"the command ended with {command.returncode}:\n{said.read_text()}")
        for pid, seen in start.processes.items():
            if (base / str(pid)).exists():
                for line in (base / str(pid)).read_text().splitlines():
                    package, seconds = line.split()
                    start.imports[seen.kind][package] += float(seconds)
    return start


def _watch(start: Start, command: subprocess.Popen[bytes], made: Left, said: Path, mark: str, until: str) -> None:
    """Look at all processes until the command ends; after the part `until`, tell it to."""
    parts, began, look = list(PARTS), time.monotonic(), 0
    part = parts.pop(0)
    while command.poll() is None:
        if time.monotonic() > began + LIMIT:
            raise SystemExit(f"not within {LIMIT:.0f} s: {part}")
        look += 1
        for pid in {*marked(mark), *start.processes}:
            _look(pid, start.processes[pid], part)
        if parts and look % 4 == 0 and _ended(part, made, said):
            start.wall[part], began = time.monotonic() - began, time.monotonic()
            if part == until:
                command.send_signal(signal.SIGINT)
                parts = parts[-1:]
            part = parts.pop(0)
        time.sleep(EVERY)
    start.wall[part] = time.monotonic() - began


def _look(pid: int, seen: Seen, part: str) -> None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        title = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return  # it has ended
    used = (int(stat[11]) + int(stat[12])) / TICKS
    seen.parts[part] += used - seen.used
    seen.used = used
    if seen.kind in ("others", KINDS["default_worker.py"]):
        seen.kind = next((kind for word, kind in KINDS.items() if word in title), "others")


def _ended(part: str, made: Left, said: Path) -> bool:
    if part in SAID:
        return SAID[part] in said.read_text()
    if part == "actors":
        return bool(made.sql("SELECT 1 FROM episodes LIMIT 1"))
    if part == "first episode":
        return any(made.folder.glob("episodes/*.parquet"))
    return made.steps() > 0


def show(start: Start, imports: int) -> None:
    """Print one command's parts and processes."""
    print(f"\n{'part':<16}  wall s   CPU s   of these")
    for part, wall in start.wall.items():
        kinds: Counter[str] = Counter()
        for seen in start.processes.values():
            kinds[seen.kind] += seen.parts[part]
        most = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in kinds.most_common(5) if seconds >= 0.1)
        print(f"{part:<16} {wall:7.1f} {start.cpu(part):7.1f}   {most}")
    print(f"{'in all':<16} {sum(start.wall.values()):7.1f} {start.cpu(*PARTS):7.1f}")
    numbers = Counter(seen.kind for seen in start.processes.values())
    print(f"\n{'process':<26} number   CPU s   before the first step")
    for kind, number in sorted(numbers.items()):
        mine = [seen for seen in start.processes.values() if seen.kind == kind]
        before = sum(seen.parts[part] for seen in mine for part in PARTS[:-2])
        print(f"{kind:<26} {number:6d} {sum(seen.used for seen in mine):7.1f} {before:7.1f}")
        if start.imports[kind]:
            most = ", ".join(f"{name} {own / number:.2f}" for name, own in start.imports[kind].most_common(imports))
            print(f"    imports, each: {most}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="quickstart")
    parser.add_argument("--until", default="", choices=PARTS)
    parser.add_argument("--imports", type=int, default=0)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("settings", nargs="*")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through what ends the processes
    settings = [*SHORT, *given.settings]
    how = (given.config, settings, given.until, given.imports > 0)
    if given.against is None:
        show(measured(REPO, *how), given.imports)
        return 0
    ratios = []
    for _ in range(given.pairs):
        other, mine = [measured(repo, *how).cpu(*PARTS) for repo in (given.against, REPO)]
        ratios.append(mine / other)
        print(f"CPU seconds: {other:.1f} there, {mine:.1f} here, ratio {ratios[-1]:.3f}", flush=True)
    print(f"ratio: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
