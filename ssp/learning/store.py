"""What a learner trains, and the way to disk and back: weights, checkpoints, model folders.

A checkpoint holds the policy in the Hugging Face layout, `ssp.json`, and the optimizer's state as
the backend keeps it: `optimizer.pt`, or the shards of every rank under `shards/`. A critic adds its
optimizer and `critic/`; a KL reference that moves adds `anchor/`, a policy in the same layout, or a
file a rank where it is sharded; LoRA adds `adapter/` in peft's layout. Going on from it is bit for
bit the uninterrupted run (law 7)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from ssp.base.errors import InvariantError, hold
from ssp.base.models import RECORD
from ssp.config.role import LearnerConfig, RoleConfig
from ssp.engines.folder import ModelFolder
from ssp.learning import backends, checkpoint, lora
from ssp.learning.backends.backend import named
from ssp.learning.backends.ranks import SOLO, Ranks
from ssp.learning.figures import Work, matrix_rate
from ssp.learning.forward import score
from ssp.learning.objective import Objective
from ssp.learning.packing import prepare
from ssp.record.manifest import check_files, protocol_of, read_record, seal

OPTIMIZER = "optimizer"
CRITIC = "critic"
ANCHOR = "anchor"
ADAPTER = "adapter"


class Policy(nn.Module):
    """The policy as one module, which a backend wraps and calls: `model` and, with KL, its
    reference (`held_to`): a frozen model, or the same model without its adapter (`lora.Bare`)."""

    def __init__(
        self, model: PreTrainedModel, config: LearnerConfig, start: Path | None = None
    ) -> None:
        """`model`, trained as `config` says. `start`: the folder of the model that the policy is
        held to; None without KL."""
        super().__init__()
        self.model = model
        self.shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        self.reference: PreTrainedModel | None = None
        self._bare: lora.Bare | None = None
        if config.lora.rank:
            lora.put_on(model, config.lora)
            self._bare = lora.Bare(model) if start else None
        elif start:
            self.reference = checkpoint.load_model(start).requires_grad_(False)
            prepare(self.reference, config)
        prepare(model, config)

    @property
    def held_to(self) -> Any:
        """The reference, None without KL."""
        return self._bare if self.reference is None else self.reference

    def forward(self, *args: Any, of_reference: bool = False, **options: Any) -> tuple[Tensor, ...]:
        """`ssp.learning.forward.score` of the policy, where it is compared with its reference, or
        of the reference. A plain tuple, because backends put hooks on tensors that they can see."""
        if of_reference:
            return score(self.held_to, *args)
        return score(self.model, *args, reference=self.held_to, **options)


class Stored:
    """One policy, a Hugging Face causal model, with the objectives of the roles that train it and
    its step counter.

    `model_dir`: start checkpoint (its `ssp.json` names the protocol; without one `protocol` must),
    and, when a role's `kl.coef` > 0, the reference of the KL term. `roles`: the block of each role,
    in the order of their steps; roles that share have the same `learner` block. `steps`: updates in
    all, for a schedule that falls. `ranks`: the processes that make every call together, each with
    the same arguments; rank 0 gives weights and writes files."""

    def __init__(
        self,
        model_dir: str | Path,
        roles: Mapping[str, RoleConfig],
        protocol: str = "",
        steps: int = 0,
        ranks: Ranks = SOLO,
    ) -> None:
        """InputError: unknown algorithm, loss or KL name; a folder that is missing, broken or of
        another protocol."""
        self.source = Path(model_dir)
        self.ranks = ranks
        self.config = next(iter(roles.values())).learner
        self.protocol = protocol_of(self.source, protocol)
        self.step = 0
        self.objectives = {
            role: Objective(config, self.source, ranks, steps) for role, config in roles.items()
        }
        held = [objective for objective in self.objectives.values() if objective.config.kl.coef]
        model = checkpoint.load_model(self.source)
        self.policy = Policy(model, self.config, self.source if held else None)
        self.work = Work(model)
        self.backend = backends.make(self.policy, self.config, self.config.lr, ranks)
        dtype = torch.bfloat16 if self.config.dtype == "bfloat16" else torch.float32
        self.rate = ranks.world * matrix_rate(str(self.backend.device), dtype)
        self._layout = self.backend.layout  # what must be the same to read a checkpoint's state
        adapter = self.config.lora
        if adapter.rank:
            self._layout["lora"] = [adapter.rank, float(adapter.rank), *sorted(adapter.targets)]
        for objective in held:
            moves = objective.config.kl.ema_tau < 1
            tensors = self.backend.local_tensors("reference") if moves else ()
            objective.divergence.adopt(self.policy.held_to, tensors)

    def weights(self) -> dict[str, np.ndarray]:
        """Contiguous float32 copies by Hugging Face parameter name; a tied output embedding is not
        repeated. Adapters are merged. Empty on other ranks than 0."""
        return self._arrays(lora.weights(self.policy.model, self.backend.whole))

    def anchor_weights(self) -> dict[str, np.ndarray]:
        """As `weights`, of the reference that the KL is measured to. InvariantError where it has no
        weights of its own."""
        if self.policy.reference is None:
            raise InvariantError("this policy has no reference of its own")
        return self._arrays(lora.weights(self.policy.reference, self.backend.whole))

    def adapter(self) -> dict[str, np.ndarray]:
        """Copies of the adapter's tensors by peft's names, float32. Empty on other ranks than 0."""
        return self._arrays(lora.adapter(self.policy.model, self.backend.whole))

    def save(self, folder: str | Path, meta: Mapping[str, Any]) -> None:
        """Write a checkpoint. `meta` (role, version, incarnation, ...: JSON data) goes to
        `ssp.json` beside protocol, step and estimator state; InvariantError when it contradicts
        them."""
        coefs = {}
        estimators = {}
        for role, objective in self.objectives.items():
            coefs[role] = objective.divergence.coef
            estimator = objective.algorithm
            estimators[role] = {"name": estimator.name, "state": estimator.state_dict()}
        record: dict[str, Any] = {
            **meta,
            "protocol": self.protocol,
            "step": self.step,
            "layout": self._layout,
            "kl_coef": coefs,
            "algorithm": estimators,
        }
        for key, value in meta.items():
            if record[key] != value:
                raise InvariantError(f"meta says {key}={value} but the learner has {record[key]}")

        def fill(aside: Path) -> None:
            self._write_policy(aside)
            self.backend.write(aside / OPTIMIZER, weights=False)
            for objective in self.objectives.values():
                if objective.critic is not None:
                    objective.critic.backend.write(aside / CRITIC, weights=True)
                if objective.divergence.moving is not None:
                    self._write_anchor(aside / ANCHOR, objective.divergence.moving.master, record)
            if self.config.lora.rank:
                adapter = lora.adapter(self.policy.model, self.backend.whole)
                kept = self._kept(adapter)
                if self.ranks.rank == 0:
                    lora.write(aside / ADAPTER, kept, self.config.lora)

        checkpoint.write(Path(folder), fill, record, self.ranks)

    def export(self, folder: str | Path, meta: Mapping[str, Any]) -> None:
        """Write the policy alone, adapters merged, as a model folder that a run can start from."""
        record = {**meta, "protocol": self.protocol}
        checkpoint.write(Path(folder), self._write_policy, record, self.ranks)

    def load(self, folder: str | Path) -> dict[str, Any]:
        """Continue from a checkpoint; its `ssp.json`. The learning rate stays the config's.

        InputError, with nothing changed: a file missing or changed, another protocol, estimator,
        architecture or layout."""
        folder = Path(folder)
        record = self.ranks.agree(lambda: self._checked(folder))
        if not self.backend.shards:
            if self.config.lora.rank:
                lora.read(folder / ADAPTER, self.policy.model)
            else:
                self.policy.model.load_state_dict(checkpoint.load_model(folder).state_dict())
        self.backend.read(folder / OPTIMIZER, weights=False)
        for role, objective in self.objectives.items():
            if objective.critic is not None:
                objective.critic.backend.read(folder / CRITIC, weights=True)
            anchor = None
            if objective.divergence.moving is not None and self.backend.parted:
                part = load_file(folder / ANCHOR / f"{self.ranks.rank}.safetensors")
                anchor = iter(part.items())
            elif objective.divergence.moving is not None:
                anchor = named(checkpoint.load_model(folder / ANCHOR))
            objective.divergence.restore(anchor, record["kl_coef"][role])
            objective.algorithm.load_state_dict(record["algorithm"][role]["state"])
        self.step = record["step"]
        return record

    def _kept(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """What the ranks gather together, on the host in float32. Other ranks than 0 keep
        nothing."""
        out = {}
        for name, tensor in tensors:
            if self.ranks.rank == 0:
                out[name] = tensor.detach().float().cpu()
        return out

    def _arrays(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, np.ndarray]:
        kept = self._kept(tensors)
        return {
            name: np.array(tensor.numpy(), np.float32, order="C") for name, tensor in kept.items()
        }

    def _write_policy(self, folder: Path) -> None:
        whole = self._kept(lora.weights(self.policy.model, self.backend.whole))
        if self.ranks.rank == 0:
            checkpoint.write_policy(folder, self.policy.model, whole, self.source)

    def _write_anchor(
        self, folder: Path, master: Mapping[str, Tensor], record: Mapping[str, Any]
    ) -> None:
        if self.backend.parted:
            folder.mkdir(exist_ok=True)
            part = {name: tensor.contiguous() for name, tensor in master.items()}
            save_file(part, folder / f"{self.ranks.rank}.safetensors")
        elif self.ranks.rank == 0:
            whole = {name: master[name].cpu() for name, _ in self.policy.model.named_parameters()}
            checkpoint.write_policy(folder, self.policy.model, whole, self.source)
            seal(folder, record)

    def _checked(self, folder: Path) -> dict[str, Any]:
        """The record of a checkpoint that this learner can go on from."""
        path = folder / RECORD
        other = "use another checkpoint"
        hold(path.is_file(), "a checkpoint must be complete", f"no file {path}", other)
        record = read_record(folder)
        wrote = record.get("layout")
        rule = f"a run goes on with the learner that wrote its checkpoint: {self._layout}"
        step = "set learner.* as it was, or start a new run with the folder as <role>.model"
        hold(wrote == self._layout, rule, f"{folder} is of {wrote}", step)
        protocol_of(folder)  # a checkpoint says it itself
        protocol_of(folder, self.protocol)
        for key, kind in (("sha256", dict), ("step", int), ("algorithm", dict), ("kl_coef", dict)):
            is_there = isinstance(record.get(key), kind)
            hold(is_there, f"{RECORD} must hold {key}", f"{path} does not", other)
        check_files(folder, whole=True)
        for role, objective in self.objectives.items():
            wrote = record["algorithm"].get(role, {}).get("name")
            name = objective.algorithm.name
            rule = f"the checkpoint must be of algorithm {name}"
            hold(wrote == name, rule, f"{folder} is of {wrote}", f"set algorithm={wrote}")
        shapes = ModelFolder(folder).shapes
        fits = all(shapes.get(name) == shape for name, shape in self.policy.shapes.items())
        rule = "the checkpoint must have the model's shapes"
        step = f"use one made from {self.source}"
        hold(fits, rule, folder, step)
        return record
