"""The embedded policy: a small Qwen2 and its positional start.

Owns the architecture (2 layers, hidden 64, 134 k parameters) and its first weights.
Promises a stock `Qwen2ForCausalLM`: only the initial values differ from the usual ones.
Refuses to know traces, optimizers, files.
"""

from __future__ import annotations

import torch
from transformers import Qwen2ForCausalLM

from ssp.game.world.vocabulary import END, PAD, VOCABULARY
from ssp.learning.supervised import small_model

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 64, 2, 4, 2, 32, 128
ROPE_BASE = 10_000.0
INIT_STD = 0.05
OFFSETS = (1, 2, 3)
"""Heads 0, 1, 2 of layer 0 start out reading the token this many places back."""
PAIRS = 6
AMPLITUDE = 3.0 * HEAD_DIM**0.25
"""Of the bias in each used pair: the logit at distance D is then 9 · Σ cos(f · (D - offset))."""
CONTENT_SCALE = 0.1


def build(seed: int) -> Qwen2ForCausalLM:
    """A model with weights drawn from `seed` and the positional start."""
    model = small_model(
        len(VOCABULARY),
        VOCABULARY.index(END),
        INIT_STD,
        (seed, "init"),
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        use_sliding_window=False,
        pad_token_id=VOCABULARY.index(PAD),
    )
    with torch.no_grad():
        _positional(model)
    return model


def _positional(model: Qwen2ForCausalLM) -> None:
    """Let heads of layer 0 attend to fixed offsets from the first step.

    With b_k = u and b_q = R(-offset) u, R the RoPE rotation, the query at place m meets the key at n with
    u · R(m - offset - n) u, largest at n = m - offset. Without it the two-layer look-up circuit does not form in time.
    """
    attention = model.model.layers[0].self_attn
    frequencies = ROPE_BASE ** (-torch.arange(PAIRS, dtype=torch.float64) * 2 / HEAD_DIM)
    half = HEAD_DIM // 2
    used_kv = sorted({head * KV_HEADS // HEADS for head in range(len(OFFSETS))})
    for head, offset in enumerate(OFFSETS):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        attention.q_proj.weight[rows] *= CONTENT_SCALE
        bias = attention.q_proj.bias[rows]
        bias[:PAIRS] = (AMPLITUDE * torch.cos(-offset * frequencies)).float()
        bias[half : half + PAIRS] = (AMPLITUDE * torch.sin(-offset * frequencies)).float()
    for kv in used_kv:
        attention.k_proj.weight[kv * HEAD_DIM : (kv + 1) * HEAD_DIM] *= CONTENT_SCALE
        attention.k_proj.bias[kv * HEAD_DIM : kv * HEAD_DIM + PAIRS] = AMPLITUDE
