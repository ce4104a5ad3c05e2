"""Learning settings that another setting makes idle.

Owns the table of what each needs. Promises that a value which would change nothing is refused, with what would make it
count: nothing is ignored silently. A role that does not learn, and the KL of a role without one (`kl.coef` 0), are switched
off as a whole, and what they would do otherwise is nobody's mistake. Refuses to judge values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ssp import own
from ssp.config.role import RoleConfig
from ssp.config.schema import Config, HealthConfig
from ssp.episode import PROPOSER
from ssp.errors import InputError

TOP_K = ("topk_reverse", "topk_forward")
CLIPPED = ("ppo_clip", "gspo", "decoupled")
"""Losses with a clipped surrogate."""


@dataclass(frozen=True)
class Need:
    """`keys` count only where the setting `by` has one of `values`; `default`s of theirs are let pass."""

    keys: tuple[str, ...]
    by: str
    values: tuple[Any, ...]


NEEDS = (
    Need(("baseline",), "algorithm", ("reinforce",)),
    Need(("gamma",), "algorithm", ("reinforce_pp", "reinforce_pp_baseline", "gae", "remax")),
    Need(("lam",), "algorithm", ("gae",)),
    Need(("critic.lr", "critic.value_clip", "critic.warmup_steps"), "algorithm", ("gae",)),
    Need(("clip_low", "clip_high"), "loss", (*CLIPPED, "cispo")),
    Need(("clip_dual",), "loss", CLIPPED),
    Need(("tis_cap",), "loss", ("tis", "decoupled")),
    Need(("correction.low", "correction.high"), "correction.mask", ("token", "sequence")),
)
OWN_TAKES = ("gamma", "lam", "clip_low", "clip_dual", "tis_cap")
"""First keys of the needs that a user's own estimator or loss may read as well."""

KL_NEEDS = (
    Need(("kl.topk", "kl.variant"), "kl.kind", TOP_K),
    Need(("kl.weight",), "kl.place", ("loss",)),
    Need(("kl.weight_low", "kl.weight_high"), "kl.weight", (True,)),
)


def settings_have_an_effect(cfg: Config) -> None:
    """A setting has its default where it would do nothing."""
    standard = RoleConfig()
    for role, block in _learning(cfg):
        for need in (*NEEDS, *(KL_NEEDS if block.kl.coef else ())):
            chosen = _get(block, need.by)
            if chosen in need.values or (own.is_own(str(chosen)) and need.keys[0] in OWN_TAKES):
                continue
            for key in need.keys:
                value, default = _get(block, key), _get(standard, key)
                if value != default:
                    wanted = " or ".join(_shown(v) for v in need.values)
                    raise InputError(
                        f"{role}.{key} counts only with {role}.{need.by}={wanted}",
                        f"{role}.{key}={_shown(value)} with {role}.{need.by}={_shown(_get(block, need.by))}",
                        f"leave {role}.{key} at {_shown(default)}, or set {role}.{need.by}={_shown(need.values[0])}",
                    )


def kl_is_steered_or_followed(cfg: Config) -> None:
    """A horizon belongs to a target, a period to an average, a weight to a KL of sampled tokens."""
    standard = RoleConfig().kl
    for role, block in _learning(cfg):
        kl = block.kl
        if kl.horizon != standard.horizon and not kl.target:
            raise InputError(
                f"{role}.kl.horizon counts only with a kl.target above 0", kl.horizon, "set the target too"
            )
        if kl.ema_every != standard.ema_every and kl.ema_tau == 1:
            raise InputError(
                f"{role}.kl.ema_every counts only with kl.ema_tau below 1", kl.ema_every, "set ema_tau too"
            )
        if kl.weight and kl.kind == "full":
            rule = f"{role}.kl.weight corrects sampled tokens, of which kl.kind=full uses none"
            raise InputError(rule, "weight=true", f"set {role}.kl.weight=false")


def corrections_keep_what_agrees(cfg: Config) -> None:
    """Where trainer and sampler agree the ratio is 1, and such tokens must stay."""
    for role, block in _learning(cfg):
        low, high = block.correction.low, block.correction.high
        if block.correction.mask != "none" and not low <= 1.0 <= high:
            rule = f"{role}.correction.low is at most 1 and {role}.correction.high at least 1"
            raise InputError(rule, f"low={low}, high={high}", f"set {role}.correction.low=0.5 {role}.correction.high=5")


def kl_in_the_loss_has_a_gradient(cfg: Config) -> None:
    """The gradient of k1 is 0 in expectation: in the loss its coefficient adds noise and holds nothing back."""
    for role, block in _learning(cfg):
        if block.kl.coef and block.kl.kind == "k1" and block.kl.place == "loss":
            rule = f"{role}.kl.kind=k1 has no gradient in expectation, so {role}.kl.place is reward or advantage"
            raise InputError(rule, "place=loss", f"set {role}.kl.place=reward, or {role}.kl.kind=k3")


def dual_clip_spares_what_agrees(cfg: Config) -> None:
    """Ye 2020: the bound is above 1; at 1 or below, tokens with the ratio 1 of on-policy data would lose their gradient."""
    for role, block in _learning(cfg):
        if 0 < block.clip_dual <= 1:
            rule = f"{role}.clip_dual is 0 (none) or above 1, the ratio of tokens on policy"
            raise InputError(rule, f"{block.clip_dual:g}", f"set {role}.clip_dual=3")


def difficulty_has_its_reward(cfg: Config) -> None:
    """One of the proposer's rewards aims at a difficulty."""
    block = cfg.proposer
    wanted = block.reward == "target_difficulty" or block.target_difficulty == RoleConfig().target_difficulty
    if PROPOSER in cfg.roles and block.policy != "frozen" and not wanted:
        rule = "proposer.target_difficulty counts only with proposer.reward=target_difficulty"
        raise InputError(rule, f"proposer.reward={block.reward}", "set proposer.reward=target_difficulty")


def rollbacks_have_a_cause(cfg: Config) -> None:
    """A run goes back only after a collapse that somebody watches for, and only where it is told to."""
    health = cfg.health
    if health.on_collapse == "rollback" and not health.collapse:
        rule = "health.on_collapse=rollback answers a collapse, which health.collapse=0 does not watch for"
        raise InputError(rule, "health.collapse=0", "set health.collapse=0.1, or leave health.on_collapse out")
    if health.on_collapse != "rollback" and health.rollbacks != HealthConfig().rollbacks:
        rule = "health.rollbacks counts only with health.on_collapse=rollback"
        raise InputError(rule, f"health.on_collapse={health.on_collapse}", "set health.on_collapse=rollback")


def anchors_have_questions(cfg: Config) -> None:
    """The anchor is evaluated on the first evaluation set."""
    if cfg.eval.anchor_every and not cfg.data.eval:
        rule = "eval.anchor_every evaluates on the first set of data.eval"
        raise InputError(rule, "data.eval=[]", "add a set, or set eval.anchor_every=0")


RULES: tuple[Callable[[Config], None], ...] = (
    settings_have_an_effect,
    kl_is_steered_or_followed,
    kl_in_the_loss_has_a_gradient,
    corrections_keep_what_agrees,
    dual_clip_spares_what_agrees,
    difficulty_has_its_reward,
    rollbacks_have_a_cause,
    anchors_have_questions,
)


def _learning(cfg: Config) -> Iterator[tuple[str, RoleConfig]]:
    for role in cfg.roles:
        if cfg.block(role).policy != "frozen":
            yield role, cfg.block(role)


def _get(block: RoleConfig, key: str) -> Any:
    value: Any = block
    for step in key.split("."):
        value = getattr(value, step)
    return value


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
