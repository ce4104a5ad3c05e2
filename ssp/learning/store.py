"""A learner on disk: what its checkpoint holds, and how it goes on from one.

Beside the policy in the Hugging Face layout and `ssp.json`: the optimizer's state as the backend keeps it
(`optimizer.pt`, or the shards of every rank under `shards/`), where there is a critic its weights and optimizer, where the
KL's reference moves the folder `anchor/` (a policy in the same layout; of a sharded policy `anchor-<rank>.pt`), and with
LoRA the folder `adapter/` in peft's layout.

Promises that going on is bit for bit the uninterrupted run, and that what was written with another backend, number of
shards, estimator or architecture is refused before anything is taken. Refuses to choose versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ssp.base.errors import InputError, InvariantError
from ssp.learning import checkpoint
from ssp.learning.anchor import named
from ssp.learning.backends.backend import Backend
from ssp.learning.policy import Policy
from ssp.record.manifest import RECORD, read_record

if TYPE_CHECKING:
    from ssp.learning.learner import Learner

OPTIMIZER, CRITIC, ANCHOR, ADAPTER = "optimizer", "critic", "anchor", "adapter"


def weights(policy: Policy, backend: Backend) -> dict[str, Tensor]:
    """The policy's parameters by Hugging Face name, adapters merged, on the host in float32; nothing on other ranks
    than 0."""
    out = {}
    for name, tensor in _whole(policy, backend):
        if backend.ranks.rank == 0:
            out[name] = tensor.detach().float().cpu()
    return out


def anchor(policy: Policy, backend: Backend) -> dict[str, Tensor]:
    """The parameters of the reference that the policy is held to, as `weights` gives the policy's own."""
    if policy.reference is None:
        raise InvariantError("this policy has no reference of its own")
    out = {}
    for name, parameter in policy.reference.named_parameters():
        with backend.whole([parameter]):
            if backend.ranks.rank == 0:
                out[name] = parameter.detach().float().cpu()
    return out


def _whole(policy: Policy, backend: Backend) -> Iterator[tuple[str, Tensor]]:
    if policy.adapted:
        from ssp.learning import lora

        yield from lora.weights(policy.model, backend.whole)
        return
    for name, parameter in policy.model.named_parameters():
        with backend.whole([parameter]):
            yield name, parameter


def save(learner: Learner, folder: Path, meta: Mapping[str, Any]) -> None:
    """Write `folder`; see `ssp.learning.learner.Learner.save`."""
    own = {"protocol": learner.protocol, "step": learner.step, **_states(learner), "layout": _layout(learner)}
    for key, value in own.items():
        if key in meta and meta[key] != value:
            raise InvariantError(f"meta says {key}={meta[key]} but the learner has {value}")
    record = {**meta, **own}
    policy, backend, first = learner.policy, learner.backend, learner.ranks.rank == 0

    def fill(aside: Path) -> None:
        whole = weights(policy, backend)
        if first:
            checkpoint.write_policy(aside, policy.model, whole, learner.source)
        backend.write(aside / OPTIMIZER, weights=False)
        for school in learner.schools.values():
            if school.critic is not None:
                school.critic.backend.write(aside / CRITIC, weights=True)
            if school.divergence.moving is not None:
                _write_anchor(aside, learner, school.divergence.moving.master, record)
        if policy.adapted:
            from ssp.learning import lora

            tensors = lora.adapter(policy.model, backend.whole)
            if first:
                lora.write(aside / ADAPTER, tensors, learner.config.lora)

    checkpoint.write(folder, fill, record, learner.ranks)


def export(learner: Learner, folder: Path, meta: Mapping[str, Any]) -> None:
    """Write the policy alone, adapters merged, as a model folder to start from; `meta` goes to its `ssp.json`."""

    def fill(aside: Path) -> None:
        whole = weights(learner.policy, learner.backend)
        if learner.ranks.rank == 0:
            checkpoint.write_policy(aside, learner.policy.model, whole, learner.source)

    checkpoint.write(folder, fill, {**meta, "protocol": learner.protocol}, learner.ranks)


def load(learner: Learner, folder: Path) -> dict[str, Any]:
    """Go on from `folder`; see `ssp.learning.learner.Learner.load`."""
    record = learner.ranks.agree(lambda: _checked(learner, folder))
    if learner.policy.adapted and not learner.backend.shards:
        from ssp.learning import lora

        lora.read(folder / ADAPTER, learner.policy.model)
    elif not learner.backend.shards:
        loaded = dict(checkpoint.load_model(folder).named_parameters())
        with torch.no_grad():
            for name, parameter in learner.policy.model.named_parameters():
                parameter.copy_(loaded[name])
    learner.backend.read(folder / OPTIMIZER, weights=False)
    for role, school in learner.schools.items():
        if school.critic is not None:
            school.critic.backend.read(folder / CRITIC, weights=True)
        anchor = None if school.divergence.moving is None else _anchor(learner, folder)
        school.divergence.restore(anchor, _own(record.get("kl_coef"), learner, role))
        school.algorithm.load_state_dict(_own(record["algorithm"], learner, role).get("state", {}))
    learner.step = record["step"]
    return record


def _checked(learner: Learner, folder: Path) -> dict[str, Any]:
    """The record of a checkpoint that this learner can go on from."""
    _same_layout(learner, folder)
    schools = learner.schools.values()
    names = [] if learner.backend.shards else [f"{OPTIMIZER}.pt"]
    names += [f"{CRITIC}.pt" for school in schools if school.critic is not None and not learner.backend.shards]
    moving = any(school.divergence.moving is not None for school in schools)
    names += [f"{ANCHOR}/{RECORD}"] if moving and not learner.backend.parted else []
    record = checkpoint.read(folder, learner.protocol, names)
    for role, school in learner.schools.items():
        found, name = (_own(record["algorithm"], learner, role) or {}).get("name"), school.algorithm.name
        if found != name:
            raise InputError(
                f"the checkpoint must be of algorithm {name}", f"{folder} is of {found}", f"set algorithm={found}"
            )
    shapes = checkpoint.shapes(folder)
    if any(shapes.get(name) != shape for name, shape in learner.policy.shapes.items()):
        raise InputError("the checkpoint must have the model's shapes", folder, f"use one made from {learner.source}")
    return record


def _same_layout(learner: Learner, folder: Path) -> None:
    checkpoint.require(folder / RECORD)
    wrote, ours = read_record(folder).get("layout"), _layout(learner)
    if isinstance(wrote, Mapping) and wrote == ours:
        return
    wrote = wrote if isinstance(wrote, Mapping) else {}
    differ = sorted(key for key in {*wrote, *ours} if wrote.get(key) != ours.get(key))
    raise InputError(
        f"a run goes on with the learner that wrote its checkpoint: {_listed(ours, differ)}",
        f"{folder} is of {_listed(wrote, differ)}",
        "set learner.* as it was, or start a new run with the folder as <role>.model",
    )


def _listed(layout: Mapping[str, Any], keys: list[str]) -> str:
    return ", ".join(f"{key}={layout.get(key, 'none')}" for key in keys)


def _layout(learner: Learner) -> dict[str, Any]:
    """How the state is cut and kept: what must be the same to read it."""
    lora = learner.config.lora
    adapter = {"lora": [lora.rank, lora.alpha, *sorted(lora.targets)]} if lora.rank else {}
    return {**learner.backend.layout, **adapter}


def _states(learner: Learner) -> dict[str, Any]:
    """Estimator and coefficient: of a learner of one role as they are, else by role."""
    algorithm = {
        role: {"name": school.algorithm.name, "state": school.algorithm.state_dict()}
        for role, school in learner.schools.items()
    }
    coef = {role: school.divergence.coef for role, school in learner.schools.items()}
    if len(learner.schools) > 1:
        return {"algorithm": algorithm, "kl_coef": coef}
    (role,) = learner.schools
    return {"algorithm": algorithm[role], "kl_coef": coef[role]}


def _own(found: Any, learner: Learner, role: str) -> Any:
    """The part of `_states` that is `role`'s."""
    return found.get(role) if len(learner.schools) > 1 and isinstance(found, Mapping) else found


def _write_anchor(aside: Path, learner: Learner, master: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    if learner.backend.parted:
        torch.save(dict(master), aside / f"{ANCHOR}-{learner.ranks.rank}.pt")
    elif learner.ranks.rank == 0:
        model = learner.policy.model
        whole = {name: master[name].cpu() for name, _ in model.named_parameters()}
        checkpoint.write_policy(aside / ANCHOR, model, whole, learner.source)
        checkpoint.write_record(aside / ANCHOR, record)


def _anchor(learner: Learner, folder: Path) -> list[tuple[str, Tensor]]:
    if learner.backend.parted:
        stored = torch.load(folder / f"{ANCHOR}-{learner.ranks.rank}.pt", map_location="cpu", weights_only=True)
        return list(stored.items())
    return list(named(checkpoint.load_model(folder / ANCHOR)))
