"""The words of the memory plan: what one process needs, part by part, on the device that it
computes on and on its host."""

from dataclasses import dataclass

MB, GB = 2**20, 2**30
"""Binary, as tools show GPU memory: an "80 GB" card holds about 80 x 2**30 bytes."""


@dataclass(frozen=True)
class Need:
    """Bytes of one part of a process. `host`: it lies in the host's memory even where the process
    computes on a GPU. `turn`: only while it is this process's turn on a GPU that it shares (an
    engine awake, a learner in an update). `after`: only when what is in its turn has gone (a
    learner that publishes)."""

    what: str
    bytes: int
    host: bool = False
    turn: bool = False
    after: bool = False


@dataclass(frozen=True)
class Process:
    """One kind of process: how many, CPUs and GPUs each asks for, over how many GPUs it spreads,
    what it needs. `gpus`: the share of each of its `spread` GPUs, 0 = it computes on CPUs. Device
    needs are of one GPU. `threads`: of torch. `short`: what does not suffice within it ("" =
    nothing)."""

    name: str
    count: int
    cpus: float
    needs: tuple[Need, ...]
    gpus: float = 0.0
    spread: int = 1
    short: str = ""
    threads: int = 1

    def device(self, turn: bool | None = None) -> int:
        """Bytes on one GPU: all, or only those with that `turn`. 0 for a process on CPUs."""
        if not self.gpus:
            return 0
        there = [need for need in self.needs if not need.host]
        return sum(need.bytes for need in there if turn in (None, need.turn))

    @property
    def on_its_host(self) -> list[Need]:
        """The parts in the host's memory, largest first."""
        there = [need for need in self.needs if need.host or not self.gpus]
        return sorted(there, key=lambda need: -need.bytes)

    @property
    def on_host(self) -> int:
        """Bytes in the host's memory at the peak."""
        always = turn = after = 0
        for need in self.on_its_host:
            if need.turn:
                turn += need.bytes
            if need.after:
                after += need.bytes
            if not (need.turn or need.after):
                always += need.bytes
        return always + max(turn, after)


def share(count: int, parts: int) -> int:
    """`count` divided by `parts`, rounded up."""
    return -(-count // parts)


def size(count: float) -> str:
    """Bytes as people read them: `350 MB`, `15.2 GB`."""
    return f"{count / MB:.0f} MB" if count < 10_000 * MB else f"{count / GB:.1f} GB"
