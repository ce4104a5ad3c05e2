"""What one rank computes at a time: its share of some rows, in micro-batches that fit into memory.

Every rank has as many of them as the others, so that the collectives of sharded models match: one with fewer repeats a
short row that counts for nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ssp.base.errors import OutOfMemory
from ssp.base.printable import say
from ssp.learning.backends.backend import Backend
from ssp.learning.backends.ranks import Ranks, deal
from ssp.learning.batch import lengths, micro_batches

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
