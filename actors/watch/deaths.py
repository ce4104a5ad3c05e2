"""What is said when an actor's process ends: one paragraph, and a line of deaths.jsonl in the run folder.

Owns the look at all actors of a run, every few seconds: which process each has, on which node. Promises that every death
is told once, with what is known of it: who, where, Ray's word for the end, the last call, and what comes next; of a process
on the driver's own node also its memory, whether the kernel killed one for want of memory, and the end of its log, without
what looks like a secret; and that the look costs one question to Ray's head while nothing dies.
Refuses to restart anything (`actors.restarts`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private import state, worker  # the public look (ray.util.state) needs the dashboard
from ray.core.generated import common_pb2, gcs_pb2

from actors.calls import Asked
from actors.crew import memory_line
from actors.restarts import Restart
from ssp.base.services import SECRET

EVERY = 2.0
"""Seconds between two looks: how old the memory in a report may be."""

PATIENCE = 5.0
"""Seconds that Ray's head gets to hear how a process ended."""

LINES, LONGEST = 20, 300
"""Lines of each of an actor's logs that a report keeps, and characters of such a line."""

SHOWN = 3
"""Lines of the log that the paragraph shows; the file has more."""

KILLED = Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")
"""Where the kernel counts processes that it killed for want of memory: the container's own count, else the machine's."""

_NAMED = re.compile(
    r"(?i)([\w-]*(?:[_-]key|token|secret|password|passwd|credential|authorization)[\"']?\s*[:=]\s*)"
    r"(?:bearer\s+|basic\s+)?[\"']?[^\s,;\"']{4,}[\"']?"
)
_LOOKS = re.compile(r"(?i)\bbearer\s+\S+|\b(?:sk|hf|ghp)[-_]\w{8,}")


@dataclass
class Seen:
    """An actor's process as of the last look; of one that restarts or is gone, the one before. `rss` in bytes, -1 = not
    known."""

    actor: str
    kind: str
    node: str
    address: str
    pid: int
    restarts: int
    alive: bool
    rss: int = -1


@dataclass(frozen=True)
class Death:
    """One line of deaths.jsonl. `end`: Ray's word and its detail; `signal`: where the process could still say it; `oom`:
    whether it was killed for want of memory; `log`: of a process on the driver's node."""

    actor: str
    kind: str
    node: str
    address: str
    pid: int
    end: str
    signal: str
    last_call: str
    rss_mb: float
    oom: str
    then: str
    log: list[str] = field(default_factory=list)
    time: float = field(default_factory=time.time)

    def told(self) -> str:
        """The paragraph."""
        how = f"{self.end}, {self.signal}" if self.signal else self.end
        memory = "its memory was not seen" if self.rss_mb < 0 else f"it held {self.rss_mb:.0f} MB"
        log = f" Its log ends: {' | '.join(self.log[-SHOWN:])}" if self.log else " No line of its log is here."
        return (
            f"{self.actor}: process {self.pid} on {self.address} (node {self.node[:8]}) "
            f"ended: {how}. Last asked for: {self.last_call}; {memory}; killed for want of memory: {self.oom}. "
            f"{self.then[0].upper()}{self.then[1:]}.{log}"
        )


class Deaths:
    """The look at the actors of one run. `at_death`: what one was last asked for."""

    def __init__(
        self,
        run: str,
        file: Path,
        restarts: Mapping[str, Restart],
        at_death: Callable[[str], Asked | None],
        say: Callable[[str], None],
    ) -> None:
        self._run, self._file, self._restarts, self._at_death, self._say = run, file, restarts, at_death, say
        here = ray.get_runtime_context()
        self._job, self._home = ray.JobID.from_hex(here.get_job_id()), here.get_node_id()
        self._looking, self._over = threading.Lock(), False
        self._logs = Path(worker._global_node.get_logs_dir_path())  # type: ignore[attr-defined]  # no public name
        self._killed = killed()
        self.seen: dict[str, Seen] = {}

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(EVERY)

    def look(self) -> list[Death]:
        """Look once; what has died since the last look, told. One thread at a time; nothing after `end`."""
        with self._looking:
            return [] if self._over else self._look()

    def _look(self) -> list[Death]:
        found = []
        for id_, now in self._table().items():
            before = self.seen.get(id_)
            if before is not None and before.alive and (not now.alive or now.pid != before.pid):
                found.append((before, now))
            if now.alive or before is None:
                now.rss = before.rss if before is not None and before.pid == now.pid else -1
                self.seen[id_] = now
            else:
                before.alive, before.restarts = False, now.restarts
        deaths = [self._death(*what) for what in found]
        for death in deaths:
            self._say(death.told())
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(death)) + "\n")
        self._note_memory()
        return deaths

    def end(self) -> None:
        """Look no more: what ends from now on is the program's doing."""
        with self._looking:
            self._over = True

    def _table(self) -> dict[str, Seen]:
        """Our named actors, by Ray's id."""
        mine = self._run + "-"
        return {
            id_: Seen(
                actor=row["Name"].removeprefix(mine),
                kind=row["ActorClassName"],
                node=row["Address"]["NodeID"],
                address=row["Address"]["IPAddress"],
                pid=row["Pid"],
                restarts=row["NumRestarts"],
                alive=row["State"] == "ALIVE",
            )
            for id_, row in state.actors(job_id=self._job).items()
            if row["Name"].startswith(mine) and (row["Pid"] or id_ in self.seen)
        }

    def _note_memory(self) -> None:
        """Of the living on this node."""
        self._killed = killed()
        for seen in self.seen.values():
            if seen.alive and seen.node == self._home:
                with suppress(psutil.Error):
                    seen.rss = psutil.Process(seen.pid).memory_info().rss or seen.rss  # one that is ending has none

    def _death(self, was: Seen, now: Seen) -> Death:
        node = {node["NodeID"]: node for node in ray.nodes()}.get(was.node, {})
        kind, detail = self._end(was) if node.get("Alive") else ("its node is gone", node.get("DeathReasonMessage", ""))
        log = tail(self._logs, was.pid) if was.node == self._home else []
        spoken = re.search(r"\b(SIG[A-Z]{3,5})\b(?= received)|Fatal Python error: (.+)", "\n".join(log))
        last = self._at_death(was.actor)
        return Death(
            actor=was.actor,
            kind=was.kind,
            node=was.node,
            address=was.address,
            pid=was.pid,
            end=f"{kind} ({detail})" if detail else kind,
            signal=spoken[0] if spoken else "",
            last_call="nothing by the driver"
            if last is None
            else f"{last.told()}{f' ({last.lost})' if last.lost else ''}",
            rss_mb=was.rss / 1e6 if was.rss >= 0 else -1.0,
            oom=self._oom(was.node, kind),
            then=self._restarts[was.kind].told(now.restarts, now.alive),
            log=log,
        )

    def _end(self, was: Seen) -> tuple[str, str]:
        """Ray's word for how a process ended, and the facts of its detail, without the guesses that follow."""
        deadline = time.monotonic() + PATIENCE
        while True:  # the head hears of the actor and of its process by different ways
            rows = map(gcs_pb2.WorkerTableData.FromString, state.state._connect_and_get_accessor().get_worker_table())  # type: ignore[attr-defined]
            for row in rows:
                if row.pid == was.pid and row.worker_address.node_id.hex() == was.node and row.exit_detail:
                    detail = memory_line(row.exit_detail).split(" Some common causes")[0].strip().rstrip(".")
                    return common_pb2.WorkerExitType.Name(row.exit_type), detail  # type: ignore[attr-defined]
            if time.monotonic() > deadline:
                return "Ray does not say how", ""
            time.sleep(0.1)

    def _oom(self, node: str, kind: str) -> str:
        if "MEMORY" in kind:
            return "yes, by Ray"
        if node != self._home:
            return "not known"
        return "likely, the kernel killed a process just now" if killed() > self._killed else "no sign"


def killed() -> int:
    """Processes that the kernel has killed for want of memory so far."""
    for file in KILLED:
        with suppress(OSError):
            found = re.search(r"^oom_kill (\d+)", file.read_text(encoding="ascii"), re.MULTILINE)
            if found:
                return int(found[1])
    return 0


def tail(logs: Path, pid: int) -> list[str]:
    """The last lines that an actor's process wrote, without secrets and Ray's own marks."""
    lines: list[str] = []
    for file in sorted(logs.glob(f"worker-*-{pid}.*")):
        with suppress(OSError), file.open(encoding="utf-8", errors="replace") as text:
            kept = deque((line.rstrip() for line in text if _said(line)), maxlen=LINES)
            lines += [clean(line)[:LONGEST] for line in kept]
    return lines


def clean(line: str) -> str:
    """A line without what is named like a secret, and without the values of such environment variables."""
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) > 5:
            line = line.replace(value, "***")
    return _LOOKS.sub("***", _NAMED.sub(r"\1***", line))


def _said(line: str) -> bool:
    """Whether a line is the actor's own; Ray marks jobs, actors and tasks in between."""
    return bool(line.strip()) and not re.match(r":(job_id|actor_name|task_name):", line)


def told(folder: Path, wanted: Collection[str] = ()) -> list[dict[str, Any]]:
    """The lines of a run's deaths.jsonl, of these actors or of all."""
    with suppress(FileNotFoundError):
        lines = [json.loads(line) for line in (folder / "deaths.jsonl").read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if not wanted or line["actor"] in wanted]
    return []
