"""The keys that a configuration may have, and what is said of one that does not exist.

The keys of a role stand in the schema once, and in a configuration under the name of each role."""

import difflib
import functools
import re
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from ssp.base.errors import InputError
from ssp.config.fields import hints, is_block, schema_of
from ssp.config.schema import Config

Place = tuple[str | int, ...]
"""Where a value stands: names of keys, numbers in lists."""
_PATTERNS = {"blocks": "{}", "players": "{}s", "max_staleness": "max_staleness.{}"}
"""Fields that hold a value of each role → the keys under which it is typed."""


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

    same = [key for key in every if key.rpartition(".")[2] == last]
    same = [key for key in same if "[]" not in key and not key.startswith("defaults.")]
    beside = [key for key in same if key.split(".")[0] == place[0]]
    near = (beside or same)[:4] or _spelt_alike(place, every)
    step = "list all keys with: ssp train --dry-run"
    if near:
        step = f"did you mean {' or '.join(near)}"
    if len(place) == 1 and not same and not set(near) & set(roles):
        step += f" (the game's roles are {' and '.join(roles)})"
    return InputError("every config key must exist", where, step)


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
