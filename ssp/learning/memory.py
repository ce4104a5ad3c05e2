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

SAYS = ("not enough memory", "can't allocate memory")
"""What torch says where the host's memory is short, as a plain RuntimeError."""


@contextmanager
def fits(config: LearnerConfig) -> Iterator[None]:
    """OutOfMemory, which says what to set, where memory is short in here."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is the latter
        plain = not isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if plain and not any(words in str(error) for words in SAYS):
            raise
        short = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise OutOfMemory(
            f"an update does not fit into memory with {config.token_budget} tokens a micro-batch:"
            f" {short}. Next: set learner.token_budget={max(1, config.token_budget // 2)}, or"
            " learner.checkpointing=true"
        ) from error


def pieces(
    row_lengths: Tensor, rows: Tensor, config: LearnerConfig, ranks: Ranks
) -> list[tuple[Tensor, bool]]:
    """This rank's micro-batches of `rows` (long [K], K > 0): row indices, and whether they
    count."""
    shares = [
        micro_batches(row_lengths, share, config.token_budget, config.packing)
        for share in deal(row_lengths, rows, ranks.world)
    ]
    mine = [(part, True) for part in shares[ranks.rank]]
    filler = rows[row_lengths[rows].argmin()][None]
    return mine + [(filler, False)] * (max(map(len, shares)) - len(mine))


class Job(NamedTuple):
    """A loss on `rows` (long [K]) that end at `ends` [N]: `loss(rows, figures)` of a micro-batch,
    which `figures` take note of. One that `learns` leaves its gradient."""

    ends: Tensor
    rows: Tensor
    loss: Callable[[Tensor, Figures], Tensor]
    figures: Figures
    learns: bool = True


def gradient(jobs: Sequence[Job], backend: Backend) -> list[float]:
    """The loss of each job over all ranks, its figures filled on; the gradient of the sum is left
    in `backend`."""
    backend.zero()
    work = [pieces(job.ends, job.rows, backend.config, backend.ranks) for job in jobs]
    left = sum(len(parts) for job, parts in zip(jobs, work, strict=True) if job.learns)
    losses = []
    with fits(backend.config):
        for job, parts in zip(jobs, work, strict=True):
            whole = 0.0
            for rows, counts in parts:
                with torch.set_grad_enabled(job.learns):
                    loss = job.loss(rows, job.figures if counts else Figures())
                whole += loss.item() if counts else 0.0
                if job.learns:
                    left -= 1
                    backend.backward(loss if counts else 0.0 * loss, last=left == 0)
            losses.append(whole)
    return backend.ranks.total(losses)


def measured(trained: Tensor, backend: Backend, ids: Tensor, *args: Any, **options: Any) -> Tensor:
    """float32 [N, T]: what `backend` gives for `ids` [N, T] where `trained` [N, T] is true (of
    several the first), 0 elsewhere; without gradient. Each rank computes its share."""
    rows, ends = torch.nonzero(trained.any(dim=1)).squeeze(1), lengths(trained)
    out = torch.zeros(trained.shape)
    with fits(backend.config), torch.no_grad():
        for part, counts in pieces(ends, rows, backend.config, backend.ranks) if len(rows) else []:
            length = int(ends[part].max())
            mask, here = trained[part, :length], torch.zeros(len(part), length)
            given = backend(ids[part, :length], mask, *args, **options)
            here[mask] = (given[0] if isinstance(given, tuple) else given).float().cpu()
            if counts:
                out[part, :length] = here
    backend.ranks.sum_([out])
    return out
