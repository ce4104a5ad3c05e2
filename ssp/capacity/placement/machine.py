"""This machine as a node of a plan: its GPUs and its memory."""

import subprocess

from ssp.base.devices import available_mb
from ssp.capacity.memory import MB
from ssp.config.nodes import Node, parse
from ssp.config.schema import Config

SMI = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")


def nodes(cfg: Config) -> list[Node]:
    """What `placement.nodes` describes, else this machine."""
    return parse(cfg.placement.nodes) if cfg.placement.nodes else [here()]


def here() -> Node:
    """This machine: its GPUs, the memory that is free."""
    gpus = gpu_bytes()
    return Node(
        "this machine", len(gpus), min(gpus, default=0), int(available_mb() * MB), free=True
    )


def gpu_bytes() -> list[int]:
    """Bytes of each GPU here; none without nvidia-smi."""
    try:
        done = subprocess.run(SMI, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [int(line) * MB for line in done.stdout.split() if line.isdigit()]
