"""How much of the machine an update uses: the model's floating-point operations, and the rate they could run at.

Owns both numbers. Promises that only what the model needs is counted: no padding, no recomputation (of checkpointing),
the output layer at predicted positions alone. Refuses to trust a data sheet: the rate is measured.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

CPU_SIZE, GPU_SIZE = 768, 8192
"""Side of the matrices of the probe: 0.9 GFLOP a product on a CPU, 1.1 TFLOP on a GPU."""


@dataclass(frozen=True)
class Work:
    """Operations of one token, forward (`body`, `head`: the output layer) and backward, and of attention.

    A matrix product of an [a, b] weight costs 2ab a token forward, as much for the gradient of its input, and as much
    again for its own where it is trained (Kaplan et al. 2020, arXiv 2001.08361, section 2.1: 6N). Causal attention costs
    2 width L^2 a layer and sequence of L tokens forward, and twice that backward.
    """

    body: float
    head: float
    body_back: float
    head_back: float
    attention: float

    @staticmethod
    def of(model: PreTrainedModel) -> Work:
        """Of a causal language model; frozen weights (under adapters) cost no gradient of their own."""
        output = model.get_output_embeddings()
        body = body_back = 0.0
        for module in model.modules():
            if isinstance(module, nn.Linear) and module is not output:
                body += 2 * module.in_features * module.out_features
                body_back += 2 * module.in_features * module.out_features * (1 + module.weight.requires_grad)
        head = 2.0 * output.in_features * output.out_features
        config = model.config
        width = config.num_attention_heads * (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        back = head * (1 + output.weight.requires_grad)
        return Work(body, head, body_back, back, 2.0 * width * config.num_hidden_layers)

    def operations(self, lengths: Sequence[int], predicted: int, backward: bool) -> float:
        """Of sequences of `lengths` tokens, `predicted` of them through the output layer; with or without backward."""
        tokens, squares = sum(lengths), float(sum(length * length for length in lengths))
        forward = self.body * tokens + self.head * predicted + self.attention * squares
        if not backward:
            return forward
        return forward + self.body_back * tokens + self.head_back * predicted + 2 * self.attention * squares


@functools.cache
def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product on `device`, the best of several, on the threads torch has now."""
    gpu = torch.device(device).type == "cuda"
    size = GPU_SIZE if gpu else CPU_SIZE
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(8):
        started = time.perf_counter()
        left @ right
        if gpu:
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
