"""Rows side by side: the forward pass of a causal model without padding and without work that nobody reads.

Owns how rows are laid out in one line of tokens, and the forward over that line, which calls the modules of a Hugging
Face model (so adapters, hooks of sharded parameters and autocast work) but not its attention. Promises that no token
sees another row's tokens, that rows which begin with the same prompt compute it once, that the last layer's MLP runs
only where a state is asked for, and the states of the padded forward up to rounding.
Refuses models whose layers it does not know (`FAMILIES`), and attention dropout.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ssp.base.errors import InputError, InvariantError
from ssp.learning.attention import Segments, attend, rotate

FAMILIES = ("qwen2", "qwen3", "llama")
"""Values of `model_type` whose layers the packed forward computes."""


@dataclass(frozen=True)
class Line:
    """Rows laid side by side, T tokens: `ids` and `positions` long [T], `segments`: who attends to whom; `asked`
    long [M]: the place of each state that is read, in the order of the mask."""

    ids: Tensor
    positions: Tensor
    segments: Segments
    asked: Tensor


def enable_packing(model: PreTrainedModel) -> None:
    """Make `ssp.learning.forward` lay this model's rows side by side. A body without its head (a critic's) will do.

    Its body then also computes a `Line`: `body(line=...)` → [M, H]. InputError for a model that it cannot do this for.
    """
    config = model.config.get_text_config()
    found = {"model_type": config.model_type, "attention_dropout": getattr(config, "attention_dropout", 0.0)}
    if config.model_type not in FAMILIES or found["attention_dropout"]:
        rule = f"learner.packing needs a model of {', '.join(FAMILIES)} without attention dropout"
        raise InputError(rule, found, "set learner.packing=false")
    body: Any = model.base_model
    body.forward = MethodType(_forward, body)
    body.lays_lines = model.lays_lines = True  # type: ignore[assignment]


def packs(model: PreTrainedModel) -> bool:
    """Whether `enable_packing` was called on the model."""
    return bool(getattr(model, "lays_lines", False))


def lay_out(ids: Tensor, mask: Tensor) -> Line:
    """The line of rows `ids` [B, T] on which the tokens where `mask` [B, T] is true are predicted.

    A row ends before its last masked token, which is predicted and never read. Rows that agree up to their first
    masked token share that prompt. InvariantError: nothing to predict.
    """
    device, ids, mask = ids.device, ids.cpu(), mask.cpu().clone()
    mask[:, :1] = False  # nothing predicts it
    first = mask.int().argmax(dim=1).tolist()
    last = (mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)).tolist()
    families: dict[bytes, list[int]] = {}
    for row in mask.any(dim=1).nonzero().squeeze(1).tolist():
        families.setdefault(ids[row, : first[row]].numpy().tobytes(), []).append(row)
    if not families:
        raise InvariantError("a line of rows needs a token to predict")
    pieces, parents, place, filled = [], [], torch.zeros(mask.shape, dtype=torch.long), 0

    def add(row: int, begin: int, end: int, parent: int) -> None:
        nonlocal filled
        pieces.append((row, begin, end))
        parents.append(parent)
        place[row, begin:end] = torch.arange(filled, filled + end - begin)
        filled += end - begin

    for rows in sorted(families.values(), key=lambda rows: (len(rows) > 1, last[rows[0]], rows[0])):
        rows, begin, parent = sorted(rows, key=lambda row: (last[row], row)), 0, -1
        if len(rows) > 1:
            begin, parent = first[rows[0]], len(pieces)
            add(rows[0], 0, begin, -1)
        for row in rows:
            place[row, :begin] = place[rows[0], :begin]
            add(row, begin, last[row], parent)
    return Line(
        torch.cat([ids[row, begin:end] for row, begin, end in pieces]).to(device),
        torch.cat([torch.arange(begin, end) for _, begin, end in pieces]).to(device),
        Segments.of([end - begin for _, begin, end in pieces], parents, device),
        place[:, :-1][mask[:, 1:]].to(device),
    )


def _forward(body: Any, *args: Any, line: Line | None = None, **options: Any) -> Any:
    """The body's forward, which also takes a `line`."""
    if line is None:
        return type(body).forward(body, *args, **options)
    x = body.embed_tokens(line.ids)
    cos, sin = (wide[0, :, None, : wide.shape[-1] // 2] for wide in body.rotary_emb(x, line.positions[None]))
    for layer in body.layers:
        given = (layer, x, cos, sin, line.segments, line.asked if layer is body.layers[-1] else None)
        # The same two flags as transformers' own layers look at.
        if layer.gradient_checkpointing and layer.training and torch.is_grad_enabled():
            x = checkpoint(_layer, *given, use_reentrant=False, preserve_rng_state=False)
        else:
            x = _layer(*given)
    return body.norm(x)


def _layer(layer: Any, x: Tensor, cos: Tensor, sin: Tensor, segments: Segments, asked: Tensor | None) -> Tensor:
    """One decoder layer over x [T, H]; with `asked` only those places of its result, [M, H]."""
    attention, normed = layer.self_attn, layer.input_layernorm(x)
    size = (len(x), -1, attention.head_dim)
    query, key, value = (getattr(attention, f"{name}_proj")(normed).view(size) for name in "qkv")
    if hasattr(attention, "q_norm"):
        query, key = attention.q_norm(query), attention.k_norm(key)
    query, key = rotate(query, cos, sin), rotate(key, cos, sin)
    window = getattr(attention, "sliding_window", None)
    mixed = attend(query, key, value, segments, attention.scaling, window).flatten(1)
    if asked is not None:
        mixed, x = mixed.index_select(0, asked), x.index_select(0, asked)
    x = x + attention.o_proj(mixed)
    out: Tensor = x + layer.mlp(layer.post_attention_layernorm(x))
    return out
