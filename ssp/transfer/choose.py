"""Which way weights travel: by the config, or by where learner and engines are.

Owns the choice and what each kind needs. Promises one sentence that says what was chosen and why, and a refusal where a
kind cannot work (law 6). Refuses to start anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssp.errors import InputError
from ssp.transfer.parcel import BROADCAST, IPC, OBJECT_STORE, SHM, Place

LARGE = 64_000_000
"""Bytes of weights from which on `auto` takes a shared file on one node (measured: tests/bench/weight_sync.py)."""


def choose(kind: str, role: str, learner: Place, engines: Sequence[Place]) -> tuple[str, str]:
    """(kind, why) for one role. InputError when the kind that was asked for cannot work where the processes are."""
    together = all(place.memory == learner.memory for place in engines)
    gpus = {place.gpu for place in (learner, *engines)}
    if kind == SHM and not together:
        hosts = ", ".join(sorted({place.host for place in (learner, *engines)}))
        rule = f"transfer.kind=shm needs the {role}'s learner and engines on one node"
        raise InputError(rule, f"they are on {hosts}", "set transfer.kind=auto")
    if kind == IPC and (len(gpus) > 1 or "" in gpus):
        rule = f"transfer.kind=ipc needs the {role}'s learner and engines on one GPU"
        raise InputError(rule, ", ".join(sorted(gpu or "the CPU" for gpu in gpus)), "set transfer.kind=auto")
    if kind == BROADCAST and gpus != {""} and ("" in gpus or len(gpus) < 1 + len(engines)):
        rule = f"transfer.kind=broadcast needs no GPU, or one for each of the {role}'s processes"
        raise InputError(rule, f"{len(gpus - {''})} for {1 + len(engines)}", "set transfer.kind=auto")
    if kind != "auto":
        return kind, "transfer.kind"
    if "" not in gpus and len(gpus) == 1:
        return IPC, "all on one GPU"
    if "" not in gpus and len(gpus) == 1 + len(engines):
        return BROADCAST, "a GPU each"
    if not together:
        return OBJECT_STORE, "several nodes"
    if learner.nbytes >= LARGE:
        return SHM, f"one node, {learner.nbytes / 1e6:.0f} MB"
    return OBJECT_STORE, "one node, small weights"
