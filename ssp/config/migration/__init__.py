"""From the reference systems' names to ours: configuration keys (`keys.yaml`) and environment
variables.

Owns the table and what follows from it: which key of ours one of theirs is, which settings their
variables make. Promises that a variable counts only where neither the config's file nor the command
line sets the key, or another one that decides the same, that each variable which is seen is told in
one line, and that no line holds a value. Refuses to know the schema (tests look every key up in
it), to read configs, and to print."""

import functools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ssp.base.errors import hold

PAGE = "docs/migration.md"
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
        """The key that an option of a script sets; any other key's own name."""
        return str(self.how["as"]) if isinstance(self.how, dict) and "as" in self.how else self.name


@dataclass(frozen=True)
class Section:
    """Keys of one system, under a title."""

    title: str
    keys: tuple[Key, ...]


@functools.cache
def sections() -> dict[str, Section]:
    """The table of keys, by system."""
    raw = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    found = dict[str, Section]()
    for system, part in raw.items():
        keys = (
            Key(name, tuple(ours.split()), *rest) for name, (ours, *rest) in part["keys"].items()
        )
        found[system] = Section(part["title"], tuple(keys))
    return found


def find(name: str) -> Key | None:
    """Their key of that name, as typed (Hydra's + before it does not count), or the row of a block
    that it lies in (`reward_model.*`). A role's own key is also looked up as one of `defaults`;
    `key=value` is a value that is gone."""
    keys = {key.name: key for section in reversed(sections().values()) for key in section.keys}
    wanted = name.lstrip("+~")
    role, _, rest = wanted.partition(".")
    names = [wanted, f"defaults.{rest}"] if role in ("proposer", "solver") else [wanted]
    for full in names:
        block = full.partition("=")[0]
        rows = [full]
        while "." in block and "=" not in full:
            block = block.rpartition(".")[0]
            rows.append(f"{block}.*")
        for row in rows:
            if found := keys.get(row):
                return found
    return None


def advice(names: Collection[str]) -> str:
    """What to write in place of these keys of theirs, or why one of ours is gone; "" when the table
    has none of them."""
    known = [key for key in map(find, names) if key is not None]
    said = "; ".join(f"{key.name} {_word(key)}" for key in known)
    return f"{said} (values: {PAGE})" if said else ""


def gone(name: str) -> bool:
    """Whether it was a setting of ours."""
    return find(name) in sections()["gone"].keys


def _word(key: Key) -> str:
    if key in sections()["gone"].keys:
        return f"is gone: {key.note}"
    return f"is {' and '.join(key.ours)}" if key.ours else f"has none: {key.note}"


_RAW = yaml.safe_load(TABLE.with_name("variables.yaml").read_text(encoding="utf-8"))
TEMPLATES: dict[str, str] = _RAW["templates"]
"""Values of QUARK_SEARCH_CHAT_TEMPLATE → our protocols."""
VARIABLES: dict[str, tuple[str, str]] = {
    name: (ours, word) for name, (ours, word) in _RAW["accepted"].items()
}
"""Variables of SSP's launch script that are accepted → the key of ours, and a word."""
TOLD: dict[str, str] = _RAW["told"]
"""Variables of that script whose names belong to anybody: not taken, and told only beside one that
SSP alone has."""


def environment(
    env: Mapping[str, str], stated: Mapping[str, object]
) -> tuple[list[str], list[str]]:
    """Settings (`key=value`, to go below what is typed) from the variables that `env` has, and a
    line a variable. `stated`: dotted keys that the config's file or the command line sets, with
    their values as written; these win. An empty variable is none. InputError: a template that is
    none of SSP's."""
    settings: list[str] = []
    notes: list[str] = []
    for variable in VARIABLES:
        value = env.get(variable, "").strip()
        if not value:
            continue
        key = VARIABLES[variable][0]
        says = {
            name: text
            for name, text in stated.items()
            if _same(name, key) or _instead(name, text, key)
        }
        if any(f"oc.env:{variable}" in str(text) for text in says.values()):
            notes.append(f"{variable} sets {key}, as the config says")
        elif says:
            set_ = key if any(_same(name, key) for name in says) else ", ".join(says)
            notes.append(f"{variable} is not used: the config or the command line sets {set_}")
        else:
            made = {
                k: v
                for k, v in _settings(variable, value, env).items()
                if not any(_same(n, k) for n in stated)
            }
            settings += [f"{name}={json.dumps(text)}" for name, text in made.items()]
            notes.append(f"{variable} sets {', '.join(made)}")
    if notes:
        notes += [f"{name} is not used: set {key}" for name, key in TOLD.items() if env.get(name)]
    return settings, [f"{note} ({PAGE})" for note in notes]


def _settings(variable: str, value: str, env: Mapping[str, str]) -> dict[str, str]:
    """Keys of ours and their values."""
    if variable == "SEARCH_IP":
        return {"retriever.url": f"http://{value}:8000"}
    if variable == "QUARK_BASE_URL":
        return {"judge.url": value, "judge.kind": "llm"}
    if variable == "SOURCE_ACTOR_CHECKPOINT_DIR":
        return {
            "defaults.model": str(
                Path(value) / env.get("SOURCE_ACTOR_CHECKPOINT_ITERATION_DIRNAME", "")
            )
        }
    known = variable != "QUARK_SEARCH_CHAT_TEMPLATE" or value in TEMPLATES
    hold(
        known,
        f"{variable} is one of {', '.join(TEMPLATES)}",
        value,
        "correct it, or unset it and set protocol",
    )
    return {VARIABLES[variable][0]: TEMPLATES.get(value, value)}


def _same(stated: str, key: str) -> bool:
    """Whether a stated key sets `key`: itself, or for one of `defaults` a role's own."""
    block, _, rest = key.partition(".")
    return stated == key or (
        block == "defaults" and stated in (f"proposer.{rest}", f"solver.{rest}")
    )


def _instead(stated: str, value: object, key: str) -> bool:
    """Whether a stated key decides what `key` would: a run's name, or the folder it goes on in,
    says where that is."""
    resumed = stated == "resume" and value not in ("never", "auto")
    return key == "run.dir" and bool(value) and (stated == "run.name" or resumed)
