"""Weights of a learner and an engine on one GPU: handles of its memory instead of a copy through the host.

Owns making and opening the handles (CUDA IPC, by torch.multiprocessing). Promises nothing yet: this has never been run,
for want of a GPU, and is refused without one. Refuses processes on different devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def share(weights: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tensors on the device, which must live until the handles are closed; a picklable handle a tensor)."""
    import torch
    from torch.multiprocessing.reductions import reduce_tensor

    held = {name: torch.from_numpy(array).to("cuda") for name, array in weights.items()}
    torch.cuda.synchronize()  # whoever opens a handle reads at once
    return held, {name: reduce_tensor(tensor) for name, tensor in held.items()}


def open_handles(handles: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors behind the handles, on the device. They are the learner's memory: whoever loads them copies."""
    return {name: rebuild(*args) for name, (rebuild, args) in handles.items()}
