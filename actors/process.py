"""What every actor process does first, and what proves that it lives."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from typing import Any

from actors import reaper
from ssp.capacity.memory import threads
from ssp.config.schema import Config
from ssp.engines import orders


class Alive:
    """Mix-in with the liveness probe that supervision calls."""

    def ping(self) -> int:
        """Process id."""
        started()
        return os.getpid()

    def home(self) -> str:
        """Ray's id of the node that it runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def __repr__(self) -> str:
        """The actor's name. Ray asks once, at its start, and shows it as long as the actor lives: in the dashboard, before
        its log lines, and as `<name>.<method>` for each of its calls, which is how one sees what it does now."""
        import ray

        return ray.get_runtime_context().get_actor_name() or type(self).__name__


def started() -> None:
    """What a process has once it has started (modules above all) it keeps: the garbage collector need not look through it
    each time that games come and go, and may come less often, for a block of episodes is thousands of objects."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000)


TOLD = "SSP_GPUS_TOLD"
"""Set in the environment of an actor whose GPUs are named by its placement, not given by Ray."""


class Calm(Alive):
    """Mix-in before a worker that computes: its share of the cores, and the GPUs that it was given. Two OpenMP pools on one
    core make each other many times slower; one without a GPU would see, and use, everybody's."""

    def share(self, *args: Any) -> int:
        """Torch threads of a worker that is made with `args`."""
        return 1

    def __init__(self, *args: Any) -> None:
        import ray

        if TOLD not in os.environ and not ray.get_runtime_context().get_accelerator_ids().get("GPU"):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._threads = self.share(*args)
        threads.use(self._threads)
        super().__init__(*args)


class Guarded(Calm):
    """Mix-in before a worker with engines: the processes that vLLM starts end with the actor, however it ends; and it ends
    with an engine that an error has ended, since nothing but a new process gives it another one."""

    def __init__(self, cfg: Config, *args: Any) -> None:
        orders.on_error = _end
        if any(cfg.block(role).engine.kind == "vllm" for role in cfg.roles):
            reaper.guard()
        super().__init__(cfg, *args)


def _end(error: BaseException) -> None:
    """Say why, in the actor's log, and end the process at once."""
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(1)
