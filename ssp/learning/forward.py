"""Log-probabilities of the tokens that a policy wrote, and what else is read off the same
distributions.

The one forward pass that training uses, padded or packed (`ssp.learning.packing`). Only positions
which predict a model token reach the vocabulary projection or the value head: every other position
has no logits, hence exactly zero gradient there (law 1); and at most `CELLS` logits of a model
exist at a time. Needs a causal model whose logits are its output embedding applied to its last
hidden state."""

from collections.abc import Callable
from typing import Any, NamedTuple

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


class Scores(NamedTuple):
    """Of the M masked tokens, row by row: `logprobs` [M] with gradient, `entropy` [M] in nats, `kl`
    [M] with gradient.

    `entropy` has a gradient only when asked for; `kl` is empty without a reference."""

    logprobs: Tensor
    entropy: Tensor
    kl: Tensor


def states(model: PreTrainedModel, ids: Tensor, mask: Tensor, line: Line | None = None) -> Tensor:
    """[M, H]: last hidden states at the positions that predict the tokens of `ids` [B, T] where
    `mask` is true. Where the model packs (`enable_packing`), rows lie side by side; `line`: how,
    where it is known already."""
    if packs(model):
        return model.base_model(line=lay_out(ids, mask) if line is None else line)
    # No padding mask: under causal attention padding on the right cannot reach a token before it.
    return model.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state[mask[:, 1:]]


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
) -> Scores:
    """Score the tokens of `ids` (long [B, T], right-padded) where `mask` (bool [B, T]) is true.

    Logits are divided by `temperature`, as the sampling engine does; 0 (greedy) counts as 1.
    `compare`: the KL to the model `reference`, with the log-probs of the sampled tokens when drawn
    (`behaviour` [M], None: importance weights are 1)."""
    sampled = ids[:, 1:][mask[:, 1:]]
    line = lay_out(ids, mask) if packs(model) else None
    hidden = states(model, ids, mask, line)
    with torch.no_grad():
        other = hidden if compare is None else states(reference, ids, mask, line)

    def distribution(of: PreTrainedModel, hidden: Tensor) -> Tensor:
        logits = of.get_output_embeddings()(hidden).float()
        return torch.log_softmax(
            logits if temperature in (0.0, 1.0) else logits / temperature, dim=-1
        )

    def chunk(hidden: Tensor, other: Tensor, at: slice) -> tuple[Tensor, Tensor, Tensor]:
        policy = distribution(model, hidden)
        logprobs = policy.gather(1, sampled[at][:, None]).squeeze(1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = -(policy.exp() * policy).sum(dim=-1)
        if compare is None:
            return logprobs, entropy, logprobs.new_zeros(0)
        with torch.no_grad():
            held_to = distribution(reference, other)
        return (
            logprobs,
            entropy,
            compare(policy, held_to, sampled[at], None if behaviour is None else behaviour[at]),
        )

    size = max(1, cells // model.get_output_embeddings().weight.shape[0])
    if len(sampled) <= size:
        return Scores(*chunk(hidden, other, slice(None)))
    places = [slice(start, start + size) for start in range(0, len(sampled), size)]
    parts = [
        checkpoint(chunk, hidden[at], other[at], at, use_reentrant=False, preserve_rng_state=False)
        for at in places
    ]
    return Scores(*(torch.cat(column) for column in zip(*parts, strict=True)))
