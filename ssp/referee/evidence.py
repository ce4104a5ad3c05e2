"""What the verifier gets to read: the proposer's own documents, noise documents, and the question.

Owns the choice, order and size of that material. Promises that it depends on the run seed, the episode's seed, its
documents and the pool only (law 7), that noise never repeats an own document, and that the question always stays whole.
Refuses to know engines or verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ssp.episode import Document, Episode
from ssp.protocols import Protocol
from ssp.referee.rules import VERIFIER
from ssp.seeds import generator

Encode = Callable[[str], list[int]]


def own_documents(episode: Episode) -> list[Document]:
    """The proposer's documents, each id once, in the order found."""
    return list({document.id: document for document in episode.documents}.values())


def pick_noise(episode: Episode, pool: Sequence[Document], k: int, seed: int) -> list[Document]:
    """`k` documents of `pool` that the episode has not found (all of them when there are fewer)."""
    own = {document.id for document in episode.documents}
    others = list({document.id: document for document in pool if document.id not in own}.values())
    rng = generator(seed, "referee", "noise", episode.seed)
    chosen = rng.permutation(len(others))[:k]
    return [others[i] for i in chosen]


def prompt_ids(
    episode: Episode, noise: Sequence[Document], protocol: Protocol, encode: Encode, limit: int, seed: int
) -> list[int] | None:
    """Token ids of the verifier's prompt, at most `limit` of them; None when not one own document fits.

    Over the limit, noise goes first, then the oldest own documents. The order of what stays is shuffled.
    """
    own, others = own_documents(episode), list(noise)
    while own:
        shown = [*own, *others]
        rng = generator(seed, "referee", "order", episode.seed)
        bodies = protocol.bodies([shown[i] for i in rng.permutation(len(shown))])
        ids = encode(protocol.render(VERIFIER, {"documents": bodies, "question": episode.final or ""}))
        if len(ids) <= limit:
            return ids
        if others:
            others.pop()
        else:
            own.pop(0)
    return None
