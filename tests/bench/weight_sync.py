"""Seconds and CPU seconds that each way of weights takes: one learner to two engines, real actors of Ray.

    python tests/bench/weight_sync.py [--mb 0.5 100 1000] [--kinds object_store broadcast] [--trials 9]

Random float32 weights (50 tensors; 0.5 MB: the quickstart's model in size). A trial is a publication from the arrays in
the learner's process to arrays that both engines have read once (a sum: mapped pages are touched). Kinds are interleaved;
the first two trials of each are left out. CPU seconds are of the three processes, the object store's own not counted.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.update({"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "RAY_AUTH_MODE": "disabled"})
os.environ.update({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"})
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import ray

from ssp.selfplay.transfer.broadcast import Call
from ssp.selfplay.transfer.loader import Inbox
from ssp.selfplay.transfer.publisher import Publisher

WARM = 2
TENSORS = 50


def cpu() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@ray.remote(num_cpus=0.1)
class Learner:
    """Random weights, new ones each time."""

    def __init__(self, megabytes: float) -> None:
        each = max(1, int(megabytes * 1e6 / 4 / TENSORS))
        rng = np.random.default_rng(0)
        self._weights = {f"layer.{i}.weight": rng.random(each, np.float32) for i in range(TENSORS)}
        self._boxes: dict[str, Publisher] = {}
        self._count = 0

    def open(self, kind: str) -> None:
        self._boxes[kind] = Publisher()
        self._boxes[kind].publish_by(kind, 2)

    def listen(self, kind: str) -> int:
        return self._boxes[kind].listen("127.0.0.1")

    def join(self, kind: str, call: Call) -> None:
        self._boxes[kind].join(call, "127.0.0.1")

    def pack(self, kind: str) -> tuple[Any, int]:
        self._count += 1
        for array in self._weights.values():
            array[0] = self._count
        parcel, figures = self._boxes[kind].pack(self._weights)
        return parcel, int(figures["serial"])

    def send(self, kind: str, serial: int) -> None:
        self._boxes[kind].send(serial)

    def cpu(self) -> float:
        return cpu()


@ray.remote(num_cpus=0.1)
class Engine:
    """Reads what arrives."""

    def __init__(self) -> None:
        self._boxes: dict[str, Inbox] = {}

    def open(self, kind: str) -> None:
        self._boxes[kind] = Inbox("solver", 2)

    def join(self, kind: str, call: Call, rank: int) -> None:
        self._boxes[kind].join(call, rank, "127.0.0.1")

    def receive(self, kind: str, version: int, parcel: Any) -> None:
        self._boxes[kind].arrive(version, parcel)

    def take(self, kind: str, version: int, parcel: Any) -> float:
        weights = self._boxes[kind].open(version, parcel)
        return float(sum(array.sum(dtype=np.float64) for array in weights.values()))

    def cpu(self) -> float:
        return cpu()


def trial(kind: str, version: int, learner: Any, engines: list[Any]) -> tuple[float, float]:
    """Wall and CPU seconds of one publication."""
    before = sum(ray.get([actor.cpu.remote() for actor in (learner, *engines)]))
    began = time.perf_counter()
    parcel, serial = learner.pack.options(num_returns=2).remote(kind)
    if kind == "broadcast":
        sent = learner.send.remote(kind, ray.get(serial))
        ray.get([sent, *[engine.receive.remote(kind, version, parcel) for engine in engines]])
    sums = ray.get([engine.take.remote(kind, version, parcel) for engine in engines])
    wall = time.perf_counter() - began
    assert sums[0] == sums[1]
    return wall, sum(ray.get([actor.cpu.remote() for actor in (learner, *engines)])) - before


def measure(megabytes: float, kinds: list[str], trials: int) -> None:
    """All kinds at one size, interleaved; prints a line each."""
    learner = Learner.remote(megabytes)
    engines = [Engine.remote() for _ in range(2)]
    for kind in kinds:
        ray.get([actor.open.remote(kind) for actor in (learner, *engines)])
        if kind == "broadcast":
            call = Call("127.0.0.1", ray.get(learner.listen.remote(kind)), 3, False, 120.0)
            joins = [engine.join.remote(kind, call, rank) for rank, engine in enumerate(engines, 1)]
            ray.get([learner.join.remote(kind, call), *joins])
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for version in range(WARM + trials):
        for kind in kinds[version % len(kinds) :] + kinds[: version % len(kinds)]:
            found[kind].append(trial(kind, version, learner, engines))
    for kind, times in found.items():
        walls, cpus = zip(*times[WARM:], strict=True)
        print(
            f"{megabytes:7g} MB  {kind:<12}  median {statistics.median(walls):7.3f} s "
            f"({min(walls):.3f} to {max(walls):.3f})  CPU {statistics.median(cpus):7.3f} s",
            flush=True,
        )
    for actor in (learner, *engines):
        ray.kill(actor)


def main() -> None:
    """Parse, start Ray, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, nargs="+", default=[0.5, 100.0, 1000.0])
    parser.add_argument("--kinds", nargs="+", default=["object_store", "broadcast"])
    parser.add_argument("--trials", type=int, default=9)
    args = parser.parse_args()
    store = int(max(4 * max(args.mb), 100) * 1e6)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=store, log_to_driver=False)
    try:
        for megabytes in args.mb:
            measure(megabytes, args.kinds, args.trials)
    finally:
        ray.shutdown()
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
