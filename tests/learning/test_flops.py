"""Operations of an update against torch's own counter, and the measured rate."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, Qwen2Config

from ssp.learning.figures import Work

CONFIG = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "attn_implementation": "eager",
}


def counted(model, ids: torch.Tensor, backward: bool) -> float:
    with FlopCounterMode(display=False) as counter:
        loss = model(ids).logits.sum()
        if backward:
            loss.backward()
    return float(counter.get_total_flops())


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("tied", [True, False])
def test_operations_are_what_torch_counts(backward: bool, tied: bool) -> None:
    model = AutoModelForCausalLM.from_config(Qwen2Config(**{**CONFIG, "tie_word_embeddings": tied}))
    work = Work(model)
    ids = torch.randint(0, 97, (2, 24))
    ours = work.operations([24, 24], 48, backward)
    # Its eager attention computes the whole square, and the first layer's input needs no less than the others'.
    whole = (3 if backward else 1) * work.attention * 2 * 24 * 24
    # transformers 5.17 makes the angles of the positions by a product, which is 4e-5 of all.
    assert ours + whole == pytest.approx(counted(model, ids, backward), rel=1e-4)


def test_frozen_weights_cost_no_gradient_of_their_own() -> None:
    model = AutoModelForCausalLM.from_config(Qwen2Config(**CONFIG))
    whole = Work(model)
    model.requires_grad_(False)
    frozen = Work(model)
    assert frozen.body_back == whole.body_back / 2 and frozen.head_back == whole.head_back / 2
    assert frozen.body == whole.body


@pytest.mark.parametrize("backward", [False, True])
def test_what_a_packed_row_shares_is_no_operation_of_its_own(backward: bool) -> None:
    """Two rows that agree in all they read are one; what they share in part is what a row of that length costs."""
    work = Work(AutoModelForCausalLM.from_config(Qwen2Config(**CONFIG)))
    assert work.operations([24, 24], 5, backward, (0, 24)) == work.operations([24], 5, backward)
    shared = work.operations([30, 24], 5, backward) - work.operations([30, 24], 5, backward, (0, 10))
    assert shared == pytest.approx(work.operations([10], 0, backward))
