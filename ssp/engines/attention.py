"""Attention of new tokens over a cache of keys and values: of one token a row (`fused`); of pieces
of several, on a CPU one after another, on a GPU side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

STEP = 64
"""A cache's length is a multiple of it."""


@dataclass(frozen=True)
class Piece:
    """Ids to feed to one row, from position `start` on. `last`: what follows its last token is to
    be sampled."""

    row: int
    start: int
    ids: list[int]
    last: bool = True

    @property
    def end(self) -> int:
        """The row's length afterwards."""
        return self.start + len(self.ids)


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries [n, kv_heads, heads / kv_heads, head_dim], a layer's keys, its values) → n * heads *
head_dim values."""


def unseen_by(positions: Tensor, length: int) -> Tensor:
    """What to add to scores: -inf where a query at `positions[i]` must not see key j: [n,
    length]."""
    place = positions.device
    mask = torch.zeros(len(positions), length, device=place)
    return mask.masked_fill_(torch.arange(length, device=place) > positions[:, None], -torch.inf)


def fused(query: Tensor, key: Tensor, value: Tensor, unseen: Tensor) -> Tensor:
    """Attention in a narrow type, with scores and sums in float32 (four axes: torch is slow with
    three). Query [b, kv_heads, n, head_dim], key and value [b, kv_heads, length, head_dim],
    `unseen` [n, length] or [b, 1, 1, length] → as the query. Heads that share keys stand in one row
    after the other: `enable_gqa` would copy the keys for each."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask=unseen, scale=1.0)


def even(length: int) -> int:
    """A length that a GPU's kernel takes as it is: another one it pads in every layer."""
    return -(-length // STEP) * STEP


def starts(pieces: Sequence[Piece]) -> list[int]:
    """Which of their tokens each begins with, and how many there are."""
    return [0, *accumulate(len(piece.ids) for piece in pieces)]


def one_by_one(
    pieces: Sequence[Piece], rows: Tensor, positions: Tensor, groups: int, dtype: torch.dtype
) -> Attend:
    """For a CPU: nothing is computed that nobody reads. `rows`, `positions` int64 [n], a token
    each; `groups`: heads that share keys; `dtype`: of the queries."""
    begins = starts(pieces)
    own = zip(pieces, begins, begins[1:], strict=False)
    masks = [
        unseen_by(positions[a:b], piece.end).to(dtype).repeat_interleave(groups, 0)
        for piece, a, b in own
    ]

    def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        n, kv, _, d = q.shape
        q = q.transpose(0, 1).reshape(kv, n * groups, d)
        mixed = torch.empty_like(q)
        for piece, mask, start, end in zip(pieces, masks, begins, begins[1:], strict=False):
            k, v = keys[piece.row, :, : piece.end], values[piece.row, :, : piece.end]
            here = slice(start * groups, end * groups)
            if dtype != torch.float32:
                mixed[:, here] = fused(q[None, :, here], k[None], v[None], mask)[0]
                continue
            scores = torch.baddbmm(mask, q[:, here], k.transpose(1, 2))
            mixed[:, here] = torch.bmm(torch.softmax(scores, -1), v)
        return mixed.view(kv, n, groups * d).transpose(0, 1).reshape(n, -1)

    return attend


def side_by_side(
    pieces: Sequence[Piece], rows: Tensor, positions: Tensor, groups: int, dtype: torch.dtype
) -> Attend:
    """For a GPU, on which a product for each piece takes longer to start than to compute: pieces
    whose sizes differ by less than twice attend together, each padded to the longest of them."""
    device, begins = positions.device, starts(pieces)
    alike = dict[int, list[int]]()
    for at, piece in enumerate(pieces):
        alike.setdefault(len(piece.ids).bit_length(), []).append(at)
    blocks = []
    for numbers in alike.values():
        sizes = torch.tensor([[begins[at], len(pieces[at].ids)] for at in numbers], device=device)
        column = torch.arange(max(len(pieces[at].ids) for at in numbers), device=device)
        # which of the n tokens stands at each place: behind its last one a piece repeats it
        tokens = sizes[:, :1] + torch.minimum(column, sizes[:, 1:] - 1)
        unseen = unseen_by(positions[tokens].flatten(), even(max(pieces[at].end for at in numbers)))
        mask = unseen.view(len(numbers), 1, -1, unseen.shape[-1]).to(dtype).repeat(1, 1, groups, 1)
        blocks.append((tokens, rows[sizes[:, 0]], mask))

    def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        n, kv, _, d = q.shape
        mixed = torch.empty_like(q)
        for tokens, row, mask in blocks:
            query = q[tokens].permute(0, 2, 3, 1, 4).reshape(len(row), kv, -1, d)
            k, v = (x[:, :, : mask.shape[-1]].index_select(0, row) for x in (keys, values))
            out = fused(query, k, v, mask).reshape(len(row), kv, groups, -1, d)
            mixed[tokens] = out.permute(0, 3, 1, 2, 4)
        return mixed.view(n, -1)

    return attend
