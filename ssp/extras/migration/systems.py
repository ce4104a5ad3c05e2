"""Whose launch script it is, by its keys: the system, the recipe that is nearest to it, and all that
it sets, typed."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import yaml

from ssp.extras import migration
from ssp.extras.migration.script import Override

OWN = {
    "ssp": ("self_play.", "quark.", "custom_reward_functions."),
    "ssrl": ("data.max_infer_length", "trainer.sim2real", "trainer.use_entropy"),
    "research": (
        "data.use_re_call",
        "data.apply_chat",
        "data.prompt_template_name",
        "data.search_url",
    ),
    "r-zero": ("worker.", "data.rollout_batch_size", "trainer.max_steps"),
    "search-r1": (
        "data.max_start_length",
        "max_turns",
        "do_search",
        "retriever.",
        "algorithm.no_think_rl",
    ),
}
"""System → how keys begin that it alone has."""

ONE_KL = ("search-r1", "r-zero")
"""Systems whose KL is in the reward where it is not in the loss."""


def named(key: str) -> str:
    """The key of theirs that has this other name, or the key itself."""
    row = migration.find(key)
    return row.stands_for if row else key


def system(overrides: Sequence[Override]) -> str:
    """Whose script it is, by the keys that only one of them has; verl where there is none."""
    keys = {name for override in overrides for name in (override.key, named(override.key))}
    for name, starts in OWN.items():
        if any(key.startswith(starts) for key in keys):
            return name
    return "verl"


def is_verls(key: str) -> bool:
    """Whether a key of theirs is verl's, or nobody's that is known."""
    row = migration.find(key)
    return row is None or row in migration.sections()["verl"].keys


def recipe(whose: str, overrides: Sequence[Override]) -> str:
    """The shipped config that is nearest to a script of this system."""
    given = {named(override.key): override.value or "" for override in overrides}
    if whose == "ssrl":
        llama = given.get("trainer.type", "").startswith("llama")
        return "ssrl-llama3.2-3b" if llama else "ssrl-qwen2.5-7b"
    if whose in ("ssp", "research"):
        return f"{whose}-qwen2.5-7b"
    if whose == "r-zero":
        return "r-zero-qwen3-4b"
    if any(key.startswith("algorithm.ref_policy_ema") for key in given):
        return "ema-pg-qwen2.5-3b"
    model = given.get("actor_rollout_ref.model.path", "")
    size = "7b" if "7b" in model.lower() else "3b"
    estimator = "ppo" if given.get("algorithm.adv_estimator") == "gae" else "grpo"
    return f"search-r1-qwen2.5-{size}-{estimator}"


class Facts:
    """All overrides of a script by key. `system`: a name in `OWN`, or verl. `base`: the recipe
    below, whole, as dotted keys of ours and their values."""

    def __init__(self, overrides: Sequence[Override], system: str, base: Mapping[str, Any]) -> None:
        self.given: dict[str, Any] = {}
        for override in overrides:
            if override.value is not None:
                self.given[named(override.key)] = parsed(override.value)
        self.system, self.base = system, base

    def get(self, key: str, default: Any = None) -> Any:
        """The value that the script sets for a key of theirs."""
        return self.given.get(key, default)

    def on(self, key: str) -> bool:
        """Whether the script switches a key of theirs on."""
        return self.given.get(key) is True

    def number(self, key: str, default: float) -> float:
        """The value that the script sets for a key of theirs, where it is a number."""
        value = self.given.get(key)
        return value if is_number(value) else default

    def limit(self, name: str) -> int:
        """A limit of the recipe's solver."""
        return int(self.base[f"solver.limits.{name}"])

    @property
    def role(self) -> str:
        """Our block of the role that the script trains."""
        if self.system == "ssp":
            return "defaults"
        asks = "questioner" in str(self.get("data.format_prompt"))
        return "challenger" if self.system == "r-zero" and asks else "solver"

    @property
    def kl_in_loss(self) -> bool:
        """Whether their KL is a part of the loss."""
        usual = self.base["solver.kl.place"] == "loss"
        used = bool(self.get("actor_rollout_ref.actor.use_kl_loss", usual))
        return used and not self.on("algorithm.disable_kl")

    @property
    def kl_in_reward(self) -> bool:
        """Whether their KL is a part of the reward."""
        one = self.system in ONE_KL and not self.on("algorithm.disable_kl")
        usual = one and not self.kl_in_loss
        return self.get("algorithm.use_kl_in_reward", usual) is True


def is_number(value: Any) -> TypeGuard[float]:
    """A finite number that some setting could have; no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def parsed(value: str) -> Any:
    """A value as Hydra reads it: what has an exponent is a number without a point too."""
    try:
        if value[:1] in tuple("-+.0123456789") and "e" in value.lower():
            return float(value)
        return yaml.safe_load(value)
    except (ValueError, yaml.YAMLError):
        return value
