"""How many torch threads a process computes with."""

import os
from pathlib import Path

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


def alone(cfg: Config, role: str = "", at_once: int = 1) -> int:
    """Threads of a process that computes with the model of `role`: one below `SMALL` parameters, else
    this machine's cores, divided by the processes that compute `at_once`. Another number of threads
    rounds differently."""
    model = find(cfg.block(role or cfg.spec.answerer).model)
    return 1 if model.parameters < SMALL else max(1, cores() // at_once)


def player(cfg: Config, role: str, count: int = 0) -> int:
    """Of an engine of that role, one of `count` (default: its players). vLLM has threads of its
    own."""
    if cfg.block(role).engine.kind != "torch":
        return 1
    return alone(cfg, role, count or cfg.placement.players[role])


def judge(cfg: Config) -> int:
    """Of a judge, whose engines are of the solver's kind."""
    return player(cfg, cfg.spec.answerer, cfg.placement.judges)


def learner(cfg: Config, role: str) -> int:
    """Of a rank of the learner of `role`; all that learn compute at once."""
    ranks = sum(crews.ranks(cfg, name) for name in crews.teaching(cfg))
    return alone(cfg, role, max(1, ranks))


def cores() -> int:
    """Processors that this process may use: its affinity, and a container's limit."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    words = QUOTA.read_text().split() if QUOTA.is_file() else []
    if len(words) == 2 and words[0].isdigit():
        count = min(count, int(words[0]) // int(words[1]))
    return max(1, count)
