"""What a verifier reads beside a proposal's own documents: noise, and how much of it fits into a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ssp.base.episode import Document, Episode, Outcome
from ssp.base.seeds import generator

T = TypeVar("T")


Blocks = list[list[Document]]


def pick_noise(episode: Episode, pool: Sequence[Document], k: int, seed: int) -> Blocks:
    """`k` documents of `pool` that the episode has not found (all of them when there are fewer), a
    block each."""
    return _draw(episode, [[document] for document in _others(episode, pool)], k, seed)


def pick_trajectories(episode: Episode, proposals: Sequence[Episode], k: int, seed: int) -> Blocks:
    """The whole material of `k` other proposals (SSP's noise), less what the episode has found; a
    block each. The draw does not depend on the order of `proposals`. Void ones are left out: what
    they found is a matter of luck."""
    others = [
        other for other in proposals if other is not episode and other.outcome is not Outcome.VOID
    ]
    others.sort(key=lambda other: (other.seed, other.id))
    blocks = [_others(episode, other.documents) for other in others]
    return _draw(episode, [block for block in blocks if block], k, seed)


def fit(
    episode: Episode,
    noise: Blocks,
    seed: int,
    together: bool,
    write: Callable[[list[Document]], T | None],
) -> T | None:
    """What `write` makes of the shuffled material; None when it takes not even one own document.
    `write` gives None for material that is too long: then noise goes first, a block at a time, and
    after it the oldest own documents. `together`: the own documents are one block too."""
    # What tools give under one id, as the windows of a document, are parts of it.
    parts: dict[tuple[str, str], Document] = {}
    # of a document that was shown cut and whole the whole one, in its first place
    for seen in episode.documents:
        key = (seen.id, seen.contents if episode.tools else "")
        parts[key] = max(parts.get(key, seen), seen, key=lambda shown: len(shown.contents))
    own, others = list(parts.values()), list(noise)
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
