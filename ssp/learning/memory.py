"""What one rank computes at a time: its share of some rows, in micro-batches that fit into memory.

Every rank has as many of them as the others, so that the collectives of sharded models match: one with fewer repeats a
short row that counts for nothing.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ssp.base.errors import OutOfMemory
from ssp.base.printable import say
from ssp.learning.backends.backend import Backend
from ssp.learning.backends.ranks import Ranks, deal
from ssp.learning.batch import lengths, micro_batches
from ssp.learning.figures import Figures

T = TypeVar("T")

SAYS = ("not enough memory", "can't allocate memory")
"""What torch says where the host's memory is short, as a plain RuntimeError."""


class Memory:
    """`tokens` in one micro-batch of a rank, padding included; with `packing` there is none."""

    def __init__(self, tokens: int, packing: bool = False) -> None:
        self.tokens, self.halved, self.packing = tokens, False, packing

    def within(self, attempt: Callable[[], T], clear: Callable[[], None], local: bool = True) -> T:
        """What `attempt` gives; once again after `clear`, with half the tokens, where memory is short.

        `local`: the attempt needs no other rank; else they wait inside of it, and nothing can begin again. OutOfMemory.
        """
        try:
            return attempt()
        except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is the latter
            plain = not isinstance(error, (torch.OutOfMemoryError, MemoryError))
            if plain and not any(words in str(error) for words in SAYS):
                raise
            short = (str(error).strip() or type(error).__name__).splitlines()[0]
        half = max(1, self.tokens // 2)
        if self.halved or not local:
            raise OutOfMemory(
                f"an update does not fit into memory with {self.tokens} tokens a micro-batch: {short}. Next: set "
                f"learner.token_budget={half}, or learner.checkpointing=true"
            )
        self.tokens, self.halved = half, True
        clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        say(f"out of memory ({short}): learner.token_budget is {half} from now on", file=sys.stderr)
        return self.within(attempt, clear, local)


def pieces(row_lengths: Tensor, rows: Tensor, memory: Memory, ranks: Ranks) -> list[tuple[Tensor, bool]]:
    """This rank's micro-batches of `rows` (long [K], K > 0): row indices, and whether they count."""
    shares = [
        micro_batches(row_lengths, share, memory.tokens, memory.packing)
        for share in deal(row_lengths, rows, ranks.world)
    ]
    mine = [(part, True) for part in shares[ranks.rank]]
    filler = rows[row_lengths[rows].argmin()][None]
    return mine + [(filler, False)] * (max(map(len, shares)) - len(mine))


class Job(NamedTuple):
    """A loss on `rows` (long [K]) that end at `ends` [N]: `loss(rows, figures)` of a micro-batch, which `figures` take
    note of. One that `learns` leaves its gradient."""

    ends: Tensor
    rows: Tensor
    loss: Callable[[Tensor, Figures], Tensor]
    figures: Figures
    learns: bool = True


def gradient(jobs: Sequence[Job], memory: Memory, backend: Backend) -> list[tuple[float, Figures]]:
    """The loss of each job over all ranks and its figures, filled on; the gradient of the sum is left in `backend`."""

    def attempt() -> list[tuple[float, Figures]]:
        backend.zero()
        work = [pieces(job.ends, job.rows, memory, backend.ranks) for job in jobs]
        left = sum(len(parts) for job, parts in zip(jobs, work, strict=True) if job.learns)
        out = []
        for job, parts in zip(jobs, work, strict=True):
            whole, figures = 0.0, copy.deepcopy(job.figures)
            for rows, counts in parts:
                with torch.set_grad_enabled(job.learns):
                    loss = job.loss(rows, figures if counts else Figures())
                whole += loss.item() if counts else 0.0
                if job.learns:
                    left -= 1
                    backend.backward(loss if counts else 0.0 * loss, last=left == 0)
            out.append((whole, figures))
        return out

    found = memory.within(attempt, backend.zero, backend.local)
    losses = backend.ranks.total([loss for loss, _ in found])
    return [(loss, figures) for loss, (_, figures) in zip(losses, found, strict=True)]


def measured(trained: Tensor, memory: Memory, backend: Backend, ids: Tensor, *args: Any, **options: Any) -> Tensor:
    """float32 [N, T]: what `backend` gives for `ids` [N, T] where `trained` [N, T] is true (of several the first), 0
    elsewhere; without gradient. Each rank computes its share."""
    rows, ends = torch.nonzero(trained.any(dim=1)).squeeze(1), lengths(trained)

    def attempt() -> Tensor:
        out = torch.zeros(trained.shape)
        for part, counts in pieces(ends, rows, memory, backend.ranks) if len(rows) else []:
            length = int(ends[part].max())
            mask, here = trained[part, :length], torch.zeros(len(part), length)
            with torch.no_grad():
                given = backend(ids[part, :length], mask, *args, **options)
            here[mask] = (given[0] if isinstance(given, tuple) else given).float().cpu()
            if counts:
                out[part, :length] = here
        return out

    found = memory.within(attempt, lambda: None, backend.local)
    backend.ranks.sum_([found])
    return found
