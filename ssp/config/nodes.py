"""The machines of a cluster as a plan sees them, and the text of `placement.nodes` that describes
them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ssp.base.errors import InputError, hold

MOST = 1024
GB = 2**30
HELD_BACK = 0.02
"""Share of a GPU that its driver and fragments take: an "80 GB" card offers 79.2 to 79.6 x 2**30
bytes."""
_GROUP = re.compile(r"(\d+)x(\d+)x(\d+(?:\.\d+)?)(?:x(\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Node:
    """One machine: its name, GPUs, bytes of each, bytes of its own memory (0 = not known, not
    checked). `free`: these bytes are what other programs leave now."""

    name: str
    gpus: int
    gpu: int = 0
    host: int = 0
    free: bool = False

    @property
    def usable(self) -> int:
        """Bytes of each GPU that processes can have."""
        return int(self.gpu * (1 - HELD_BACK))


def parse(text: str) -> list[Node]:
    """`4x8x80`: 4 nodes of 8 GPUs of 80 GB each; a fourth number is the GB of each node's own
    memory; several groups with commas between. InputError for anything else, and for more than
    1,024 nodes."""
    rule = "placement.nodes says nodes x GPUs x GB a GPU (x GB of a node, if known)"
    step = 'e.g. placement.nodes="4x8x80", or "1x8x80x2000,2x4x40"'
    nodes: list[Node] = []
    for group in text.replace(" ", "").split(","):
        match = _GROUP.fullmatch(group)
        if match is None:
            raise InputError(rule, repr(group), step)
        count, gpus = int(match[1]), int(match[2])
        hold(1 <= count <= MOST and gpus <= MOST, rule, repr(group), step)
        gpu = int(float(match[3]) * GB)
        host = int(float(match[4] or 0) * GB)
        first = len(nodes)
        nodes += [Node(f"node {first + i}", gpus, gpu, host) for i in range(count)]
    rule = f"placement.nodes describes at most {MOST} nodes"
    hold(len(nodes) <= MOST, rule, len(nodes), "describe the part that the run gets")
    return nodes


def smallest_gpu(nodes: Sequence[Node]) -> int:
    """Bytes of the smallest kind of GPU that is there, which every engine must fit; 0 without
    GPUs."""
    return min((node.gpu for node in nodes if node.gpus), default=0)
