"""What passes over the activations: each formula has its gradient, and computes what the model's own part does."""

from __future__ import annotations

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from ssp.learning import passes


def test_rotation_has_the_gradient_of_its_formula():
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8, dtype=torch.float64, requires_grad=True)
    angle = torch.randn(5, 1, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: passes.rotate(x, angle.cos(), angle.sin()), x)


@pytest.mark.parametrize("learns", [True, False])
def test_a_norm_has_its_gradient(learns):
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(8, dtype=torch.float64, requires_grad=learns)
    for turned in (x, x.detach().transpose(0, 1).requires_grad_()):
        assert torch.autograd.gradcheck(lambda *given: passes._Norm.apply(*given, 1e-6), (turned, weight))


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_quick_norm_is_the_models_own_which_computes_other_types(kind):
    norm = LlamaRMSNorm(16)
    torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    passes.quicken(norm)
    x = torch.randn(7, 16).to(getattr(torch, kind))
    usual = type(norm).forward(norm, x)
    made = norm(x)
    assert made.dtype is usual.dtype and ("_NormBackward" in type(made.grad_fn).__name__) is (kind == "float32")
    torch.testing.assert_close(made, usual, atol=1e-6 if kind == "float32" else 0, rtol=0)
