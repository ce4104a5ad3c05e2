"""Which settings of a learner's program may stand together: backend, ranks, adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

from ssp.base.episode import SOLVER
from ssp.base.errors import InputError
from ssp.config import own
from ssp.config.role import LearnerConfig, LoraConfig, RoleConfig
from ssp.config.schema import Config

RATE = ("lr", "warmup_steps", "schedule")
"""Settings of an optimizer step's rate, which each role's own step may have of its own."""


def trusted(loss: str) -> bool:
    """Whether a loss uses the behaviour log-probs (law 5). Of a run that is only looked at its own code is not asked."""
    return own.sealed(loss) or own.says(loss, "trust_region") is True


def zero_is_deepspeeds(cfg: Config) -> None:
    """ZeRO and what goes to the host are DeepSpeed's; only with weights in parts (ZeRO 3) may these go there too."""
    standard = LearnerConfig()
    for role, block in _learning(cfg):
        learner = block.learner
        for key, value, default in (
            ("zero", learner.zero, standard.zero),
            ("offload", learner.offload, standard.offload),
        ):
            if learner.kind != "deepspeed" and value != default:
                rule = f"{role}.learner.{key} counts only with {role}.learner.kind=deepspeed"
                raise InputError(rule, value, f"set {role}.learner.kind=deepspeed, or {role}.learner.{key}={default}")
        if learner.offload == "all" and learner.zero != 3:
            rule = f"{role}.learner.offload=all moves the parts of the weights, which {role}.learner.zero=3 makes"
            raise InputError(rule, f"zero={learner.zero}", f"set {role}.learner.zero=3, or offload=optimizer")


def ranks_are_deepspeeds(cfg: Config) -> None:
    """torch trains in one process; of what learns nothing, `ranks` are a number for plans."""
    for role in cfg.roles:
        learner = cfg.block(role).learner
        if learner.kind == "torch" and learner.ranks > 1:
            rule = f"{role}.learner.kind=torch is one process, so it has one rank"
            raise InputError(
                rule, f"ranks={learner.ranks}", f"set {role}.learner.kind=deepspeed, or {role}.learner.ranks=1"
            )


def adapters_fit(cfg: Config) -> None:
    """What belongs to adapters counts with them; the base below them is the reference, and stays where it is."""
    standard = LoraConfig()
    for role, block in _learning(cfg):
        lora = block.learner.lora
        if not lora.rank and lora.alpha != standard.alpha:
            rule = f"{role}.learner.lora.alpha counts only with a rank above 0"
            raise InputError(rule, "rank=0", f"set {role}.learner.lora.rank=16, or leave these alone")
        if lora.rank and block.kl.ema_tau < 1:
            rule = f"the KL reference of {role}'s adapter is its base, which does not move"
            raise InputError(rule, f"kl.ema_tau={block.kl.ema_tau}", f"set {role}.kl.ema_tau=1, or learner.lora.rank=0")


def combined_roles_share(cfg: Config) -> None:
    """One optimizer step for two roles needs one set of weights."""
    for role, block in _learning(cfg):
        if block.learner.combine and block.policy != "shared":
            rule = f"{role}.learner.combine is a setting of policy=shared"
            raise InputError(rule, f"policy={block.policy}", f"set {role}.learner.combine=false")


def both_roles_share(cfg: Config) -> None:
    """A policy is shared by the two roles that play: one model, one program that trains it, one pace."""
    shared = [role for role in cfg.roles if cfg.block(role).policy == "shared"]
    if not shared:
        return
    if len(cfg.roles) < 2:
        rule = "policy=shared is one policy for the proposer and the solver, and nobody proposes here"
        raise InputError(rule, f"game.questions={cfg.game.questions}", "set solver.policy=own")
    if len(shared) < 2:
        found = " ".join(f"{role}.policy={cfg.block(role).policy}" for role in cfg.roles)
        raise InputError("policy=shared is one policy for both roles", found, "set defaults.policy=shared")
    asks, answers = cfg.proposer, cfg.solver
    rule = "roles with policy=shared have one {}"
    if asks.model != answers.model:
        raise InputError(rule.format("model"), f"{asks.model} and {answers.model}", "set defaults.model only")
    own = ("minibatch",) if asks.learner.combine or answers.learner.combine else ("minibatch", *RATE)
    for item in fields(LearnerConfig):
        one, other = (getattr(block.learner, item.name) for block in (asks, answers))
        if one != other and item.name not in own:
            found = f"learner.{item.name}: {one} and {other}"
            more = ", and with combine=true one learning rate" if item.name in RATE else ""
            raise InputError(rule.format("learner") + more, found, f"set defaults.learner.{item.name} only")
    bounds = cfg.schedule.max_staleness
    if bounds.proposer != bounds.solver:
        found = f"proposer {bounds.proposer}, solver {bounds.solver}"
        raise InputError(
            rule.format("staleness bound: both train in the same step"), found, "set both schedule.max_staleness alike"
        )


def shared_policies_can_be_kept(cfg: Config) -> None:
    """A checkpoint of a shared policy has no room for a critic or an anchor a role."""
    for role, block in _sharing(cfg):
        if block.algorithm == "gae":
            rule = f"{role}.algorithm=gae has a critic of one role, which a shared policy has no place for"
            raise InputError(rule, f"{role}.policy=shared", f"set {role}.algorithm=grpo, or defaults.policy=own")
        if block.kl.coef > 0 and block.kl.ema_tau < 1:
            rule = "the KL reference of a shared policy is its start for both roles, and does not move"
            raise InputError(rule, f"{role}.kl.ema_tau={block.kl.ema_tau}", f"set {role}.kl.ema_tau=1")


def second_step_needs_trust_region(cfg: Config) -> None:
    """The proposer's step comes first, so that the solver's policy is not the one that sampled any more (law 1)."""
    for role, block in _sharing(cfg):
        if role == SOLVER and not block.learner.combine and not trusted(block.loss):
            known = own.saying("trust_region")
            rule = f"solver.loss is one of {known} where a shared policy takes the proposer's step first"
            step = "set solver.loss=ppo_clip, or defaults.learner.combine=true"
            raise InputError(rule, f"solver.loss={block.loss}", step)


RULES: tuple[Callable[[Config], None], ...] = (
    zero_is_deepspeeds,
    ranks_are_deepspeeds,
    adapters_fit,
    combined_roles_share,
    both_roles_share,
    shared_policies_can_be_kept,
    second_step_needs_trust_region,
)


def _sharing(cfg: Config) -> Iterator[tuple[str, RoleConfig]]:
    return ((role, block) for role, block in _learning(cfg) if block.policy == "shared")


def _learning(cfg: Config) -> Iterator[tuple[str, RoleConfig]]:
    for role in cfg.roles:
        if cfg.block(role).policy != "frozen":
            yield role, cfg.block(role)
