"""How many torch threads a process computes with."""

import os
from pathlib import Path

from ssp.base.episode import SOLVER
from ssp.capacity.memory.shapes import find
from ssp.config import crews
from ssp.config.schema import Config

SMALL = 30_000_000
"""Parameters below which one thread is as fast as several."""
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def use(count: int) -> None:
    """Have torch compute with `count` threads, in this thread and those that begin later."""
    import torch

    torch.set_num_threads(count)


def alone(cfg: Config, role: str = SOLVER, at_once: int = 1) -> int:
    """Of a process that computes with the model of `role`: one below `SMALL` parameters, else this
    machine's cores, divided by the processes that compute `at_once`. Another number rounds
    differently."""
    return 1 if find(cfg.block(role).model).parameters < SMALL else max(1, cores() // at_once)


def player(cfg: Config, role: str, count: int = 0) -> int:
    """Of an engine of that role, one of `count` (default: its players). vLLM has threads of its
    own."""
    count = count or cfg.placement.players[role]
    return alone(cfg, role, count) if cfg.block(role).engine.kind == "torch" else 1


def judge(cfg: Config) -> int:
    """Of a judge, whose engines are of the solver's kind."""
    return player(cfg, SOLVER, cfg.placement.judges)


def learner(cfg: Config, role: str) -> int:
    """Of a rank of the learner of `role`; all that learn compute at once."""
    learn = [name for name in crews.learners(cfg) if cfg.block(name).policy != "frozen"]
    return alone(cfg, role, max(1, sum(crews.ranks(cfg, name) for name in learn)))


def cores() -> int:
    """Processors that this process may use: its affinity, and a container's limit."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    words = QUOTA.read_text().split() if QUOTA.is_file() else []
    limit = int(words[0]) // int(words[1]) if len(words) == 2 and words[0].isdigit() else count
    return max(1, min(count, limit))
