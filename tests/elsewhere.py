"""A second device on a machine that has none: the CPU under another name, as strict as a GPU about what lies where.

A tensor there is a CPU tensor in a box with the device's name. An operation on tensors of both devices fails, as it does with
CUDA (but for numbers without dimensions), and so does numpy; what comes back to the host is counted, for a program
waits there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "elsewhere"
MOVES = ("aten::_to_copy", "aten::copy_")


class Box(torch.Tensor):
    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> Box:
        made: Box = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.shape,
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=f"{NAME}:0",
        )
        return made

    def __init__(self, raw: torch.Tensor) -> None:
        self.raw = raw

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{op} outside of `there`")


class Device(TorchDispatchMode):
    """`waits`: how often numbers came back to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if torch.is_inference_mode_enabled() and op._can_decompose():  # as autograd's keys do outside of it
            with self:
                return op.decompose(*args, **kwargs)
        given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
        boxed = any(isinstance(value, Box) for value in given)
        asked = kwargs.get("device")
        if asked is not None and torch.device(asked).type == NAME:
            kwargs["device"] = torch.device("cpu")
        name = op._schema.name
        if name == "aten::_to_copy" and asked is not None:
            there = torch.device(asked).type == NAME
        elif name == "aten::copy_":
            there = isinstance(args[0], Box)
        else:
            there = boxed or (asked is not None and torch.device(asked).type == NAME)
            apart = [value for value in given if not isinstance(value, Box) and value.dim()]
            assert not (boxed and apart), f"{name}: tensors on two devices"
        back = boxed and (name == "aten::_local_scalar_dense" or (name in MOVES and not there))
        self.waits += back
        raws = tree_map(lambda value: value.raw if isinstance(value, Box) else value, (args, kwargs))
        out = op(*raws[0], **raws[1])
        known = {id(value.raw): value for value in given if isinstance(value, Box)}

        def box(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return known[id(value)] if id(value) in known else Box(value)

        return tree_map(box, out) if there else out


class Made(TorchFunctionMode):
    """torch.tensor and tolist copy numbers below the reach of `Device`, so that they are moved after it, or before."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.pop("device", None) if func is torch.tensor else None
        if getattr(func, "__name__", "") == "tolist":
            args = (args[0].cpu(),)
        out = func(*args, **kwargs)
        return out if device is None else out.to(device)


class Module(_DummyBackendModule):
    """What `torch.elsewhere` is."""

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16]


_setup_privateuseone_for_python_backend(NAME, Module())


@contextmanager
def there() -> Iterator[Device]:
    """In here torch.device("elsewhere") can be computed on."""
    torch.__future__.set_swap_module_params_on_conversion(True)  # a tied matrix stays one
    try:
        with Made(), Device() as device:
            yield device
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
