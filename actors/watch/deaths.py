"""What is said when an actor's process ends: one paragraph, and a line of deaths.jsonl in the run folder.

Owns the look at all actors of a run, every few seconds: which process each has, on which node, how much memory it holds.
Promises that every death is told once, with what is known of it: who, where, Ray's word for the end, the last call, memory
before it, whether it was killed for want of memory, the end of its log, and what comes next; and that the look costs one
question to Ray's head while nothing dies. Refuses to restart anything (`actors.restarts`).
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray._private import state  # the public look (ray.util.state) needs the dashboard
from ray.core.generated import common_pb2, gcs_pb2
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.calls import Asked
from actors.restarts import Restart
from actors.watch.witness import Vitals, Witness, WitnessActor

EVERY = 2.0
"""Seconds between two looks: how old the memory in a report may be."""

PATIENCE = 5.0
"""Seconds that a node gets to say what it knows."""

SHOWN = 3
"""Lines of the log that the paragraph shows; the file has more."""


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
    whether it was killed for want of memory; `chaos`: what a test did to it, "" outside of tests."""

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
    chaos: str = ""
    log: list[str] = field(default_factory=list)
    time: float = field(default_factory=time.time)

    def told(self) -> str:
        """The paragraph."""
        how = f"{self.end}, {self.signal}" if self.signal else self.end
        memory = "its memory was not seen yet" if self.rss_mb < 0 else f"it held {self.rss_mb:.0f} MB"
        log = f" Its log ends: {' | '.join(self.log[-SHOWN:])}" if self.log else " Its log is empty."
        return (
            f"{'chaos: ' if self.chaos else ''}{self.actor}: process {self.pid} on {self.address} (node {self.node[:8]}) "
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
        self._witnesses: dict[str, Any] = {}
        self._killed: dict[str, int] = {}
        self.seen: dict[str, Seen] = {}
        self.chaos: dict[int, str] = {}
        """Processes that a test ended, and by what."""

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
        self._vitals()
        return deaths

    def place(self, actor: str) -> Seen | None:
        """Where the newest process of an actor is."""
        return next((seen for seen in reversed(self.seen.values()) if seen.actor == actor), None)

    def witness(self, node: str) -> Any:
        """Who sees the processes of a node: this process, or an actor there."""
        if node not in self._witnesses:
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            self._witnesses[node] = (
                Witness() if node == self._home else WitnessActor.options(scheduling_strategy=there).remote()
            )
        return self._witnesses[node]

    def asked(self, node: str, method: str, *args: Any) -> Any:
        """What the witness of a node answers; None when the node is gone or does not answer in time."""
        witness = self.witness(node)
        if isinstance(witness, Witness):
            return getattr(witness, method)(*args)
        try:
            return ray.get(getattr(witness, method).remote(*args), timeout=PATIENCE)
        except RayError:
            self._witnesses.pop(node)
            return None

    def end(self) -> None:
        """Look no more, and end the witnesses: what ends from now on is the program's doing."""
        with self._looking:
            self._over = True
        for witness in self._witnesses.values():
            if not isinstance(witness, Witness):
                ray.kill(witness, no_restart=True)
        self._witnesses.clear()

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

    def _vitals(self) -> None:
        """Note the memory of the living, node by node."""
        nodes: dict[str, list[Seen]] = {}
        for seen in self.seen.values():
            if seen.alive:
                nodes.setdefault(seen.node, []).append(seen)
        for node, there in nodes.items():
            vitals: Vitals | None = self.asked(node, "vitals", [seen.pid for seen in there])
            if vitals is not None:
                self._killed[node] = vitals.killed
                for seen in there:
                    seen.rss = vitals.rss.get(seen.pid) or seen.rss  # a process that is ending has none

    def _death(self, was: Seen, now: Seen) -> Death:
        node = {node["NodeID"]: node for node in ray.nodes()}.get(was.node, {})
        kind, detail = self._end(was) if node.get("Alive") else ("its node is gone", node.get("DeathReasonMessage", ""))
        log: list[str] = (self.asked(was.node, "tail", was.pid) or []) if node.get("Alive") else []
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
            oom=self._oom(was.node, kind) if node.get("Alive") else "not known",
            then=self._restarts[was.kind].told(now.restarts, now.alive),
            chaos=self.chaos.get(was.pid, ""),
            log=log,
        )

    def _end(self, was: Seen) -> tuple[str, str]:
        """Ray's word for how a process ended, and the facts of its detail, without the guesses that follow."""
        deadline = time.monotonic() + PATIENCE
        while True:  # the head hears of the actor and of its process by different ways
            rows = map(gcs_pb2.WorkerTableData.FromString, state.state._connect_and_get_accessor().get_worker_table())  # type: ignore[attr-defined]
            for row in rows:
                if row.pid == was.pid and row.worker_address.node_id.hex() == was.node and row.exit_detail:
                    detail = row.exit_detail.split(" Some common causes")[0].strip().rstrip(".")
                    return common_pb2.WorkerExitType.Name(row.exit_type), detail  # type: ignore[attr-defined]
            if time.monotonic() > deadline:
                return "Ray does not say how", ""
            time.sleep(0.1)

    def _oom(self, node: str, kind: str) -> str:
        if "MEMORY" in kind:
            return "yes, by Ray"
        vitals: Vitals | None = self.asked(node, "vitals", [])
        if vitals is None:
            return "not known"
        return (
            "likely, the kernel killed a process just now"
            if vitals.killed > self._killed.get(node, vitals.killed)
            else "no sign"
        )


def told(folder: Path, wanted: Collection[str] = ()) -> list[dict[str, Any]]:
    """The lines of a run's deaths.jsonl, of these actors or of all."""
    with suppress(FileNotFoundError):
        lines = [json.loads(line) for line in (folder / "deaths.jsonl").read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if not wanted or line["actor"] in wanted]
    return []
