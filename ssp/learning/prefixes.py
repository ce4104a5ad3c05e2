"""Rows that begin alike: in which order they share most, and how many tokens.

Attempts at one question share their prompt, and those that search for the same share what it found.
A packed forward pass computes a shared beginning once (`ssp.learning.packing`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

LEAST = 4
"""A shorter beginning is not worth a piece of its own."""


@dataclass(frozen=True)
class Shared:
    """Rows in an order in which those that begin alike stand together. `rows`: their numbers;
    `common`: how many first tokens each shares with the one before it, 0 where these are fewer than
    `LEAST`. With one further up it shares the least `common` on the way."""

    rows: Sequence[int]
    common: Sequence[int]


def shared(ids: Tensor, ends: Tensor) -> Shared:
    """The rows of `ids` (long [N, T]), each up to its end (`ends` long [N]).

    Clusters of rows that begin alike stand where their first row does; the rows of a cluster go by
    their tokens."""
    texts = []
    for row, end in zip(ids.cpu(), ends.tolist(), strict=True):
        texts.append(row[:end].numpy())
    # Rows with a beginning in common have the same first bytes, so they are neighbours then.
    by_text = sorted(range(len(texts)), key=lambda row: (texts[row].tobytes(), row))
    clusters: list[tuple[list[int], list[int]]] = []
    before: int | None = None
    for row in by_text:
        count = 0 if before is None else _common(texts[before], texts[row])
        if count < LEAST:
            count = 0
            clusters.append(([], []))
        rows, common = clusters[-1]
        rows.append(row)
        common.append(count)
        before = row
    clusters.sort(key=lambda cluster: min(cluster[0]))
    return Shared(
        [row for rows, _ in clusters for row in rows],
        [count for _, common in clusters for count in common],
    )


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """How many first tokens are the same."""
    size = min(len(one), len(other))
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if len(different) else size
