"""The keys that a configuration may have, and what is said of one that does not exist.

The keys of a role stand in the schema once, and in a configuration under the name of each role."""

import difflib
import functools
import re
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from ssp.base.episode import ROLES
from ssp.base.errors import InputError
from ssp.config.fields import hints, is_block, schema_of
from ssp.config.schema import Config

Place = tuple[str | int, ...]
"""Where a value stands: names of keys, numbers in lists."""
_PATTERNS = {"blocks": "{}", "players": "{}s", "max_staleness": "max_staleness.{}"}
"""Fields that hold a value of each role → the keys under which it is typed."""
ELSEWHERE = {
    "steps": "max_steps total_steps num_steps training_steps num_train_epochs num_epochs",
    "learner.lr": "learning_rate",
    "batch": "batch_size train_batch_size global_batch_size rollout_batch_size",
    "learner.minibatch": "mini_batch_size mini_batch ppo_mini_batch_size",
    "learner.token_budget": "micro_batch_size micro_batch per_device_train_batch_size"
    " gradient_accumulation_steps",
    "learner.checkpointing": "gradient_checkpointing",
    "learner.lora.rank": "lora_rank lora_r",
    "game.attempts": "n num_generations group_size rollout_n n_samples num_samples rollouts",
    "limits.turn_tokens": "max_tokens max_new_tokens max_completion_length",
    "limits.total_tokens": "max_length max_seq_length max_model_len max_response_length",
    "limits.searches": "max_turns max_searches turns",
    "kl.coef": "kl_coef kl_loss_coef beta",
    "engine.tensor_parallel": "tensor_parallel_size tp tp_size",
    "engine.memory": "gpu_memory_utilization",
    "placement.nodes": "gpus n_gpus num_gpus",
    "eval.every": "eval_steps eval_freq test_freq eval_interval",
    "save.every": "save_steps save_freq save_interval",
    "save.keep": "save_total_limit",
    "run.dir": "output_dir out_dir save_dir",
    "run.name": "run_name experiment_name",
    "data.questions": "dataset train_files train_data",
    "data.eval": "val_files test_files eval_dataset",
}
"""A key of ours, of the roles without the role's name → what other trainers call it."""


def is_fixed(name: str) -> bool:
    """Whether a key of the configuration's top has this name, whatever the game is."""
    return name in hints(Config) and name not in _PATTERNS


@functools.cache
def all_keys(roles: tuple[str, ...]) -> dict[str, Any]:
    """Full name → type of every key, blocks included, where these roles have settings. What stands
    in a list is called `LIST[]`."""
    return _below(Config, "", roles)


def _below(schema: Any, prefix: str, roles: tuple[str, ...]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for name, hint in hints(schema).items():
        inside = get_args(hint)
        if name not in _PATTERNS or name == "max_staleness":
            keys[f"{prefix}{name}"] = hint
        if name in _PATTERNS:
            typed = _PATTERNS[name]
            keys |= {f"{prefix}{typed.format(role)}": inside[1] for role in roles}
        if get_origin(hint) is list:
            keys[f"{prefix}{name}[]"] = inside[0]
    for key, hint in list(keys.items()):
        if is_block(hint):
            keys |= _below(schema_of(hint), f"{key}.", roles)
    return keys


def shown(place: Sequence[str | int]) -> str:
    """The key as it is typed."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]
    return "".join(steps).removeprefix(".")


def hint(place: Sequence[str | int], roles: tuple[str, ...]) -> Any:
    """The type of what stands there, None where no key is."""
    return all_keys(roles).get(_pattern(shown(place)))


def _pattern(key: str) -> str:
    return re.sub(r"\[\d+\]", "[]", key)


def value(raw: Any, place: Sequence[str | int]) -> Any:
    """What stands there in raw settings, None for nothing."""
    for step in place:
        if isinstance(raw, dict):
            raw = raw.get(step)
        else:
            raw = raw[step] if isinstance(raw, list) and isinstance(step, int) else None
    return raw


def default(place: Place) -> Any:
    """What a setting is where nobody says it; None for what stands in a list. All roles have the
    defaults of a role."""
    value: Any = Config()
    first, *rest = place
    for step in (first if is_fixed(str(first)) else "defaults", *rest):
        value = getattr(value, str(step), None)
    return value


def has(raw: Any, place: Place) -> bool:
    """Whether somebody wrote the value there, or the list that it stands in."""
    for step in place:
        if isinstance(step, int):
            return isinstance(raw, list)
        if not isinstance(raw, dict) or step not in raw:
            return False
        raw = raw[step]
    return True


def unknown(place: Place, roles: tuple[str, ...], source: str) -> InputError:
    """The error for a key that does not exist, with the nearest ones that do: same last word first,
    then by spelling."""
    every = list(all_keys(roles))
    full = shown(place)
    where = f"{full} in {source}"
    last = str(place[-1]).rsplit(".", 1)[-1]
    if full in every:
        rule = "a config file nests its keys, without dots"
        return InputError(rule, where, "indent it under its block")
    if ":" in last:
        name, _, text = last.partition(":")
        step = f"write '{{{name}: {text}, ...}}', in quotes"
        return InputError("a blank follows the colon of a key", where, step)

    called = last.removesuffix("s") if place[0] == "placement" else last
    if called in ROLES:
        step = f"the game's roles are {' and '.join(roles)}"
        return InputError("every config key must exist", where, step)

    same = _called_alike(last, str(place[0]), roles)
    near = same or _spelt_alike(place, every)
    step = "list all keys with: ssp train --dry-run"
    if near:
        step = f"did you mean {' or '.join(near)}"
    if len(place) == 1 and not same and not set(near) & set(roles):
        step += f" (the game's roles are {' and '.join(roles)})"
    return InputError("every config key must exist", where, step)


def option(name: str, roles: tuple[str, ...]) -> str:
    """The settings that an option of no command may mean, `--batch-size`; "" where none is near."""
    key = name.lstrip("-").replace("-", "_")
    near = [key]
    if key not in all_keys(roles):
        near = _called_alike(key.rpartition(".")[2], key.partition(".")[0], roles)
    return " or ".join(f"{one}=VALUE" for one in near)


def _called_alike(last: str, first: str, roles: tuple[str, ...]) -> list[str]:
    """Four keys at most that end in this word, or mean what other trainers call so; those of the
    block `first`, where it has some."""
    every = all_keys(roles)
    same = [key for key in every if key.rpartition(".")[2] == last]
    for ours, names in ELSEWHERE.items():
        if last in names.split():
            same = [ours] if ours in every else [f"{role}.{ours}" for role in roles]
    same = [key for key in same if "[]" not in key and not key.startswith("defaults.")]
    beside = [key for key in same if key.split(".")[0] == first]
    return (beside or same)[:4]


def _spelt_alike(place: Place, every: list[str]) -> list[str]:
    """The key that is spelt most alike, beside it rather than elsewhere."""
    above = shown(place[:-1])
    block = _pattern(above)
    beside = [key for key in every if key.rpartition(".")[0] == block]
    near = difflib.get_close_matches(_pattern(shown(place)), beside, n=1)
    if near and above:
        name = near[0].rpartition(".")[2]
        return [f"{above}.{name}"]
    return near or difflib.get_close_matches(shown(place), every, n=1)
