"""The keys that a configuration may have, and what is said of one that does not exist."""

import difflib
from dataclasses import is_dataclass
from typing import Any, cast, get_args, get_origin

from ssp.base.errors import InputError, hold
from ssp.config.fields import hints
from ssp.config.schema import Config


def check_keys(raw: object, schema: type, prefix: str, source: str) -> None:
    """Every key of `raw` exists in `schema`, blocks are blocks and lists are lists, at any
    depth."""
    if not isinstance(raw, dict):
        keys = ", ".join(hints(schema))
        rule = f"{prefix.rstrip('.')} in {source} is a block of settings"
        raise InputError(rule, repr(raw), f"set one of its keys instead: {keys}")
    types = hints(schema)
    for key, value in raw.items():
        full = f"{prefix}{key}"
        if key not in types:
            raise _unknown(full, [f"{prefix}{name}" for name in types], source)
        hold(
            value != "???",
            "every key needs a value",
            f"{full}: ??? in {source}",
            "set it, or leave it out",
        )
        hint = types[key]
        if is_dataclass(hint):
            check_keys(value, cast(type, hint), f"{full}.", source)
        elif get_origin(hint) is list:
            if not isinstance(value, list):
                raise InputError(
                    f"{full} in {source} is a list",
                    repr(value),
                    f"write the whole list: {full}=[...]",
                )
            item_schema = get_args(hint)[0]
            for index, item in enumerate(value):
                if is_dataclass(item_schema):
                    check_keys(item, cast(type, item_schema), f"{full}[{index}].", source)
                elif isinstance(item, list | dict):
                    raise InputError(
                        f"{full} in {source} is a list of words",
                        repr(value),
                        f"write {full}=[a, b]",
                    )
        elif get_origin(hint) is dict and not isinstance(value, dict):
            raise InputError(
                f"{full} in {source} is a block", repr(value), f"write {full}.KEY=VALUE"
            )


def _unknown(full: str, siblings: list[str], source: str) -> InputError:
    """The error for a key that does not exist, with the nearest ones that do: same last word first,
    then by spelling."""
    every, found = [*all_keys(Config, "")], f"{full} in {source}"
    if full in every:
        return InputError(
            "a config file nests its keys, without dots", found, "indent it under its block"
        )
    last = full.rsplit(".", 1)[-1]
    if ":" in last:
        name, _, value = last.partition(":")
        return InputError(
            "a blank follows the colon of a key",
            found,
            f"write '{{{name}: {value}, ...}}', in quotes",
        )
    same = [
        key for key in every if key.rsplit(".", 1)[-1] == last and not key.startswith("defaults.")
    ]
    same = [key for key in same if key.split(".")[0] == full.split(".")[0]] or same
    near = difflib.get_close_matches(full, siblings, n=1) or difflib.get_close_matches(
        full, every, n=1
    )
    guess = " or ".join(same[:4] or near)
    hint = f"did you mean {guess}" if guess else "list all keys with: ssp train --dry-run"
    return InputError("every config key must exist", found, hint)


def all_keys(schema: type, prefix: str) -> dict[str, Any]:
    """Full name → type of every key, blocks included."""
    found: dict[str, Any] = {}
    for name, hint in hints(schema).items():
        found[f"{prefix}{name}"] = hint
        if is_dataclass(hint):
            found |= all_keys(cast(type, hint), f"{prefix}{name}.")
    return found
