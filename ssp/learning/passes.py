"""What passes over the activations and multiplies nothing: norms, rotary positions, types. Each goes
over memory as seldom as it can, and keeps little for the backward pass."""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def narrow(x: Tensor) -> Tensor:
    """`x` in the type of autocast, which would else make, and keep, a copy for each product that
    reads it."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: x [T, heads, D], cos and sin [T, 1, D / 2] → [T, heads, D], of the wider
    type."""
    return _Rotate.apply(x, cos, sin)


class _Rotate(torch.autograd.Function):
    """(a, b) → (a cos - b sin, b cos + a sin), halves of the last axis. Its own inverse's
    transpose: the gradient is a rotation by the opposite angle, so that nothing is kept."""

    @staticmethod
    def forward(ctx, x, cos, sin):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(cos, sin)
        ctx.dtype = x.dtype
        return _rotated(x, cos, sin, torch.promote_types(x.dtype, cos.dtype))

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        cos, sin = ctx.saved_tensors
        return _rotated(grad, cos, -sin, ctx.dtype), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
    out = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    a, b = x.chunk(2, -1)
    first, second = out.chunk(2, -1)
    first.copy_(torch.addcmul(a * cos, b, sin, value=-1))
    second.copy_(torch.addcmul(b * cos, a, sin))
    return out


def quicken(body: nn.Module) -> None:
    """Have the RMS norms of a model compute float32 on a CPU in a third of the time, in place.
    Elsewhere, and in other types, they compute as before."""
    for module in body.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = MethodType(_normed, module)  # type: ignore[method-assign]


def _normed(norm: Any, x: Tensor) -> Tensor:
    if x.device.type != "cpu" or not x.dtype == norm.weight.dtype == torch.float32:
        return type(norm).forward(norm, x)  # type: ignore[no-any-return]
    return _Norm.apply(x, norm.weight, norm.variance_epsilon)


class _Norm(torch.autograd.Function):
    """x / sqrt(mean(x^2) + epsilon) times the weight, over the last axis (Zhang and Sennrich 2019,
    arXiv 1910.07467, equation 4). It keeps x and one number a row."""

    @staticmethod
    def forward(ctx, x, weight, epsilon):  # type: ignore[no-untyped-def]
        scale = (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, weight, scale = ctx.saved_tensors
        size = x.shape[-1]
        by_unit = (x * scale).mul_(grad)
        of_weight = None
        if ctx.needs_input_grad[1]:
            of_weight = by_unit.reshape(-1, size).sum(0)
        # A change along x changes nothing: that part of the gradient is taken off.
        along = (by_unit @ weight).unsqueeze(-1) * scale.square() / size
        of_x = (grad * weight).mul_(scale).addcmul_(x, along, value=-1)
        return of_x, of_weight, None
