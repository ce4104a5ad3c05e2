"""What a value of theirs is here: each override of a launch script as settings of ours, or why it
has none.

Owns the meaning of values. Promises a row for every override, in its order, and settings for
`solver` where no proposer plays. Refuses to read scripts and configs, and to guess: a value that it
does not know is said to need a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ssp.extras import migration
from ssp.extras.migration.script import Override
from ssp.extras.migration.special import NUMBERS, RECIPES, SPECIAL, Made, Settings
from ssp.extras.migration.systems import Facts, is_number, parsed

SECRET = ("api_key", "secret", "password", "access_token")


@dataclass(frozen=True)
class Translation:
    """One override: `settings` of ours (none: `note` says why), `known` when the table has the key,
    `told` when its value stands in the script, `person` when somebody has to decide what it is
    here."""

    key: str
    value: str
    settings: Settings = field(default_factory=dict)
    note: str = ""
    known: bool = True
    told: bool = True
    person: bool = False


def rows(overrides: Sequence[Override], system: str, base: Mapping[str, Any]) -> list[Translation]:
    """A row for each override. `system`, `base`: as of `Facts`."""
    facts = Facts(overrides, system, base)
    made = [translated(override, facts) for override in overrides]
    formats = any(key.startswith("reward_model.") and key.endswith("_score") for key in facts.given)
    if system == "search-r1" and base["solver.reward"] == "format_em" and not formats:
        exact = {"solver.reward": "em"}
        made.append(Translation("(main_ppo, no format scores)", "exact match", exact))
    same = base.get("solver.reward")
    for row in made:
        optioned = any(key.startswith("solver.reward_options") for key in row.settings)
        if row.settings.get("solver.reward", same) != same and not optioned:
            row.settings["solver.reward_options"] = {}  # the recipe's are of its own reward
    return made


def merged(made: Sequence[Translation]) -> Settings:
    """All settings, the last of a repeated key; a switch goes before what says the same thing as a
    value."""

    def switch(row: Translation) -> bool:
        key = migration.find(row.key)
        return key is not None and isinstance(key.how, dict) and "when" in key.how

    settings: Settings = {}
    for row in sorted(made, key=switch):
        settings |= row.settings
    return settings


def translated(override: Override, facts: Facts) -> Translation:
    """The row of one override."""
    name, key = override.key, migration.find(override.key, facts.system)
    secret = any(word in name.lower() for word in SECRET)
    shown = "***" if secret else override.value
    if key is None:
        note = "no key of the five systems"
        return Translation(name, shown or "", note=note, known=False, person=True)
    ours = " and ".join(key.ours)

    untold = "its value is not in the script"
    if shown is None:
        note = f"{untold}: set {ours}" if ours else f"{untold}: {key.note}"
        return Translation(name, "?", note=note, told=False, person=bool(ours))
    value = parsed(override.value or "")
    if "${" in str(value):  # it would be filled in from this machine's environment
        note = f"{untold}: {' '.join(key.ours)}"
        return Translation(name, shown, note=note, told=False, person=bool(ours))
    if override.value in ("", "null", "None") or not ours:
        return Translation(name, shown, note=key.note or f"nothing to set ({' '.join(key.ours)})")

    made = meaning(migration.find(key.stands_for) or key, value, facts)
    if isinstance(made, str):
        remark = f" ({key.note})" if key.note else ""
        note = made or f"by hand: {ours}{remark}"
        return Translation(name, shown, note=note, person=note.startswith("by hand"))
    settings: Settings = {}
    for full, setting in made.items():
        block, _, rest = full.partition(".")
        settings[f"{facts.role}.{rest}" if block == "defaults" else full] = setting
    return Translation(name, shown, settings)


def meaning(key: migration.Key, value: Any, facts: Facts) -> Made:
    """Settings of ours, or why there are none; "" where the value needs a person."""
    how, ours = key.how, key.ours[0]
    if key.name in NUMBERS and not is_number(value):
        return ""
    if key.name in SPECIAL:
        return SPECIAL[key.name](value, facts)
    if isinstance(how, dict):
        if "when" in how:
            return dict(how["set"]) if value == how["when"] else RECIPES
        return {ours: how[value]} if isinstance(value, str | bool) and value in how else ""
    if how == "positive" and type(value) is int:
        return {ours: max(0, value)}
    if how in ("same", "positive"):
        return {ours: value}
    return "" if how == "hand" else f"the recipe's {ours} stays"
