"""Rows side by side: the forward pass of a causal model without padding and without work that
nobody reads.

It calls the modules of a Hugging Face model (so adapters, hooks of sharded parameters and autocast
work) but not its attention. No token sees another row's tokens; what rows begin with alike is
computed once; the last layer's MLP runs only where a state is asked for; the states are those of
the padded forward up to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from ssp.base import products
from ssp.base.errors import InputError, InvariantError
from ssp.base.shape import FAMILIES, NAMES
from ssp.config.role import LearnerConfig
from ssp.learning import passes
from ssp.learning.attention import Segments, attend
from ssp.learning.passes import narrow, rotate
from ssp.learning.prefixes import shared


@dataclass(frozen=True)
class Line:
    """Rows laid side by side, T tokens: `ids` and `positions` long [T], `segments`: who attends to
    whom; `asked` long [M]: the place of each state that is read, in the order of the mask."""

    ids: Tensor
    positions: Tensor
    segments: Segments
    asked: Tensor


def enable_packing(model: PreTrainedModel) -> None:
    """Make `ssp.learning.forward` lay this model's rows side by side. A body without its head (a
    critic's) will do.

    Its body then also computes a `Line`: `body(line=...)` → [M, H]. InputError for a model that it
    cannot do this for."""
    config = model.config.get_text_config()
    unfit = ("attention_dropout", "use_sliding_window")
    traits = {name: getattr(config, name, False) for name in unfit}
    if config.model_type not in FAMILIES or any(traits.values()):
        rule = (
            f"learner.packing needs a model of {NAMES} without attention dropout or sliding windows"
        )
        value = {"model_type": config.model_type, **traits}
        raise InputError(rule, value, "set learner.packing=false")
    body: Any = model.base_model
    body.forward = MethodType(_forward, body)
    passes.quicken(body)
    body.lays_lines = model.lays_lines = True  # type: ignore[assignment]


def packs(model: PreTrainedModel) -> bool:
    """Whether `enable_packing` was called on the model."""
    return bool(getattr(model, "lays_lines", False))


def prepare(model: PreTrainedModel, config: LearnerConfig) -> None:
    """Lay rows side by side, and keep of each layer only its input, where `config` says so. Same
    gradient."""
    products.train(model)
    if config.packing:
        enable_packing(model)
    if config.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for module in model.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = True  # which transformers asks; its parts stay without dropout


def lay_out(ids: Tensor, mask: Tensor) -> Line:
    """The line of rows `ids` [B, T] on which the tokens where `mask` [B, T] is true are predicted;
    a row ends before its last one. Rows that begin alike share that piece (`prefixes.shared`).
    InvariantError: nothing to predict."""
    device = ids.device
    ids = ids.cpu()
    mask = mask.cpu().clone()
    mask[:, :1] = False  # nothing predicts it
    predicting = mask.any(dim=1).nonzero().squeeze(1)
    if not len(predicting):
        raise InvariantError("a line of rows needs a token to predict")
    ends = mask.shape[1] - 1 - mask.flip(1).int().argmax(dim=1)
    alike = shared(ids[predicting], ends[predicting])
    rows = predicting[alike.rows].tolist()
    tree = _pieces(rows, alike.common, ends[rows].tolist())

    place = torch.zeros(mask.shape, dtype=torch.long)
    tokens = []
    positions = []
    filled = 0
    for piece in tree:
        first, *_ = piece.rows
        span = torch.arange(piece.begin, piece.end)
        tokens.append(ids[first, piece.begin : piece.end])
        positions.append(span)
        place[piece.rows, piece.begin : piece.end] = span + (filled - piece.begin)
        filled += len(span)
    parents = [piece.parent for piece in tree]
    segments = Segments.of(list(map(len, tokens)), parents, device)
    asked = place[:, :-1][mask[:, 1:]]
    line = torch.cat(tokens).to(device)
    return Line(line, torch.cat(positions).to(device), segments, asked.to(device))


class _Piece(NamedTuple):
    """Tokens [begin, end) of `rows`, which are the same in all of them; `parent`: the number of the
    piece that they continue, -1 for none."""

    rows: list[int]
    begin: int
    end: int
    parent: int


def _pieces(rows: Sequence[int], common: Sequence[int], ends: Sequence[int]) -> list[_Piece]:
    """The pieces of `rows`, which end at `ends` and have `common` with the one before."""
    pieces: list[_Piece] = []
    # What follows `begin` in the rows of places [low, high), which are the same before, continues
    # the piece `parent`.
    waiting = [(0, len(rows), 0, -1)]
    for low, high, begin, parent in waiting:
        families: list[list[int]] = []
        for place in range(low, high):
            if place == low or common[place] <= begin:
                families.append([place])
            else:
                families[-1].append(place)
        # Pieces of equal sizes next to each other: one call of attention computes them.
        families.sort(key=lambda family: (len(family) > 1, ends[family[0]], family[0]))
        for first, *others in families:
            end = min((common[place] for place in others), default=ends[first])
            above = len(pieces)
            if end > begin:
                alike = [rows[place] for place in (first, *others)]
                pieces.append(_Piece(alike, begin, end, parent))
            if others:
                waiting.append((first, others[-1] + 1, end, above))
    return pieces


def _forward(body: Any, *args: Any, line: Line | None = None, **options: Any) -> Any:
    """The body's forward, which also takes a `line`."""
    if line is None:
        return type(body).forward(body, *args, **options)
    x = body.embed_tokens(line.ids)
    cos, sin = body.rotary_emb(x, line.positions[None])
    half = cos.shape[-1] // 2
    cos = cos[0, :, None, :half]
    sin = sin[0, :, None, :half]
    for layer in body.layers:
        asked = line.asked if layer is body.layers[-1] else None
        inputs = (layer, x, cos, sin, line.segments, asked)
        # The same two flags as transformers' own layers look at.
        if layer.gradient_checkpointing and layer.training and torch.is_grad_enabled():
            x = checkpoint(_layer, *inputs, use_reentrant=False, preserve_rng_state=False)
        else:
            x = _layer(*inputs)
    return body.norm(x)


def _layer(
    layer: Any, x: Tensor, cos: Tensor, sin: Tensor, segments: Segments, asked: Tensor | None
) -> Tensor:
    """One decoder layer over x [T, H]; with `asked` only those places of its result, [M, H]."""
    attention = layer.self_attn
    normed = narrow(layer.input_layernorm(x))
    size = (len(x), -1, attention.head_dim)
    query = attention.q_proj(normed).view(size)
    key = attention.k_proj(normed).view(size)
    value = attention.v_proj(normed).view(size)
    if hasattr(attention, "q_norm"):
        query = attention.q_norm(query)
        key = attention.k_norm(key)
    query = rotate(query, cos, sin)
    key = rotate(key, cos, sin)
    mixed = attend(query, key, value, segments, attention.scaling).flatten(1)
    if asked is not None:
        mixed = mixed.index_select(0, asked)
        x = x.index_select(0, asked)
    x = x + attention.o_proj(mixed)
    return x + layer.mlp(narrow(layer.post_attention_layernorm(x)))
