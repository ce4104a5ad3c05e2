"""What every actor process does first, what proves that it lives, and what ends with it."""

import gc
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import ray

from actors import keeper
from ssp.base import devices
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.engines import orders

TOLD = "SSP_GPUS_TOLD"
"""Set in the environment of an actor whose GPUs are named by its placement, not given by Ray."""


class About(NamedTuple):
    """Process id and class of an actor, and Ray's id of its node."""

    pid: int
    kind: str
    node: str


class Alive:
    """Mix-in with the liveness probe that supervision calls."""

    def ping(self) -> int:
        """Process id."""
        started()
        return os.getpid()

    def about(self) -> About:
        """What a report of its death says."""
        return About(os.getpid(), type(self).__name__, str(ray.get_runtime_context().get_node_id()))

    def __repr__(self) -> str:
        """The actor's name. Ray asks once, at its start, and shows it in the dashboard and before
        log lines."""
        return ray.get_runtime_context().get_actor_name() or type(self).__name__


@cache  # to count what is frozen would take milliseconds, and each probe comes here
def started() -> None:
    """Spare the garbage collector what this process has by now, modules above all.

    It keeps that, so that nobody need look through it each time that games come and go. And the
    collector comes less often: a block of episodes is thousands of objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


class Calm(Alive):
    """Mix-in before a worker that computes: it uses its share of the cores, and the GPUs that it
    was given. Two OpenMP pools on one core make each other many times slower; a worker without a
    GPU would see and use those of all others."""

    share: Callable[..., int] = staticmethod(lambda *args: 1)
    """The number of torch threads of a worker that is made with these arguments."""

    def __init__(self, *args: Any) -> None:
        if TOLD not in os.environ:
            given = ray.get_runtime_context().get_accelerator_ids()
            if not given.get("GPU"):
                os.environ["CUDA_VISIBLE_DEVICES"] = ""
        devices.frugal()
        self._threads = self.share(*args)
        threads.use(self._threads)
        super().__init__(*args)


class Guarded(Calm):
    """Mix-in before a worker with engines. The processes that an engine of another package
    starts end with the actor, however it ends. And the actor ends with an engine that an error has ended, since only a new
    process gets another one."""

    def __init__(self, cfg: Config, *args: Any) -> None:
        orders.on_error = _end
        if any(cfg.block(role).engine.traits.package for role in cfg.roles):
            guard()
        super().__init__(cfg, *args)


def _end(error: BaseException) -> None:
    """Write the error to the actor's log, and end the process at once."""
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(1)


def guard() -> None:
    """Make this process the leader of a group of its own, and start a keeper that kills the group
    after it. Call before anything is started. SspError when the keeper does not start."""
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    _keepers.append(keeper.keep(os.getpid()))


_keepers: list[subprocess.Popen[bytes]] = []
"""Keepers end what they keep when their pipes close: here these stay open."""
