"""The embedded policy: a small Qwen2 and its positional start.

Owns the architecture (2 layers, hidden 64, 134 k parameters) and its first weights.
Promises a stock `Qwen2ForCausalLM`: only the initial values differ from the usual ones.
Refuses to know traces, optimizers, files.
"""

from __future__ import annotations

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from ssp.base.seeds import derive
from ssp.game.world.vocabulary import END, PAD, VOCABULARY

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 64, 2, 4, 2, 32, 128
ROPE_BASE = 10_000.0
INIT_STD = 0.05
OFFSETS = (1, 2, 3)
"""Heads 0, 1, 2 of layer 0 start out reading the token this many places back."""
PAIRS = 6
AMPLITUDE = 3.0 * HEAD_DIM**0.25
"""Of the bias in each used pair: the logit at distance D is then 9 · Σ cos(f · (D - offset))."""
CONTENT_SCALE = 0.1


def config() -> Qwen2Config:
    """The architecture. Tied embeddings, QKV biases, RoPE base 10 000, float32."""
    chosen = Qwen2Config(
        vocab_size=len(VOCABULARY),
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        tie_word_embeddings=True,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=VOCABULARY.index(END),
        pad_token_id=VOCABULARY.index(PAD),
        dtype="float32",
    )
    chosen.head_dim = HEAD_DIM  # the model reads it, though Qwen2Config does not declare it
    return chosen


def build(seed: int) -> Qwen2ForCausalLM:
    """A model with weights drawn from `seed` (not from torch's global generator) and the positional start."""
    model = Qwen2ForCausalLM(config()).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            draws = torch.Generator().manual_seed(derive(seed, "init", name))
            if weight.ndim == 2:
                weight.normal_(0.0, INIT_STD, generator=draws)
            else:
                weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
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
