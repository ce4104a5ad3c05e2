"""Log-probabilities of the tokens that a policy wrote, and what else is read off the same
distributions.

The one forward pass that training uses, padded or packed (`ssp.learning.packing`). Only positions
which predict a model token reach the vocabulary projection or the value head: every other position
has no logits, hence exactly zero gradient there (law 1); and at most `CELLS` logits of a model
exist at a time. Needs a causal model whose logits are its output embedding applied to its last
hidden state."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ssp.learning.packing import Line, lay_out, packs

CELLS = 2**26
"""Logits at a time (256 MB in float32); the chunks of a longer micro-batch are computed again in
the backward pass."""

Compare = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(policy [M, V] log-probs, reference [M, V], sampled [M], behaviour [M] or None) → KL [M]."""


def states(model: PreTrainedModel, ids: Tensor, mask: Tensor, line: Line | None = None) -> Tensor:
    """[M, H]: last hidden states at the positions that predict the tokens of `ids` [B, T] where
    `mask` is true. Where the model packs (`enable_packing`), rows lie side by side; `line`: how,
    where it is known already."""
    if packs(model):
        return model.base_model(line=lay_out(ids, mask) if line is None else line)
    # No padding mask: under causal attention padding on the right cannot reach a token before it.
    body = model.base_model(input_ids=ids[:, :-1], use_cache=False)
    return body.last_hidden_state[mask[:, 1:]]


def score(
    model: PreTrainedModel,
    ids: Tensor,
    mask: Tensor,
    temperature: float,
    compare: Compare | None = None,
    behaviour: Tensor | None = None,
    *,
    reference: Any = None,
    entropy_gradient: bool = False,
    cells: int = CELLS,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs, entropy (nats) and KL, each [M], of the tokens of `ids` (long [B, T], right-padded)
    where `mask` (bool [B, T]) is true, row by row. The entropy has a gradient only when asked for;
    the KL is empty without a reference.

    Logits are divided by `temperature`, as the sampling engine does; 0 (greedy) counts as 1.
    `compare`: the KL to the model `reference`, with the log-probs of the sampled tokens when drawn
    (`behaviour` [M], None: importance weights are 1)."""
    sampled = ids[:, 1:][mask[:, 1:]]
    line = lay_out(ids, mask) if packs(model) else None
    hidden = states(model, ids, mask, line)
    with torch.no_grad():
        other = hidden if compare is None else states(reference, ids, mask, line)
    divisor = temperature or 1.0

    def distribution(of: PreTrainedModel, hidden: Tensor) -> Tensor:
        logits = of.get_output_embeddings()(hidden).float()
        if divisor != 1.0:
            logits = logits / divisor
        return torch.log_softmax(logits, dim=-1)

    def chunk(hidden: Tensor, other: Tensor, at: slice) -> tuple[Tensor, Tensor, Tensor]:
        policy = distribution(model, hidden)
        logprobs = policy.gather(1, sampled[at][:, None]).squeeze(1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = -(policy.exp() * policy).sum(dim=-1)
        if compare is None:
            return logprobs, entropy, logprobs.new_zeros(0)
        with torch.no_grad():
            held_to = distribution(reference, other)
        drawn_with = None if behaviour is None else behaviour[at]
        return logprobs, entropy, compare(policy, held_to, sampled[at], drawn_with)

    vocabulary = len(model.get_output_embeddings().weight)
    size = max(1, cells // vocabulary)
    if len(sampled) <= size:
        return chunk(hidden, other, slice(None))
    parts = []
    for start in range(0, len(sampled), size):
        at = slice(start, start + size)
        inputs = hidden[at], other[at], at
        part = checkpoint(chunk, *inputs, use_reentrant=False, preserve_rng_state=False)
        parts.append(part)
    logprobs, entropy, kl = map(torch.cat, zip(*parts, strict=True))
    return logprobs, entropy, kl
