"""Matrix products on a CPU by oneDNN, which torch brings along.

Torch's own products in float32 are MKL's, which computes with half-width vectors (256 bits) on
processors that are not Intel's: on an AMD EPYC with AVX-512 those here take half the time. A weight
that is multiplied again and again is laid out for it once (`Matrix`), which saves a third in
bfloat16 too where there are few rows. Torch has no public name for these products but the operator
of its compiler. Where a build or a processor lacks them, on a GPU, and for weights with a short
side, products are torch's own, to the bit.
"""

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

SHORT = 128
"""A weight with fewer rows or columns is left to torch: with few tokens its products take longer
here, and the default run's small policy computes what it always did."""


def fits(weight: Tensor) -> bool:
    """Whether oneDNN is to multiply with `weight`."""
    kind = weight.dtype in (torch.float32, torch.bfloat16) and weight.device.type == "cpu"
    return kind and weight.dim() == 2 and min(weight.shape) >= SHORT and _there(weight.dtype)


@cache
def _there(dtype: torch.dtype) -> bool:
    """Whether this build of torch and this processor have such products."""
    weight = torch.zeros(SHORT, SHORT, dtype=dtype)
    try:
        _added(weight, weight, laid(weight))
    except (AttributeError, RuntimeError):
        return False
    return True


def times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., in] times `weight` [out, in], of any strides or `laid`, and `bias` [out] added →
    [..., out]. Without gradients."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def _added(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    operator = torch.ops.mkldnn._linear_pointwise.binary
    return operator(x, total, weight, None, "add")  # type: ignore[no-any-return]


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
        if self._laid:
            return _added(total, x, self._weight)
        return torch.addmm(total, x, self._weight)

    def become(self, other: "Matrix") -> None:
        """Take the numbers of another one of the same shape, in place."""
        self._weight.copy_(other._weight)
        if self._bias is not None and other._bias is not None:
            self._bias.copy_(other._bias)


def infer(model: nn.Module) -> None:
    """Have the linear layers of a model that is not trained compute by oneDNN, in place. Their
    weights keep their names and types, at which models look, and no code but `times` reads them."""
    for layer in _fitting(model):
        weight = layer.weight.detach()
        del layer.weight
        layer.weight = laid(weight)
        layer.forward = partial(_inferred, layer)


def _inferred(layer: Any, x: Tensor) -> Tensor:
    return times(x, layer.weight, layer.bias)


def train(model: nn.Module) -> None:
    """Have the linear layers of a model compute by oneDNN, in place, in each call that computes in
    float32 on a CPU. The model may be moved later."""
    for layer in _fitting(model):
        layer.forward = partial(_trained, layer)


def _fitting(model: nn.Module) -> list[Any]:
    layers = [layer for layer in model.modules() if type(layer) is nn.Linear]
    return [layer for layer in layers if fits(layer.weight)]


def _trained(layer: Any, x: Tensor) -> Tensor:
    weight = layer.weight
    here = x.device.type == weight.device.type == "cpu"
    whole = x.dtype == weight.dtype == torch.float32
    if here and whole and x.numel() and not torch.is_autocast_enabled("cpu"):
        return _Linear.apply(x, weight, layer.bias)
    return nn.functional.linear(x, weight, layer.bias)


class _Linear(torch.autograd.Function):
    """`nn.functional.linear`, whose gradients are oneDNN's too. It keeps what these need."""

    @staticmethod
    def forward(ctx, x, weight, bias):  # type: ignore[no-untyped-def]
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        return times(x, weight, bias)

    @staticmethod
    @once_differentiable
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
