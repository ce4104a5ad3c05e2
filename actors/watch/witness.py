"""What one node knows of its processes: memory, what the kernel killed, the tail of an actor's log.

Owns reading /proc and Ray's log folder of its node. Promises that names and values that look like secrets do not leave the
node, and to signal only the process that it is told. Refuses to know what an actor is for.
"""

from __future__ import annotations

import os
import re
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray

from ssp.services import SECRET

LINES = 20
"""Lines of each of its logs that a death report keeps."""

LONGEST = 300
"""Characters of such a line."""

KILLED = Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")
"""Where the kernel counts processes that it killed for want of memory: the container's own count, else the machine's."""

_NAMED = re.compile(
    r"(?i)([\w-]*(?:[_-]key|token|secret|password|passwd|credential|authorization)[\"']?\s*[:=]\s*)"
    r"(?:bearer\s+|basic\s+)?[\"']?[^\s,;\"']{4,}[\"']?"
)
_LOOKS = re.compile(r"(?i)\bbearer\s+\S+|\b(?:sk|hf|ghp)[-_]\w{8,}")


@dataclass(frozen=True)
class Vitals:
    """Resident bytes of each living process that was asked about, and how many processes the kernel has killed."""

    rss: dict[int, int]
    killed: int


class Witness:
    """One node, seen by a process on it. `logs`: Ray's log folder there."""

    def __init__(self, logs: str = "") -> None:
        self._logs = Path(logs or _logs())

    def vitals(self, pids: Sequence[int]) -> Vitals:
        """Now; processes that are gone are missing."""
        rss = {}
        for pid in pids:
            with suppress(psutil.Error):
                rss[pid] = psutil.Process(pid).memory_info().rss
        return Vitals(rss, killed())

    def tail(self, pid: int) -> list[str]:
        """The last lines that an actor's process wrote, without secrets and Ray's own marks."""
        lines: list[str] = []
        for file in sorted(self._logs.glob(f"worker-*-{pid}.*")):
            with suppress(OSError), file.open(encoding="utf-8", errors="replace") as text:
                kept = deque((line.rstrip() for line in text if _said(line)), maxlen=LINES)
                lines += [clean(line)[:LONGEST] for line in kept]
        return lines

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to one process."""
        os.kill(pid, number)

    def end_node(self) -> None:
        """Kill the raylet of this actor's node, which ends everything on it."""
        os.kill(os.getppid(), signal.SIGKILL)


WitnessActor: Any = ray.remote(num_cpus=0, max_restarts=0)(Witness)


def killed() -> int:
    """Processes that the kernel has killed for want of memory so far."""
    for file in KILLED:
        with suppress(OSError):
            found = re.search(r"^oom_kill (\d+)", file.read_text(encoding="ascii"), re.MULTILINE)
            if found:
                return int(found[1])
    return 0


def clean(line: str) -> str:
    """A line without what is named like a secret, and without the values of such environment variables."""
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) > 5:
            line = line.replace(value, "***")
    return _LOOKS.sub("***", _NAMED.sub(r"\1***", line))


def _said(line: str) -> bool:
    """Whether a line is the actor's own; Ray marks jobs, actors and tasks in between."""
    return bool(line.strip()) and not re.match(r":(job_id|actor_name|task_name):", line)


def _logs() -> str:
    from ray._private import worker

    return str(worker._global_node.get_logs_dir_path())  # type: ignore[attr-defined]  # no public name
