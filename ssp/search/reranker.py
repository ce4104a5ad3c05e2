"""Documents scored against their query by a model that reads both.

Owns the cross-encoder's forward pass. Promises that a pair has one score, alone or in any batch, and that a query meets
its own documents only. Refuses models whose output is not one score a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssp.episode import Document


class CrossEncoder:
    """The cross-encoder in `folder`, on one device. Safe in several threads."""

    def __init__(
        self, folder: Path, dtype: str = "float32", device: str = "cpu", batch: int = 32, max_length: int = 512
    ) -> None:
        raise NotImplementedError

    def scores(self, queries: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[list[float]]:
        """One score a document, higher is better, in the order of `documents`."""
        raise NotImplementedError
