"""Which settings of a learner's program may stand together: backend, ranks, adapters.

Owns the rules, each small and named by what it guards. Promises that a setting which would have no effect is refused.
Refuses to read files, and to know whether something fits into memory (`ssp.memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ssp.config.role import LearnerConfig, LoraConfig, RoleConfig
from ssp.config.schema import Config
from ssp.errors import InputError


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


def adapters_fit(cfg: Config) -> None:
    """What belongs to adapters counts with them; the base below them is the reference, and stays where it is."""
    standard = LoraConfig()
    for role, block in _learning(cfg):
        lora = block.learner.lora
        if not lora.rank and (lora.alpha, list(lora.targets)) != (standard.alpha, list(standard.targets)):
            rule = f"{role}.learner.lora.alpha and targets count only with a rank above 0"
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


RULES: tuple[Callable[[Config], None], ...] = (zero_is_deepspeeds, adapters_fit, combined_roles_share)


def _learning(cfg: Config) -> Iterator[tuple[str, RoleConfig]]:
    for role in cfg.roles:
        if cfg.block(role).policy != "frozen":
            yield role, cfg.block(role)
