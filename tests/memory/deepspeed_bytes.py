"""Prints a small model's parameters, and the bytes of all tensors that a DeepSpeed backend keeps between updates."""

from __future__ import annotations

import gc
import sys

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from ssp.config.role import LearnerConfig
from ssp.learning import backends
from ssp.learning.backends.ranks import SOLO
from ssp.learning.store import Policy


def main(zero: int, dtype: str, offload: str) -> None:
    """Two updates, then the sum."""
    torch.set_num_threads(1)
    config = Qwen2Config(
        vocab_size=2048, hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    learner = LearnerConfig(kind="deepspeed", zero=zero, offload=offload)
    learner.dtype = dtype
    made = backends.make(Policy(model, learner), learner, 1e-4, SOLO)
    ids = torch.randint(0, 2048, (2, 32))
    mask = torch.ones_like(ids).bool().index_fill_(1, torch.tensor([0]), False)
    for _ in range(2):
        made.zero()
        made.backward(-made(ids, mask, 1.0)[0].mean(), True)
        made.step(1e-4)
    gc.collect()
    found: dict[int, int] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor):
            for tensor in (thing, getattr(thing, "ds_tensor", None)):
                if tensor is not None:
                    found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    print(count, sum(found.values()))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
