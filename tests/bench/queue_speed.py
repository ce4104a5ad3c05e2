"""Rollouts/s through the product's queue, actor and ledger, by the contract of a script that measures such channels.

    ray_queue.py --impl tests/bench/queue_speed.py:Leased --producers 1,4,16     # one figure of ours
    queue_speed.py --script ray_queue.py --against queue_put_get -n 2            # paired, at 1, 4 and 16 producers

`Leased` does what a run does. A producer writes its episodes into the ledger (created, then queued with outcome and
reward), puts the block into the object store, and a ticket with the reference into the queue, which is bounded by items
and bytes; the put is heard only once the ledger has answered. The learner leases blocks of many episodes, reads them,
commits them to the ledger as one update, and acknowledges the lease once the commit is durable.

One thing is different: the producers of that script push, so they own their blocks. In a run the coordinator calls
`play` and owns what it returns, and a player's death loses nothing that it had handed over.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from actors.process import Alive  # noqa: E402
from actors.services import LedgerActor  # noqa: E402
from ssp.selfplay.queues import Queue, Ticket  # noqa: E402

ROLE, PATIENCE, WAIT = "solver", 60.0, 5.0
BLOCK = 64
"""Records of one block at most: a block is what there is when the one before has gone."""

AHEAD = 2
"""Calls that a producer and the learner have under way."""


@ray.remote
class Heard(Queue, Alive):
    """`actors.services.QueueActor`, whose caller need not wait for the ledger before it calls: Ray begins a call when the
    receipts among its arguments are there."""

    async def put(self, tickets: Any, wait: float, receipt: Any = None) -> bool:
        """See `Queue.put`."""
        return await Queue.put(self, tickets, wait)

    async def ack(self, key: str, receipt: Any) -> list[str]:
        """See `Queue.ack`."""
        return await Queue.ack(self, key)


def packed(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Many records as one: arrays are stacked, the rest is listed."""
    return {
        key: np.stack([r[key] for r in records]) if isinstance(first, np.ndarray) else [r[key] for r in records]
        for key, first in records[0].items()
    }


def unpacked(block: dict[str, Any]) -> list[dict[str, Any]]:
    """The reverse; arrays are views."""
    return [dict(zip(block, row, strict=True)) for row in zip(*block.values(), strict=True)]


class Putter:
    """A producer's side: a thread that hands over what there is, up to `BLOCK` records at once. `put` waits while as many
    records wait here: a full queue holds the producer back."""

    def __init__(self, queue: Any, ledger: Any, name: str) -> None:
        self._queue, self._ledger, self._name = queue, ledger, name
        self._made = 0
        self._ready: list[dict[str, Any]] = []
        self._changed: Any = None

    def put(self, records: list[dict[str, Any]]) -> None:
        """Hand over `records`."""
        if self._changed is None:  # here, and not where this object was made
            self._changed = threading.Condition()
            threading.Thread(target=self._send, daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: len(self._ready) < BLOCK)
            self._ready += records
            self._changed.notify_all()

    def _send(self) -> None:
        flying: list[tuple[Any, Any]] = []
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready)
                records, self._ready = self._ready[:BLOCK], self._ready[BLOCK:]
                self._changed.notify_all()
            flying.append(self._block(records))
            while len(flying) >= AHEAD:
                done, tickets = flying.pop(0)
                while not ray.get(done):  # it waited there, with what it carries
                    done = self._queue.put.remote(tickets, WAIT)

    def _block(self, records: list[dict[str, Any]]) -> tuple[Any, Any]:
        stem, self._made = f"{self._name}-{self._made:06d}", self._made + 1
        ids = [f"{stem}.{i:02d}" for i in range(len(records))]
        born = tuple({"id": id_, "game_id": stem} for id_ in ids)
        facts = tuple(
            {"id": id_, "reward": r["reward"], "policy_version_min": r["version"]}
            for id_, r in zip(ids, records, strict=True)
        )
        # An actor answers its calls in order, and the second fails where the first did.
        self._ledger.create.options(num_returns=0).remote(born, {"role": ROLE, "state": "running"})
        told = self._ledger.advance.remote(facts, {"state": "queued", "outcome": "scored"})
        nbytes = sum(v.nbytes if isinstance(v, np.ndarray) else len(str(v)) for r in records for v in r.values())
        tickets = (Ticket(stem, self._made, (ids, ray.put(packed(records))), len(ids), nbytes),)
        return self._queue.put.remote(tickets, WAIT, told), tickets


class Leased:
    """The learner's side, and the channel as a whole. `maxsize`: records."""

    def __init__(self, maxsize: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="queue-speed-")
        self._queue = Heard.options(num_cpus=0).remote(maxsize, maxsize * 32_000)
        self._ledger = LedgerActor.options(num_cpus=0).remote(Path(self._folder.name) / "ledger.db")
        self._producers = self._step = self._leases = 0
        self._ahead: list[tuple[str, Any]] = []
        self._held: tuple[str, list[str]] | None = None
        self._told: list[Any] = []

    def producer(self) -> Putter:
        self._producers += 1
        return Putter(self._queue, self._ledger, f"p{self._producers:02d}")

    def get(self, n: int) -> list[dict[str, Any]]:
        """Up to about `n` records; asking for more says that the ones before are trained."""
        self._commit()
        deadline = time.monotonic() + PATIENCE
        while True:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no ticket for {PATIENCE:g} s: see the producers' logs")
            while len(self._ahead) < AHEAD:
                self._leases += 1
                key = f"lease{self._leases}"
                self._ahead.append((key, self._queue.lease.remote(key, n, None, WAIT)))
            key, answer = self._ahead.pop(0)
            tickets = ray.get(answer)
            if tickets:
                break
        self._held = (key, [id_ for ticket in tickets for id_ in ticket.block[0]])
        blocks = ray.get([ticket.block[1] for ticket in tickets])
        return [record for block in blocks for record in unpacked(block)]

    def _commit(self) -> None:
        if self._held is None:
            return
        (key, ids), self._held = self._held, None
        self._step += 1
        durable = self._ledger.commit.remote(ROLE, 1, self._step, self._step, ids)
        self._told.append(self._queue.ack.remote(key, durable))
        if len(self._told) > AHEAD:
            ray.get(self._told.pop(0))

    def close(self) -> None:
        """Prove the laws, then end. Their failure is the measurement's."""
        states = ray.get(self._ledger.check.remote())[ROLE]
        assert states["trained"] > 0 and not states["voided"] and not states["dropped"], states
        for actor in (self._queue, self._ledger):
            ray.kill(actor)
        self._folder.cleanup()


def one(script: str, impl: str, producers: int, seconds: float) -> dict[str, Any]:
    """One run of `script`; its figures."""
    command = [sys.executable, script, "--impl", impl, "--producers", str(producers), "--seconds", str(seconds)]
    done = subprocess.run([*command, "--records", "1000000"], capture_output=True, text=True, timeout=300, check=False)
    found = [
        json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith('RESULT {"name": "ray_queue"')
    ]
    if not found:
        sys.exit(f"{impl}: {done.stderr[-2000:]}")
    return dict(found[-1])


def main() -> None:
    """Pairs, one after the other, in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", required=True, help="the script that measures (ray_queue.py)")
    parser.add_argument("--against", default="queue_put_get", help="its --impl for the other side")
    parser.add_argument("--producers", default="1,4,16")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("-n", type=int, default=2, help="pairs")
    args = parser.parse_args()
    for producers in map(int, args.producers.split(",")):
        ratios = []
        for _ in range(args.n):
            theirs = one(args.script, args.against, producers, args.seconds)
            ours = one(args.script, f"{Path(__file__).resolve()}:Leased", producers, args.seconds)
            ratios.append(ours["rollouts_per_s"] / theirs["rollouts_per_s"])
            for name, run in (("theirs", theirs), ("ours", ours)):
                shown = {k: run[k] for k in ("rollouts_per_s", "cpu_ms_per_rollout", "others_cores")}
                print(f"{producers} producers, {name}: {shown}, load {os.getloadavg()[0]:.1f}", flush=True)
        spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
        print(f"{producers} producers: {statistics.median(ratios):.2f}x ({spread}, {args.n} pairs)", flush=True)


if __name__ == "__main__":
    main()
