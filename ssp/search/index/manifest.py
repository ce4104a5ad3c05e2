"""What manifest.json of an index folder says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ssp.search.encoders.families import EncoderSpec
from ssp.search.shard import kind_of

DOCUMENTS = "documents.jsonl"
OFFSETS = "offsets.npy"
NAMES = "names.npy"
WORDS = tuple(f"bm25/{name}" for name in ("data.npy", "rows.npy", "indptr.npy", "tokens.txt"))
VECTORS, EMBEDDING = "dense/vectors.npy", "dense/embedding.npy"


def part_name(i: int) -> str:
    """File of part `i` of a dense index that faiss wrote."""
    return f"dense/part-{i:04d}.faiss"


@dataclass(frozen=True)
class DensePart:
    """The dense index of a folder: faiss's `factory` string, the vectors' width `dim`, the number
    of `parts` of consecutive rows, the encoder of the vectors."""

    factory: str
    dim: int
    parts: int
    encoder: EncoderSpec
    metric: str = "ip"


@dataclass(frozen=True)
class Manifest:
    """What a folder holds. `bm25`: k1 and b; `stemmer`: what its words were cut by. `skipped`:
    passages without text that were left out. `files`: name → bytes and sha256.
    `corpus_sha256`: of ids and contents in row order. `sha256`: of all the rest, so of every byte
    of the folder."""

    rows: int
    corpus_sha256: str
    bm25: tuple[float, float] | None = None
    dense: DensePart | None = None
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sha256: str = ""
    stemmer: str = ""
    skipped: int = 0

    @property
    def kind(self) -> str:
        """How it is searched: with all that is here."""
        return kind_of(self.bm25, self.dense)

    @property
    def needed(self) -> list[str]:
        """The files that a search reads."""
        return [DOCUMENTS, OFFSETS, *(WORDS if self.bm25 else ()), *self.vectors]

    @property
    def vectors(self) -> list[str]:
        """The files of the dense index."""
        if self.dense is None:
            return []
        if VECTORS in self.files:
            return [VECTORS]
        return [part_name(i) for i in range(self.dense.parts)]
