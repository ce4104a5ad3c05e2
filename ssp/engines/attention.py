"""Attention of new tokens over a cache of keys and values, of pieces of several: on a CPU one after
another, on a GPU side by side, by one kernel (`fused`)."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

STEP = 64
"""A cache's length is a multiple of it."""


@dataclass(frozen=True)
class Piece:
    """Ids to feed to one row, from position `start` on. `last`: a token is sampled behind it."""

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
    """What to add to scores, [n, length]: -inf where a query at `positions[i]` must not see
    key j."""
    device = positions.device
    later = torch.arange(length, device=device) > positions[:, None]
    mask = torch.zeros(len(positions), length, device=device)
    return mask.masked_fill_(later, -torch.inf)


def fused(query: Tensor, key: Tensor, value: Tensor, unseen: Tensor) -> Tensor:
    """Attention in one kernel, with scores and sums in float32 where the type is narrow.

    Query [b, kv_heads, n, head_dim], key and value [b, kv_heads, length, head_dim], `unseen`
    [n, length] or [b, 1, 1, length]; returns the query's shape. torch is slow with three axes in
    place of four. Heads that share keys stand one behind the other in a row: `enable_gqa` would
    copy the keys for each."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask=unseen, scale=1.0)


def stepped(length: int) -> int:
    """The next multiple of `STEP`."""
    return -(-length // STEP) * STEP


def even(length: int, dtype: torch.dtype, device: torch.device) -> int:
    """The number of keys to attend to, of which `length` count: `stepped` where another one costs
    more. A GPU's kernel would pad it in every layer; of a narrow type oneDNN makes a kernel for
    each size that it meets."""
    plain = dtype == torch.float32 and device.type == "cpu"
    return length if plain else stepped(length)


def _spans(pieces: Sequence[Piece]) -> list[slice]:
    """Where the tokens of each piece stand among those of all."""
    bounds = [0, *accumulate(len(piece.ids) for piece in pieces)]
    return [slice(start, end) for start, end in pairwise(bounds)]


def one_by_one(
    pieces: Sequence[Piece], rows: Tensor, positions: Tensor, groups: int, dtype: torch.dtype
) -> Attend:
    """For a CPU: nothing is computed that nobody reads. `rows`, `positions` int64 [n]: of each
    token; `groups`: heads that share keys; `dtype`: of the queries."""
    blocks = []
    for piece, span in zip(pieces, _spans(pieces), strict=True):
        length = even(piece.end, dtype, positions.device)
        unseen = unseen_by(positions[span], length).to(dtype)
        queries = slice(span.start * groups, span.stop * groups)
        blocks.append((piece.row, length, queries, unseen.repeat_interleave(groups, 0)))

    def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        n, kv, _, d = q.shape
        q = q.transpose(0, 1).reshape(kv, n * groups, d)
        mixed = torch.empty_like(q)
        for row, length, queries, mask in blocks:
            k = keys[row, :, :length]
            v = values[row, :, :length]
            scores = torch.baddbmm(mask, q[:, queries], k.transpose(1, 2))
            mixed[:, queries] = torch.bmm(torch.softmax(scores, -1), v)
        return mixed.view(kv, n, groups * d).transpose(0, 1).reshape(n, -1)

    return attend


def side_by_side(
    pieces: Sequence[Piece], rows: Tensor, positions: Tensor, groups: int, dtype: torch.dtype
) -> Attend:
    """For a GPU, on which a product for each piece takes longer to start than to compute: pieces
    whose sizes differ by less than twice attend together, each padded to the longest of them.
    Arguments as of `one_by_one`."""
    device = positions.device
    alike = defaultdict[int, list[tuple[int, int, int]]](list)
    for piece, span in zip(pieces, _spans(pieces), strict=True):
        size = len(piece.ids)
        alike[size.bit_length()].append((span.start, size, piece.end))
    blocks = []
    for like in alike.values():
        first, sizes, _ = torch.tensor(like, device=device).unbind(1)
        column = torch.arange(max(size for _, size, _ in like), device=device)
        # which of the n tokens stands at each place: behind its last one a piece repeats it
        tokens = first[:, None] + torch.minimum(column, sizes[:, None] - 1)
        length = stepped(max(end for _, _, end in like))
        unseen = unseen_by(positions[tokens].flatten(), length).to(dtype)
        mask = unseen.view(len(like), 1, -1, length).repeat(1, 1, groups, 1)
        blocks.append((tokens, rows[first], mask))

    def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        n, kv, _, d = q.shape
        mixed = torch.empty_like(q)
        for tokens, row, mask in blocks:
            length = mask.shape[-1]
            query = q[tokens].permute(0, 2, 3, 1, 4).reshape(len(row), kv, -1, d)
            k = keys[:, :, :length].index_select(0, row)
            v = values[:, :, :length].index_select(0, row)
            out = fused(query, k, v, mask).reshape(len(row), kv, groups, -1, d)
            mixed[tokens] = out.permute(0, 3, 1, 2, 4)
        return mixed.view(n, -1)

    return attend
