"""What one rank computes at a time: its share of some rows, in micro-batches.

Promises that every rank has as many pieces as the others, so that the collectives of sharded models match: a rank with
fewer repeats a short row that counts for nothing. Refuses to know what is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ssp.learning.backends.ranks import Ranks, deal
from ssp.learning.batch import lengths, micro_batches
from ssp.learning.memory import Memory


@dataclass(frozen=True)
class Piece:
    """One micro-batch: `rows` long [B] of a batch, and whether they count."""

    rows: Tensor
    counts: bool = True


def pieces(row_lengths: Tensor, rows: Tensor, memory: Memory, ranks: Ranks) -> list[Piece]:
    """This rank's micro-batches of `rows` (long [K], K > 0)."""
    shares = [
        micro_batches(row_lengths, share, memory.tokens, memory.packing) if len(share) else []
        for share in deal(row_lengths, rows, ranks.world)
    ]
    mine = [Piece(part) for part in shares[ranks.rank]]
    filler = rows[row_lengths[rows].argmin()][None]
    return mine + [Piece(filler, counts=False)] * (max(map(len, shares)) - len(mine))


def measured(
    trained: Tensor, memory: Memory, ranks: Ranks, compute: Callable[[Tensor, Tensor], Tensor], local: bool
) -> Tensor:
    """float32 [N, T]: `compute(rows, mask)` [M] for the tokens that are true in `trained` [N, T], 0 elsewhere; without
    gradient. `mask` [len(rows), L] is the rows' part of `trained`; each rank computes its share."""
    rows, ends = torch.nonzero(trained.any(dim=1)).squeeze(1), lengths(trained)

    def attempt() -> Tensor:
        out = torch.zeros(trained.shape)
        for piece in pieces(ends, rows, memory, ranks) if len(rows) else []:
            mask = trained[piece.rows, : int(ends[piece.rows].max())]
            here = torch.zeros(mask.shape)
            with torch.no_grad():
                here[mask] = compute(piece.rows, mask).float().cpu()
            if piece.counts:
                out[piece.rows, : mask.shape[1]] = here
        return out

    found = memory.within(attempt, lambda: None, local)
    ranks.sum_([found])
    return found
