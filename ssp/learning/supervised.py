"""Supervised fine-tuning of a small model in this process: what the cold start and the practice of a tiny policy share.
(A warm start learns through the role's learner.)"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import Qwen2Config, Qwen2ForCausalLM

from ssp.base.seeds import derive

CLIP = 1.0
"""Largest norm of a gradient."""


def small_model(words: int, end: int, spread: float, seed: Sequence[Any], **sizes: Any) -> Qwen2ForCausalLM:
    """A float32 `Qwen2ForCausalLM` with tied embeddings of so many `words`, `end` the id of the end of a turn. `sizes`:
    of `Qwen2Config`, and `head_dim`, which it does not declare though the model reads it. Matrices are normal with
    deviation `spread`, drawn from `seed`; biases are 0 and the scales of norms 1."""
    head_dim = sizes.pop("head_dim", None)
    config = Qwen2Config(
        vocab_size=words, tie_word_embeddings=True, bos_token_id=None, eos_token_id=end, dtype="float32", **sizes
    )
    if head_dim:
        config.head_dim = head_dim
    model = Qwen2ForCausalLM(config).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            draws = torch.Generator().manual_seed(derive(*seed, name))
            if weight.ndim == 2:
                weight.normal_(0.0, spread, generator=draws)
            else:
                weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
    return model


def nll(model: Qwen2ForCausalLM, ids: Tensor, mask: Tensor, past: Any = None) -> Tensor:
    """Mean -log pi, nats, of the tokens of `ids` [N, T] where `mask` [N, T] is true. `past`: a cache of what comes
    before.

    Padding is on the right, so the causal mask is enough.
    """
    hidden = model.model(input_ids=ids, past_key_values=past, use_cache=past is not None).last_hidden_state
    return cross_entropy(model.lm_head(hidden[:, :-1][mask[:, 1:]]), ids[:, 1:][mask[:, 1:]])


def fit(
    model: Qwen2ForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    work: Iterable[Iterable[Tensor]],
    rate: Callable[[float, int], float],
) -> Iterator[float]:
    """One optimizer step on the sum of the losses in each entry of `work`; gives that sum, in nats, after each.

    `rate(peak, step)`: the learning rate of step 0, 1, ... of a group whose full rate is `peak`.
    """
    peaks = [(group, group["lr"]) for optimizer in optimizers for group in optimizer.param_groups]
    for step, losses in enumerate(work):
        total = 0.0
        for loss in losses:
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group, peak in peaks:
            group["lr"] = rate(peak, step)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        yield total
