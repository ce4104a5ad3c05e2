"""The keys that a configuration may have, and what is said of one that does not exist.

The keys of a role stand in the schema once, and in a configuration under the name of each role."""

import difflib
import functools
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from ssp.base.errors import InputError
from ssp.config.fields import hints, is_block, plain
from ssp.config.role import RoleConfig
from ssp.config.schema import Config

Place = tuple[str | int, ...]
"""Where a value stands: names of keys, numbers in lists."""


def is_fixed(name: str) -> bool:
    """Whether a key of the configuration's top has this name, whatever the game is."""
    return name in hints(Config) and name != "blocks"


@functools.cache
def all_keys(roles: tuple[str, ...]) -> dict[str, Any]:
    """Full name → type of every key, blocks included, where these roles have settings."""
    return _below(Config, "", roles)


def _below(schema: type, prefix: str, roles: tuple[str, ...]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for name, hint in hints(schema).items():
        if name == "blocks":
            named = {role: RoleConfig for role in roles}
        elif name == "players":
            named = {f"{role}s": get_args(hint)[1] for role in roles}
        elif name == "max_staleness":
            named = {name: hint, **{f"{name}.{role}": get_args(hint)[1] for role in roles}}
        else:
            named = {name: hint}
        for key, type_ in named.items():
            keys[f"{prefix}{key}"] = type_
            if is_block(type_):
                keys |= _below(type_, f"{prefix}{key}.", roles)
    return keys


def hint(place: Sequence[str | int]) -> Any:
    """The type of what stands there, None where no key is. Any name that is not the
    configuration's own may be a role's."""
    at: Any = Config
    for step in place:
        inside = plain(at)
        if is_block(inside):
            types = hints(inside)
            own = {
                name: type_ for name, type_ in types.items() if name not in ("blocks", "players")
            }
            others = get_args(types.get("blocks", types.get("players")))
            at = own.get(str(step), others[1] if others else None)
        elif get_origin(inside) in (list, dict):
            at = get_args(inside)[-1]
        else:
            return None
    return at


def value(raw: Any, place: Sequence[str | int]) -> Any:
    """What stands there in raw settings, None for nothing."""
    for step in place:
        if isinstance(raw, dict):
            raw = raw.get(step)
        else:
            raw = raw[step] if isinstance(raw, list) and isinstance(step, int) else None
    return raw


def has(raw: Any, place: Place) -> bool:
    """Whether somebody wrote the value there, or the list that it stands in."""
    for step in place:
        if isinstance(step, int):
            return isinstance(raw, list)
        if not isinstance(raw, dict) or step not in raw:
            return False
        raw = raw[step]
    return True


def shown(place: Sequence[str | int]) -> str:
    """The key as it is typed."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def unknown(place: Place, roles: tuple[str, ...], source: str) -> InputError:
    """The error for a key that does not exist, with the nearest ones that do: same last word first,
    then by spelling."""
    every, full = [*all_keys(roles)], shown(place)
    found = f"{full} in {source}"
    if full in every:
        rule = "a config file nests its keys, without dots"
        return InputError(rule, found, "indent it under its block")
    last = str(place[-1]).rsplit(".", 1)[-1]
    if ":" in last:
        name, _, value = last.partition(":")
        rule, step = (
            "a blank follows the colon of a key",
            f"write '{{{name}: {value}, ...}}', in quotes",
        )
        return InputError(rule, found, step)
    same = [
        key for key in every if key.rsplit(".", 1)[-1] == last and not key.startswith("defaults.")
    ]
    same = [key for key in same if key.split(".")[0] == full.split(".")[0]] or same
    near = same[:4] or _near(place, roles)
    step = "list all keys with: ssp train --dry-run"
    if near:
        step = f"did you mean {' or '.join(near)}"
    if len(place) == 1 and not same and not set(near) & set(roles):
        step += f" (the game's roles are {' and '.join(roles)})"
    return InputError("every config key must exist", found, step)


def _near(place: Place, roles: tuple[str, ...]) -> list[str]:
    """The key that is spelt most alike, beside it rather than elsewhere."""
    above, full = shown(place[:-1]), shown(place)
    block = plain(hint(place[:-1]))
    beside = [key for key in all_keys(roles) if key.rpartition(".")[0] == above]
    if "[" in full and is_block(block):
        beside = [f"{above}.{name}" for name in hints(block)]
    near = difflib.get_close_matches(full, beside, n=1)
    return near or difflib.get_close_matches(full, all_keys(roles), n=1)
