"""What one rank computes at a time: its share of some rows, in micro-batches that fit into memory.

Every rank has as many of them as the others, so that the collectives of sharded models match: one
with fewer repeats a short row that counts for nothing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ssp.base.errors import OutOfMemory
from ssp.config.role import LearnerConfig
from ssp.learning.backends.backend import Backend
from ssp.learning.backends.ranks import Ranks, deal
from ssp.learning.batch import lengths, micro_batches
from ssp.learning.figures import Figures
from ssp.learning.prefixes import shared

SAYS = ("not enough memory", "can't allocate memory")
"""What torch says where the host's memory is short, as a plain RuntimeError."""


@contextmanager
def fits(config: LearnerConfig) -> Iterator[None]:
    """Raise OutOfMemory, which says what to set, where memory is short inside."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is the latter
        plain = not isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if plain and not any(words in str(error) for words in SAYS):
            raise
        says = str(error).strip() or type(error).__name__
        half = max(1, config.token_budget // 2)
        raise OutOfMemory(
            f"an update does not fit into memory with {config.token_budget} tokens a micro-batch:"
            f" {says.splitlines()[0]}. Next: set learner.token_budget={half}, or"
            " learner.checkpointing=true"
        ) from error


def pieces(
    ids: Tensor, row_lengths: Tensor, rows: Tensor, config: LearnerConfig, ranks: Ranks
) -> list[tuple[Tensor, bool]]:
    """This rank's micro-batches of `rows` (long [K], K > 0) of `ids` [N, T]: row indices, and
    whether they count."""
    if config.packing:
        alike = shared(ids[rows], row_lengths[rows])
        rows = rows[alike.rows]
        own = row_lengths[rows] - torch.tensor(alike.common)
        dealt = list(rows.tensor_split(_bounds(own, ranks.world)))
        shares = [micro_batches(row_lengths, share, config.token_budget, ids) for share in dealt]
    else:
        dealt = deal(row_lengths, rows, ranks.world)
        shares = [micro_batches(row_lengths, share, config.token_budget) for share in dealt]
    mine = [(part, True) for part in shares[ranks.rank]]
    shortest = rows[row_lengths[rows].argmin()][None]
    missing = max(map(len, shares)) - len(mine)
    return mine + [(shortest, False)] * missing


def _bounds(sizes: Tensor, world: int) -> list[int]:
    """Where to cut rows of `sizes` tokens into `world` runs of about as many tokens."""
    middles = sizes.cumsum(0) - sizes / 2
    owners = (middles * world / sizes.sum()).long()
    return [int((owners < rank).sum()) for rank in range(1, world)]


class Job(NamedTuple):
    """A loss on `rows` (long [K]) of `ids` [N, T], which end at `ends` [N]. `loss(rows, figures)` is
    that of a micro-batch, and adds to the figures. A job that `learns` leaves its gradient."""

    ids: Tensor
    ends: Tensor
    rows: Tensor
    loss: Callable[[Tensor, Figures], Tensor]
    figures: Figures
    learns: bool = True


def gradient(jobs: Sequence[Job], backend: Backend) -> list[float]:
    """Leave the gradient of the jobs' sum in `backend`; the loss of each over all ranks. The jobs'
    figures take note."""
    backend.zero()
    work = [pieces(job.ids, job.ends, job.rows, backend.config, backend.ranks) for job in jobs]
    left = 0
    for job, parts in zip(jobs, work, strict=True):
        left += len(parts) * job.learns
    losses = []
    with fits(backend.config):
        for job, parts in zip(jobs, work, strict=True):
            whole = 0.0
            for rows, counts in parts:
                with torch.set_grad_enabled(job.learns):
                    loss = job.loss(rows, job.figures if counts else Figures())
                if not counts:
                    loss = 0.0 * loss
                whole += loss.item()
                if job.learns:
                    left -= 1
                    backend.backward(loss, last=left == 0)
            losses.append(whole)
    return backend.ranks.total(losses)


def measured(trained: Tensor, backend: Backend, ids: Tensor, *args: Any, **options: Any) -> Tensor:
    """float32 [N, T]: what `backend` gives for `ids` [N, T] where `trained` [N, T] is true, 0
    elsewhere, without gradient. Of several values that it gives, the first. Each rank computes its
    share."""
    rows = torch.nonzero(trained.any(dim=1)).squeeze(1)
    ends = lengths(trained)
    out = torch.zeros(trained.shape)
    work = pieces(ids, ends, rows, backend.config, backend.ranks) if len(rows) else []
    with fits(backend.config), torch.no_grad():
        for part, counts in work:
            length = int(ends[part].max())
            mask = trained[part, :length]
            values = backend(ids[part, :length], mask, *args, **options)
            if isinstance(values, tuple):
                values = values[0]
            if counts:
                here = torch.zeros(mask.shape)
                here[mask] = values.float().cpu()
                out[part, :length] = here
    backend.ranks.sum_(out)
    return out
