"""What the verifier gets to read: the proposer's own documents among noise, and the question.

Owns the choice, order and size of that material. Promises that it depends on the run seed, the episode's seed, its
documents and the pool only (law 7), that noise never repeats an own document, and that the question always stays whole.
Refuses to know engines, prompts or verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ssp.base.episode import Document, Episode, Outcome
from ssp.base.seeds import generator

T = TypeVar("T")
Blocks = list[list[Document]]


def own_documents(episode: Episode) -> list[Document]:
    """The proposer's documents, each id once, in the order found."""
    return list({document.id: document for document in episode.documents}.values())


def pick_noise(episode: Episode, pool: Sequence[Document], k: int, seed: int) -> Blocks:
    """`k` documents of `pool` that the episode has not found (all of them when there are fewer), a block each."""
    return _draw(episode, [[document] for document in _others(episode, pool)], k, seed)


def pick_trajectories(episode: Episode, proposals: Sequence[Episode], k: int, seed: int) -> Blocks:
    """The whole material of `k` other proposals (SSP's noise), less what the episode has found; a block each.

    The draw does not depend on the order of `proposals`. Void ones are left out: what they found is a matter of luck.
    """
    others = [other for other in proposals if other is not episode and other.outcome is not Outcome.VOID]
    others.sort(key=lambda other: (other.seed, other.id))
    blocks = [_others(episode, other.documents) for other in others]
    return _draw(episode, [block for block in blocks if block], k, seed)


def fit(
    episode: Episode, noise: Blocks, seed: int, together: bool, write: Callable[[list[Document]], T | None]
) -> T | None:
    """What `write` makes of the shuffled material; None when it takes not even one own document.

    `write` gives None for material that is too long: then noise goes first, a block at a time, and after it the oldest
    own documents. `together`: the own documents are one block too.
    """
    own, others = own_documents(episode), list(noise)
    while own:
        blocks = [own] if together else [[document] for document in own]
        blocks += others
        order = generator(seed, "referee", "order", episode.seed).permutation(len(blocks))
        written = write([document for i in order for document in blocks[i]])
        if written is not None:
            return written
        if others:
            others.pop()
        else:
            own.pop(0)
    return None


def _others(episode: Episode, pool: Sequence[Document]) -> list[Document]:
    own = {document.id for document in episode.documents}
    return list({document.id: document for document in pool if document.id not in own}.values())


def _draw(episode: Episode, blocks: Blocks, k: int, seed: int) -> Blocks:
    chosen = generator(seed, "referee", "noise", episode.seed).permutation(len(blocks))[:k]
    return [blocks[i] for i in chosen]
