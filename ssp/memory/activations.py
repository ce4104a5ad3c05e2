"""What a forward pass keeps for the backward pass.

Owns the formula. Promises what transformers' Llama family keeps under attention that stores no score matrix (measured in
tests against the tensors that autograd saves). Refuses to know optimizers.

Source: Korthikanti et al. 2022 (arXiv 2205.05198), equation 1: a layer keeps 34 s b h + 5 a s^2 b bytes in 16 bits, of
which flash attention drops the second term. Their layer is a GPT's; this one has no dropout, a gated MLP (four widths kept:
the gate, its activation, the other half, the product), grouped keys, and an RMSNorm that keeps a float32 copy of its
input.
"""

from __future__ import annotations

from ssp.memory.shapes import Shape

CELLS = 2**26
"""Logits at a time, as `ssp.learning.forward.CELLS` (a test compares them; this module imports no torch)."""
CELL_BYTES = 24
"""At the peak for each of these, in the backward pass of a chunk: logits (float32), their softmax, its exponential and
entropy product, and two gradients, 4 bytes each."""


def per_layer(shape: Shape, width: int) -> int:
    """Bytes a token of one layer, computed in numbers of `width` bytes."""
    heads = shape.query + shape.key
    norms = 2 * (_norm(shape.hidden, width) + shape.hidden * width) + 2 * 4
    if shape.qk_norm:
        norms += _norm(heads, width) + 4 * (shape.heads + shape.kv_heads)
    attention = width * 2 * heads + 4 * shape.heads
    return norms + attention + width * 4 * shape.mlp


def kept(shape: Shape, tokens: int, width: int, checkpointing: bool) -> int:
    """Bytes kept of `tokens` tokens until the backward pass; with checkpointing each layer's input, and one layer whole."""
    layer = per_layer(shape, width)
    if checkpointing:
        layers = shape.layers * shape.hidden * width + layer
    else:
        layers = shape.layers * layer
    return tokens * (layers + _norm(shape.hidden, width) + 4)


def passing(shape: Shape, tokens: int, width: int) -> int:
    """Bytes that come and go in one layer: gradients of its widest parts, or its results where nothing is kept."""
    return tokens * width * (2 * shape.mlp + 2 * shape.hidden)


def logits(shape: Shape, tokens: int) -> int:
    """Bytes of one chunk of the vocabulary projection in the backward pass."""
    return CELL_BYTES * min(CELLS, tokens * shape.vocab)


def _norm(numbers: int, width: int) -> int:
    """An RMSNorm over so many numbers: its input in float32, and the normalised one in the model's type."""
    return numbers * (4 + width)
