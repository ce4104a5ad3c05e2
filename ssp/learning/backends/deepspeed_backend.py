"""Training by DeepSpeed: optimizer state (ZeRO 1), gradients (2) and weights (3) cut between the
ranks.

DeepSpeed is kept from compiling anything: torch's own AdamW, and its C++ for shared memory switched
off (a switch of DeepSpeed 0.19 that is not documented, hence the pinned range). Only as many ranks
of the same stage and type can read its state on disk."""

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ssp.base import devices
from ssp.base.errors import InvariantError, hold, holding
from ssp.config.role import LearnerConfig
from ssp.learning.backends.backend import Backend
from ssp.learning.backends.ranks import LOOPBACK, SOLO, Ranks, join

SHARDS = "shards"
BUCKET = 200_000_000  # numbers that are communicated at a time, at most


class DeepSpeedBackend(Backend):
    """See `Backend`."""

    shards = True

    def __init__(
        self, module: nn.Module, config: LearnerConfig, lr: float, ranks: Ranks = SOLO
    ) -> None:
        """InputError where DeepSpeed is not installed."""
        self.ranks = ranks
        self.device = devices.find(config.device)
        self.module = module
        self.config = config
        self._lr = lr
        self.parted = config.zero == 3
        self._pending = self._spoiled = False
        deepspeed = _deepspeed(ranks)
        self._gather = deepspeed.zero.GatheredParameters
        size = sum(parameter.numel() for parameter in module.parameters())
        engine, *_ = deepspeed.initialize(
            model=module,
            optimizer=self._adamw(fused=self.device.type == "cuda" and config.offload == "none"),
            config=settings(config, size),
            dist_init_required=False,
        )
        self._engine: Any = engine

    @property
    def layout(self) -> dict[str, Any]:
        """The kind, ZeRO stage, ranks and type."""
        stage = self.config.zero
        dtype = self.config.dtype
        return {"kind": "deepspeed", "zero": stage, "ranks": self.ranks.world, "dtype": dtype}

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._engine(*self._moved(args), **options)

    def zero(self) -> None:
        """DeepSpeed cannot forget a gradient that was begun, so this learner trains no more."""
        self._spoiled = self._spoiled or self._pending

    def backward(self, loss: Tensor, last: bool) -> None:
        """As `Backend.backward`. InvariantError after an update that failed half-way."""
        if self._spoiled:
            rule = "an update failed half-way, so this learner must start again from a checkpoint"
            raise InvariantError(rule)
        self._pending = True
        self._engine.set_gradient_accumulation_boundary(last)
        self._engine.backward(loss * self.ranks.world)

    def step(self, lr: float) -> float:
        """One step of DeepSpeed's, which reduces, clips and casts; the gradient's norm."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        self._engine.step()
        self._pending = False
        return float(self._engine.get_global_grad_norm())

    def whole(self, parameters: Sequence[nn.Parameter]) -> AbstractContextManager[Any]:
        """Gather the parameters, with ZeRO 3."""
        return self._gather(list(parameters)) if self.parted else super().whole(parameters)  # type: ignore[no-any-return]

    def local_tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """With ZeRO 3, this rank's shards."""
        for own, tensor in super().local_tensors(name):
            yield own, getattr(tensor, "ds_tensor", tensor)

    def write(self, path: Path, weights: bool) -> None:
        """Write the shards of every rank; the weights are always among them."""
        self._engine.save_checkpoint(
            str(path.parent / SHARDS),
            tag=path.name,
            save_latest=False,
            exclude_frozen_parameters=True,
        )

    def read(self, path: Path, weights: bool) -> None:
        """Read the shards of every rank. InputError where they are not all there."""
        loaded, _ = self._engine.load_checkpoint(
            str(path.parent / SHARDS),
            tag=path.name,
            load_module_strict=False,
            load_lr_scheduler_states=False,
        )
        absent = f"no shards of {path.name} in {path.parent}"
        hold(loaded is not None, "a checkpoint must be complete", absent, "use another one")
        self._pending = self._spoiled = False


def settings(config: LearnerConfig, size: int) -> dict[str, Any]:
    """DeepSpeed's configuration for a module of `size` numbers."""
    bucket = min(BUCKET, -(-size // 1024) * 1024)  # DeepSpeed wants it even, and allocates it
    zero: dict[str, Any] = {
        "stage": config.zero,
        "reduce_bucket_size": bucket,
        "allgather_bucket_size": bucket,
    }
    if config.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu"}
    if config.offload == "all":
        zero["offload_param"] = {"device": "cpu"}
    if config.zero == 3:
        # A small weight kept whole would not follow its part (the anchor's).
        zero["stage3_param_persistence_threshold"] = 0
        zero["stage3_prefetch_bucket_size"] = min(50_000_000, size)
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": config.max_grad_norm,
        "zero_optimization": zero,
        "bf16": {"enabled": config.dtype == "bfloat16"},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 2**31,
    }


def _deepspeed(ranks: Ranks) -> Any:
    """The library, ready to be used by a group of these ranks."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_RANK", "0")  # a process sees its own GPU only
    os.environ.setdefault("LOCAL_SIZE", str(ranks.world))
    step = "pip install 'ssp[deepspeed]', or set learner.kind=torch"
    with holding(ImportError, "learner.kind=deepspeed needs DeepSpeed", str, step):
        import deepspeed
        import deepspeed.comm
        import deepspeed.ops
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if not dist.is_initialized():
        listener = socket.create_server((LOOPBACK, 0))
        join(0, 1, listener.getsockname(), 600.0, listener)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    deepspeed.comm.init_distributed(dist_backend=backend, verbose=False)
    return deepspeed
