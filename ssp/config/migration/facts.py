"""What a launch script says, as values that other values are made with.

Owns the reading of Hydra's values and the one name of a key that has two. Refuses to translate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import yaml

from ssp.config import migration
from ssp.config.migration.script import Override

Settings = dict[str, Any]


def named(key: str) -> str:
    """The key of theirs that an option of a script sets, or the key itself."""
    found = migration.find(key)
    return found.stands_for if found else key


def system(overrides: Sequence[Override]) -> str:
    """Whose script it is, by the keys that only one of them has; verl where there is none."""
    keys = {named(override.key) for override in overrides}
    own = {
        "ssp": ("self_play.", "quark.", "custom_reward_functions."),
        "ssrl": ("data.max_infer_length", "trainer.sim2real", "trainer.use_entropy"),
        "research": ("data.use_re_call", "data.apply_chat", "data.prompt_template_name", "data.search_url"),
        "search-r1": ("data.max_start_length", "max_turns", "do_search", "retriever.", "algorithm.no_think_rl"),
    }
    return next((name for name, starts in own.items() if any(key.startswith(starts) for key in keys)), "verl")


def recipe(whose: str, overrides: Sequence[Override]) -> str:
    """The shipped config that is nearest to a script of this system."""
    given = {named(override.key): override.value or "" for override in overrides}
    if whose == "ssrl":
        return "ssrl-llama3.2-3b" if given.get("trainer.type", "").startswith("llama") else "ssrl-qwen2.5-7b"
    if whose in ("ssp", "research"):
        return f"{whose}-qwen2.5-7b"
    if any(key.startswith("algorithm.ref_policy_ema") for key in given):
        return "ema-pg-qwen2.5-3b"
    size = "7b" if "7b" in given.get("actor_rollout_ref.model.path", "").lower() else "3b"
    estimator = "ppo" if given.get("algorithm.adv_estimator") == "gae" else "grpo"
    return f"search-r1-qwen2.5-{size}-{estimator}"


class Facts:
    """All overrides of a script by key. `system`: search-r1, ssp, ssrl, research or verl; `base`: the recipe below,
    whole, as dotted keys of ours and their values."""

    def __init__(self, overrides: Sequence[Override], system: str, base: Mapping[str, Any]) -> None:
        self.given = {named(o.key): parsed(o.value) for o in overrides if o.value is not None}
        self.system, self.base = system, base

    def get(self, key: str, default: Any = None) -> Any:
        """The value that the script sets for a key of theirs."""
        return self.given.get(key, default)

    def number(self, key: str, default: float) -> float:
        """The same, where it is a number."""
        found = self.given.get(key)
        return found if is_number(found) else default

    def ours(self, key: str) -> Any:
        """What the recipe below says of a key of ours."""
        return self.base[key]

    def limit(self, name: str) -> int:
        """A limit of the recipe's solver."""
        return int(self.base[f"solver.limits.{name}"])

    @property
    def kl_in_loss(self) -> bool:
        """Whether their KL is a part of the loss."""
        return bool(self.get("actor_rollout_ref.actor.use_kl_loss", self.ours("solver.kl.place") == "loss"))

    @property
    def kl_in_reward(self) -> bool:
        """Whether it is a part of the reward."""
        return self.get("algorithm.use_kl_in_reward", not self.kl_in_loss) is True


def is_number(value: Any) -> TypeGuard[float]:
    """A finite number that some setting could have; no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def parsed(value: str) -> Any:
    """As Hydra reads it: a number with an exponent is one without a point too."""
    try:
        return float(value) if value[:1] in tuple("-+.0123456789") and "e" in value.lower() else yaml.safe_load(value)
    except (ValueError, yaml.YAMLError):
        return value
