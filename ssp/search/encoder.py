"""Text to vectors with an encoder's own files.

Owns the detection of how an encoder is used (prefixes, pooling, normalisation, lengths) and its forward pass.
Promises that a text has one vector, alone or in any batch (1e-5 in float32), in the caller's order, from any thread.
Refuses what the files do not say: a pooling that cannot be known, and code that comes with a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ssp.search.hits import Vectors

POOLINGS = ("mean", "cls", "pooler", "decoder", "last")
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class EncoderSpec:
    """How texts become vectors. `model`: name or folder as given; `family`: the rule that fired (see `detect`).

    `pooling`: mean over the text's tokens, cls (the first), last, pooler (the model's own output), decoder (the first
    position of an encoder-decoder's decoder). `normalise`: to length 1. `projection`: the folder's Dense modules follow
    the pooling. Lengths in tokens, special ones included: `max_length` of queries, `passage_length`.
    """

    model: str
    family: str = ""
    query_prefix: str = ""
    passage_prefix: str = ""
    pooling: str = "mean"
    normalise: bool = True
    max_length: int = 256
    passage_length: int = 256
    projection: bool = False


def detect(folder: Path, model: str, given: Mapping[str, object] | None = None) -> EncoderSpec:
    """How the encoder in `folder` is used; `given` fields are the caller's word and are not looked for."""
    raise NotImplementedError


class TextEncoder:
    """The encoder in `folder`, on one device. Safe in several threads."""

    dim: int

    def __init__(self, folder: Path, spec: EncoderSpec, dtype: str = "float32", device: str = "cpu") -> None:
        raise NotImplementedError

    def encode_queries(self, texts: Sequence[str]) -> tuple[Vectors, dict[str, float]]:
        """`[n, dim] float32`, and seconds by stage (tokenise, encode)."""
        raise NotImplementedError

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """`[n, dim] float32`."""
        raise NotImplementedError
