"""Tiny random models of each family, and what transformers makes of them: the reference of the engine suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

VOCAB, STOP, CONTEXT = 97, 7, 512
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def network(name: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random model; `name`: family and `tied` or `own`, e.g. qwen3-tied; `changes` of its configuration. Norms and biases
    are not what they start as."""
    family, head = name.split("-")
    torch.manual_seed(seed)
    rope = {"rope_parameters": LLAMA3 if family == "llama" else PLAIN}
    sizes = {"vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT}
    ends: dict[str, Any] = {"eos_token_id": None, "bos_token_id": None, "pad_token_id": 0}
    more = {"tie_word_embeddings": head == "tied", "initializer_range": 0.15, **rope, **changes}
    config = AutoConfig.for_model(family, **{**sizes, **heads, **ends, **more})
    net: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for key, parameter in net.named_parameters():
            if key.endswith(("norm.weight", "bias")):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def save(net: PreTrainedModel, folder: Path) -> Path:
    """The model's folder."""
    net.save_pretrained(folder)
    return folder


def arrays(net: PreTrainedModel) -> dict[str, np.ndarray]:
    """Its weights as an engine takes them."""
    return {name: parameter.detach().numpy() for name, parameter in net.named_parameters()}


@torch.no_grad()
def logprobs(net: PreTrainedModel, ids: list[int], temperature: float = 1.0) -> list[float]:
    """Log-prob of each id but the first under one full forward."""
    return of_logits(net(torch.tensor([ids])).logits[0, :-1], ids[1:], temperature)


def of_logits(logits: torch.Tensor, ids: list[int], temperature: float) -> list[float]:
    """Log-prob of `ids[i]` under `logits[i]` at the temperature."""
    found: list[float] = (
        torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()
    )
    return found


@torch.no_grad()
def after_switch(old: PreTrainedModel, new: PreTrainedModel, ids: list[int], at: int) -> list[float]:
    """Log-probs (temperature 1) of `ids[at:]`, drawn by `new` over the keys of `old`.

    The token before them, which `old` drew, is the first that `new` read.
    """
    cache = old(torch.tensor([ids[: at - 1]]), use_cache=True).past_key_values
    logits = new(torch.tensor([ids[at - 1 :]]), past_key_values=cache, use_cache=True).logits[0, :-1]
    return of_logits(logits, ids[at:], 1.0)


@torch.no_grad()
def greedy(net: PreTrainedModel, prompt: list[int], most: int) -> list[int]:
    """What transformers writes, up to and with the first STOP."""
    given = torch.tensor([prompt])
    text = net.generate(given, max_new_tokens=most, do_sample=False, eos_token_id=STOP, pad_token_id=0)
    found: list[int] = text[0, len(prompt) :].tolist()
    return found
