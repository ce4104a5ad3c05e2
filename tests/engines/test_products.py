"""Products by oneDNN: the same numbers as torch's, with and without gradients; where it stays out of it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ssp.base import products
from ssp.base.products import SHORT, Matrix

WIDE = SHORT + 37


def drawn(*size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(len(size) + size[0]))


def test_it_multiplies_where_a_weight_has_no_short_side() -> None:
    assert products.fits(drawn(SHORT, WIDE))
    assert products.fits(drawn(WIDE, SHORT).bfloat16()) is products._there(torch.bfloat16)
    assert not products.fits(drawn(SHORT - 1, WIDE)) and not products.fits(drawn(WIDE, SHORT - 1))
    assert not products.fits(drawn(WIDE, WIDE).double()) and not products.fits(drawn(WIDE, WIDE).to("meta"))
    assert not products.fits(drawn(2, WIDE, WIDE))


@pytest.mark.parametrize("rows", [0, 1, 7, 300])
@pytest.mark.parametrize("side", [SHORT // 2, WIDE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_matrix_multiplies_and_adds(rows: int, side: int, dtype: torch.dtype) -> None:
    weight, bias, x, total = (
        t.to(dtype) for t in (drawn(WIDE, side), drawn(WIDE), drawn(rows, side), drawn(rows, WIDE))
    )
    exact = x.double() @ weight.double().t()
    near = {"rtol": 0.02, "atol": 0.2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(Matrix(weight)(x).double(), exact, **near)
    torch.testing.assert_close(Matrix(weight, bias)(x).double(), exact + bias.double(), **near)
    torch.testing.assert_close(Matrix(weight, bias).added(total, x).double(), exact + total.double(), **near)


def test_a_short_matrix_has_torchs_bits() -> None:
    """What small policies compute is what it was."""
    weight, bias, x = drawn(WIDE, SHORT // 2), drawn(WIDE), drawn(9, SHORT // 2)
    packed = weight.t().contiguous()
    assert torch.equal(Matrix(weight)(x), x @ packed)
    assert torch.equal(Matrix(weight, bias)(x), torch.addmm(bias, x, packed))
    assert torch.equal(Matrix(weight).added(drawn(9, WIDE), x), torch.addmm(drawn(9, WIDE), x, packed))


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(WIDE, 2 * WIDE), nn.SiLU(), nn.Linear(2 * WIDE, WIDE, bias=False), nn.Linear(WIDE, 3)
    )


@pytest.mark.parametrize("shape", [(11, WIDE), (2, 5, WIDE)])
def test_a_model_that_is_trained_has_the_same_gradients(shape: tuple[int, ...]) -> None:
    plain, quick = net(), net()
    products.train(quick)
    results = []
    for model in (plain, quick):
        x = drawn(*shape).requires_grad_()
        out = model(x)
        out.square().sum().backward()
        results.append([out, x.grad, *(parameter.grad for parameter in model.parameters())])
    calls = [layer for layer in quick if "forward" in vars(layer)]
    assert calls == [quick[0], quick[2]], "the last one has a short side"
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)


def test_a_frozen_weight_and_a_given_input_get_no_gradient() -> None:
    model = net().requires_grad_(False)
    products.train(model)
    x = drawn(4, WIDE).requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None and all(parameter.grad is None for parameter in model.parameters())
    trained = net()
    products.train(trained)
    trained(drawn(4, WIDE)).sum().backward()
    assert all(parameter.grad is not None for parameter in trained.parameters())


def test_other_numbers_than_float32_are_torchs() -> None:
    plain, quick = net(), net()
    products.train(quick)
    x = drawn(6, WIDE)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(quick(x), plain(x))
    assert torch.equal(quick.bfloat16()(x.bfloat16()), plain.bfloat16()(x.bfloat16()))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_a_copy_computes_with_its_own_weights(copied: Callable[[nn.Module], nn.Module]) -> None:
    model = net()
    products.train(model)
    other = copied(model)
    with torch.no_grad():
        model[0].weight.zero_()
    x = drawn(5, WIDE)
    torch.testing.assert_close(other(x), net()(x), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(other(x), model(x))


def test_a_model_that_is_moved_leaves_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner's weights go to their GPU after this."""
    monkeypatch.setattr(products, "times", lambda *given: pytest.fail("a product on the CPU"))
    model = net()
    products.train(model)
    assert model.to("meta")(drawn(5, WIDE).to("meta")).shape == (5, 3)


def test_no_rows_have_no_gradient_of_weights() -> None:
    model = net()
    products.train(model)
    x = drawn(0, WIDE).requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None and x.grad.shape == (0, WIDE)
    assert all(not parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None)


def test_only_what_gradients_need_is_kept() -> None:
    kept: list[Tensor] = []
    model = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)).requires_grad_(False)
    products.train(model)
    x = drawn(9, WIDE).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        model(x)
    assert [tensor.data_ptr() for tensor in kept] == [layer.weight.data_ptr() for layer in model]


@pytest.mark.parametrize("lacks", [AttributeError, RuntimeError])
def test_a_machine_without_it_multiplies_as_torch_does(monkeypatch: pytest.MonkeyPatch, lacks: type[Exception]) -> None:
    """As a processor without AVX-512 in bfloat16, or a build without oneDNN."""

    def laid(weight: Tensor) -> Tensor:
        raise lacks

    monkeypatch.setattr(products, "laid", laid)
    products._there.cache_clear()
    try:
        assert not products.fits(drawn(WIDE, WIDE))
        assert torch.equal(
            Matrix(drawn(WIDE, WIDE))(drawn(3, WIDE)), drawn(3, WIDE) @ drawn(WIDE, WIDE).t().contiguous()
        )
    finally:
        products._there.cache_clear()


def test_a_model_that_only_infers_keeps_its_numbers_and_types() -> None:
    plain, quick = net(), net().requires_grad_(False)
    products.infer(quick)
    assert quick[0].weight.is_mkldnn and not quick[3].weight.is_mkldnn
    assert [layer.weight.dtype for layer in quick if isinstance(layer, nn.Linear)] == [torch.float32] * 3
    torch.testing.assert_close(quick(drawn(2, 5, WIDE)), plain(drawn(2, 5, WIDE)), rtol=1e-4, atol=1e-4)
