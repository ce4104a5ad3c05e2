"""From the reference systems' keys to ours (`keys.yaml`); `variables.py` does the same for SSP's
environment variables, `command.py` for a launch script.

Refuses to know the schema (tests look every key up in it), to read configs, and to print."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ssp.config.gone import rows

TABLE = Path(__file__).with_name("keys.yaml")


@dataclass(frozen=True)
class Key:
    """One key of theirs: `ours`, those of ours that stand for it (none: `note` says why), and a
    word about values."""

    name: str
    ours: tuple[str, ...]
    note: str
    how: Any = None
    """What becomes of a value; its forms stand at the top of keys.yaml."""

    @property
    def stands_for(self) -> str:
        """The key that has another name here; any other key's own name."""
        option = isinstance(self.how, dict) and "as" in self.how
        return str(self.how["as"]) if option else self.name


@dataclass(frozen=True)
class Section:
    """Keys of one system, under a title."""

    title: str
    keys: tuple[Key, ...]


@functools.cache
def sections() -> dict[str, Section]:
    """The table of keys, by system."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    made = {}
    for system, part in table.items():
        keys = []
        for name, (ours, *rest) in part["keys"].items():
            keys.append(Key(name, tuple(ours.split()), *rest))
        made[system] = Section(part["title"], tuple(keys))
    return made


@functools.cache
def find(name: str, system: str = "verl") -> Key | None:
    """Their key of that name, or the row of a block that it lies in (`reward_model.*`). Where two
    systems have it, that of `system`, whose script has it, else of the first."""
    known: dict[str, Key] = {}
    for one in (system, *sections()):
        for key in sections()[one].keys:
            known.setdefault(key.name, key)
    return next((known[row] for row in rows(name) if row in known), None)


def word(name: str) -> str:
    """Which keys of ours stand for one of theirs, or why none does; "" for a key of nobody's."""
    key = find(name)
    if key is None:
        return ""
    if not key.ours:
        return f"{key.name} has none: {key.note}"
    return f"{key.name} is {' and '.join(key.ours)}"
