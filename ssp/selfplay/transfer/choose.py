"""Which way weights travel: by the config, or by where learner and engines are."""

from __future__ import annotations

from collections.abc import Sequence

from ssp.base.errors import InputError
from ssp.selfplay.transfer.parcel import BROADCAST, OBJECT_STORE, SHM, Place

SHARE = 0.5
"""Of the object store, what published weights may take for `auto` to choose it; episodes need the rest. Where they fit it is
the fastest way on one node at every size (tests/bench/weight_sync.py), since its pages are in use already; where they do
not, Ray would write them to the disk."""


def choose(kind: str, role: str, learner: Place, engines: Sequence[Place], room: float) -> tuple[str, str]:
    """(kind, why) for one role. `room`: bytes that one of its publications may take in the object store.

    InputError when the kind that was asked for cannot work where the processes are.
    """
    together = all(place.memory == learner.memory for place in engines)
    if kind == SHM and not together:
        hosts = ", ".join(sorted({place.host for place in (learner, *engines)}))
        rule = f"transfer.kind=shm needs the {role}'s learner and engines on one node"
        raise InputError(rule, f"they are on {hosts}", "set transfer.kind=auto")
    if kind != "auto":
        return kind, "transfer.kind"
    if between_gpus(learner, engines):
        return BROADCAST, "a GPU each"
    if not together:
        return OBJECT_STORE, "several nodes"
    if learner.nbytes > room:
        return SHM, f"one node, {learner.nbytes / 1e6:.0f} MB is more than ray.object_store_mb has room for"
    return OBJECT_STORE, "one node"


def between_gpus(learner: Place, engines: Sequence[Place]) -> bool:
    """Whether a broadcast goes from GPU to GPU (NCCL): each process has one of its own. Else it goes over hosts (gloo)."""
    gpus = [place.gpu for place in (learner, *engines)]
    return "" not in gpus and len(set(gpus)) == len(gpus)
