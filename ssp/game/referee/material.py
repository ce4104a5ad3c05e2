"""What a verifier reads beside a proposal's own documents: noise, as much as fits into a prompt."""

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
    """The whole material of `k` other proposals (SSP's noise) without what the episode has found; a
    block each. The draw does not depend on the order of `proposals`. Void ones are left out,
    because chance decides what they found."""
    sound = [other for other in proposals if other.outcome is not Outcome.VOID]
    blocks = []
    for other in sorted(sound, key=lambda other: (other.seed, other.id)):
        block = _others(episode, other.documents)
        if block and other is not episode:
            blocks.append(block)
    return _draw(episode, blocks, k, seed)


def fit(
    episode: Episode,
    noise: Blocks,
    seed: int,
    together: bool,
    write: Callable[[list[Document]], T | None],
) -> T | None:
    """What `write` makes of the shuffled material; None when not even one own document fits.
    `write` gives None for material that is too long: then noise is dropped, a block at a time, and
    after it the oldest own documents. `together`: the own documents are one block too."""
    parts: dict[tuple[str, str], Document] = {}
    for seen in episode.documents:
        # Tools give several parts of a document under one id, such as its windows. A search may
        # show it cut and whole: then the whole one counts, in the first one's place.
        key = (seen.id, seen.contents if episode.tools else "")
        before = parts.get(key, seen)
        parts[key] = max(before, seen, key=lambda shown: len(shown.contents))
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
