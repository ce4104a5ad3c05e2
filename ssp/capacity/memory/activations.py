"""What a forward pass keeps for the backward pass.

What transformers' Llama family keeps under attention that stores no score matrix (measured in tests against the tensors
that autograd saves).

Source: Korthikanti et al. 2022 (arXiv 2205.05198), equation 1: a layer keeps 34 s b h + 5 a s^2 b bytes in 16 bits, of
which flash attention drops the second term. Their layer is a GPT's; this one has no dropout, a gated MLP (four widths kept:
the gate, its activation, the other half, the product), grouped keys, and an RMSNorm that keeps a float32 copy of its
input.
"""

from __future__ import annotations

from dataclasses import dataclass

from ssp.base.shape import Shape

CELLS = 2**26
"""Logits at a time, as `ssp.learning.forward.CELLS` (a test compares them; this module imports no torch)."""
CELL_BYTES = 24
"""At the peak for each of these, in the backward pass of a chunk: logits (float32), their softmax, its exponential and
entropy product, and two gradients, 4 bytes each."""


@dataclass(frozen=True)
class Way:
    """How a learner computes: bytes of a number between layers (`stream`) and in matrix products (smaller under
    autocast); `copies`: attention works on float32 copies and its result is copied (packed rows on a CPU)."""

    stream: int
    product: int
    copies: bool = False


def per_layer(shape: Shape, way: Way) -> int:
    """Bytes a token of one layer."""
    heads, product = shape.query + shape.key, way.product
    # Under autocast each of the five products behind a norm has a copy of its own of the norm's result.
    inputs = (5 if product < way.stream else 2) * shape.hidden * product
    norms = 2 * _norm(shape.hidden, way.stream) + inputs
    if shape.qk_norm:
        norms += heads * (4 + product) + 4 * (shape.heads + shape.kv_heads)
    attention = (4 if way.copies else product) * 2 * heads + 4 * shape.heads + way.copies * product * shape.query
    return norms + attention + product * 4 * shape.mlp


def kept(shape: Shape, tokens: int, way: Way, checkpointing: bool) -> int:
    """Bytes kept of `tokens` tokens until the backward pass; with checkpointing each layer's input, and one layer whole."""
    layer = per_layer(shape, way)
    layers = shape.layers * shape.hidden * way.stream + layer if checkpointing else shape.layers * layer
    around = 2 * shape.head_dim * way.stream + 16  # rotary angles, ids and places
    return tokens * (layers + around + _norm(shape.hidden, way.stream))


def passing(shape: Shape, tokens: int, width: int) -> int:
    """Bytes that come and go in one layer: gradients of its widest parts, or its results where nothing is kept."""
    return tokens * width * (2 * shape.mlp + 2 * shape.hidden)


def logits(shape: Shape, tokens: int) -> int:
    """Bytes of one chunk of the vocabulary projection in the backward pass."""
    return CELL_BYTES * min(CELLS, tokens * shape.vocab)


def _norm(numbers: int, width: int) -> int:
    """An RMSNorm over so many numbers: its input in float32, the normalised one in the model's type, and its scale."""
    return numbers * (4 + width) + 4
