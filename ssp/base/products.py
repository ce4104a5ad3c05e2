"""Matrix products on a CPU by oneDNN, which torch brings along.

Torch's own products in float32 are MKL's, which stays with half of the vector width on processors
that are not Intel's: on an AMD EPYC these here take half the time. Weights that many products read
are laid out for them once (`Matrix`); of few rows that pays in bfloat16 too. Torch has no public
name for such products but the operator of its compiler. Where a build lacks it, on a GPU, and for
weights with a short side, products are torch's own: what a small policy computes stays bit for bit.
"""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

SHORT = 128
"""Numbers of rows or columns below which a weight's products are torch's own: those of few tokens
take longer otherwise."""
_there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def fits(weight: Tensor) -> bool:
    """Whether oneDNN is to multiply with `weight`."""
    kind = weight.dtype in (torch.float32, torch.bfloat16) and weight.device.type == "cpu"
    return _there and kind and weight.dim() == 2 and min(weight.shape) >= SHORT


def times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., in] times `weight` [out, in], any strides or as `laid`, and `bias` [out] added →
    [..., out]. Without gradients."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def laid(weight: Tensor) -> Tensor:
    """`weight` [out, in] as `times` reads it fastest; nothing else can read it then."""
    return torch.ops.mkldnn._reorder_linear_weight(weight)  # type: ignore[no-any-return]


class Matrix:
    """A weight [out, in], and a bias [out] where there is one, for products without gradients."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._laid = fits(weight)
        self._weight = laid(weight) if self._laid else weight.t().contiguous()
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """x [n, in] → [n, out]."""
        if self._laid:
            return times(x, self._weight, self._bias)
        if self._bias is None:
            return x @ self._weight
        return torch.addmm(self._bias, x, self._weight)

    def added(self, total: Tensor, x: Tensor) -> Tensor:
        """`total` [n, out] and the product of x [n, in], without the bias."""
        if not self._laid:
            return torch.addmm(total, x, self._weight)
        operator = torch.ops.mkldnn._linear_pointwise.binary
        return operator(x, total, self._weight, None, "add")  # type: ignore[no-any-return]

    def become(self, other: "Matrix") -> None:
        """Take the numbers of another one of the same shape, in place, on a GPU."""
        self._weight.copy_(other._weight)
        if self._bias is not None and other._bias is not None:
            self._bias.copy_(other._bias)


def settle(model: nn.Module) -> None:
    """Have the linear layers of a model that is not trained compute by oneDNN, in place."""
    for layer in _wide(model):
        weight = layer.weight.detach()
        del layer.weight
        layer.weight = laid(weight)  # under its name: models look at its type
        layer.forward = MethodType(_settled, layer)


def _settled(layer: Any, x: Tensor) -> Tensor:
    return times(x, layer.weight, layer.bias)


def train(model: nn.Module) -> None:
    """Have the linear layers of a model compute by oneDNN, in place, where they do so in float32."""
    for layer in _wide(model):
        layer.forward = MethodType(_trained, layer)


def _wide(model: nn.Module) -> list[Any]:
    layers = [layer for layer in model.modules() if type(layer) is nn.Linear]
    return [layer for layer in layers if fits(layer.weight)]


def _trained(layer: Any, x: Tensor) -> Tensor:
    weight = layer.weight
    if torch.is_autocast_enabled("cpu") or {x.dtype, weight.dtype} != {torch.float32}:
        return nn.functional.linear(x, weight, layer.bias)
    return _Linear.apply(x, weight, layer.bias)


class _Linear(torch.autograd.Function):
    """`nn.functional.linear`, whose gradients are oneDNN's too."""

    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        return times(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = times(grad, weight.t())
        rows = grad.reshape(-1, grad.shape[-1])
        if ctx.needs_input_grad[1]:
            of_weight = times(rows.t(), x.reshape(-1, x.shape[-1]).t())
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(0)
        return of_x, of_weight, of_bias
