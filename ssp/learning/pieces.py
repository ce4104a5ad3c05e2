"""What one rank computes at a time: its share of some rows, in micro-batches.

Promises that every rank has as many pieces as the others, so that the collectives of sharded models match: a rank with
fewer repeats a short row that counts for nothing. Refuses to know what is computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssp.learning.backends.backend import Backend
from ssp.learning.backends.ranks import Ranks, deal
from ssp.learning.batch import lengths, micro_batches
from ssp.learning.memory import Memory


def pieces(row_lengths: Tensor, rows: Tensor, memory: Memory, ranks: Ranks) -> list[tuple[Tensor, bool]]:
    """This rank's micro-batches of `rows` (long [K], K > 0): row indices, and whether they count."""
    shares = [
        micro_batches(row_lengths, share, memory.tokens, memory.packing) if len(share) else []
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
