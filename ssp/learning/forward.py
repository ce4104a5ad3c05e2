"""Log-probabilities of the tokens that a policy wrote, and nothing else.

Owns the one forward pass that training uses. Promises that only positions which predict a model token reach the
vocabulary projection: every other position has no logits, hence exactly zero gradient there (law 1), and costs no
softmax. Refuses to know losses. Needs a causal model whose logits are its output embedding applied to its last hidden
state.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel


@dataclass(frozen=True)
class Scores:
    """Of the M masked tokens, row by row: `logprobs` [M] with gradient, `entropy` [M] in nats without."""

    logprobs: Tensor
    entropy: Tensor


def score(model: PreTrainedModel, ids: Tensor, mask: Tensor, temperature: float) -> Scores:
    """Score the tokens of `ids` (long [B, T], right-padded) where `mask` (bool [B, T]) is true.

    Logits are divided by `temperature`, as the sampling engine does; 0 (greedy) counts as 1, as there.
    No padding mask: under causal attention padding on the right cannot reach a token before it.
    """
    hidden = model.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    predicts = mask[:, 1:]
    logits = model.get_output_embeddings()(hidden[predicts]).float()
    if temperature not in (0.0, 1.0):
        logits = logits / temperature
    log_softmax = torch.log_softmax(logits, dim=-1)
    logprobs = log_softmax.gather(1, ids[:, 1:][predicts][:, None]).squeeze(1)
    with torch.no_grad():
        entropy = -(log_softmax.exp() * log_softmax).sum(dim=-1)
    return Scores(logprobs, entropy)
