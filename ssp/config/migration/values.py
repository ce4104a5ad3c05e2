"""What a value of theirs is here: each override of a launch script as settings of ours, or why it
has none.

Owns the meaning of values. Promises a row for every override, in its order, and settings for
`solver` where no proposer plays. Refuses to read scripts and configs, and to guess: a value that it
does not know is said to need a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ssp.config import migration
from ssp.config.migration.script import Facts, Override, Settings, is_number, parsed
from ssp.config.migration.special import NUMBERS, RECIPES, SPECIAL

SECRET = ("api_key", "secret", "password", "access_token")


@dataclass(frozen=True)
class Row:
    """One override: `settings` of ours (none: `note` says why), `known` when the table has the key,
    `told` when its value stands in the script."""

    key: str
    value: str
    settings: Settings = field(default_factory=dict)
    note: str = ""
    known: bool = True
    told: bool = True


def rows(overrides: Sequence[Override], system: str, base: Mapping[str, Any]) -> list[Row]:
    """A row for each override. `system`, `base`: as of `Facts`."""
    facts = Facts(overrides, system, base)
    found = [_row(override, facts) for override in overrides]
    formats = any(key.startswith("reward_model.") and key.endswith("_score") for key in facts.given)
    if system == "search-r1" and facts.base["solver.reward"] == "format_em" and not formats:
        found.append(Row("(main_ppo, no format scores)", "exact match", {"solver.reward": "em"}))
    return found


def merged(made: Sequence[Row]) -> Settings:
    """All settings, the last of a repeated key; a switch goes before what says the same thing as a
    value."""

    def switch(row: Row) -> bool:
        found = migration.find(row.key)
        return found is not None and isinstance(found.how, dict) and "when" in found.how

    return {key: value for row in sorted(made, key=switch) for key, value in row.settings.items()}


def _row(override: Override, facts: Facts) -> Row:
    key, found = override.key, migration.find(override.key)
    shown = "***" if any(word in key.lower() for word in SECRET) else override.value
    if found is None:
        return Row(key, shown or "", note="no key of the five systems", known=False)
    if shown is None:
        ours = f"set {' and '.join(found.ours)}" if found.ours else found.note
        return Row(key, "?", note=f"its value is not in the script: {ours}", told=False)
    value = parsed(override.value or "")
    if "${" in str(value):  # it would be filled in from this machine's environment
        return Row(
            key, shown, note=f"its value is not in the script: {' '.join(found.ours)}", told=False
        )
    if override.value in ("", "null", "None") or not found.ours:
        return Row(key, shown, note=found.note or f"nothing to set ({' '.join(found.ours)})")
    meant = migration.find(found.stands_for) or found
    settings, note = _settings(meant.name, meant.how, meant.ours[0], value, facts)
    role = "defaults" if facts.system == "ssp" else "solver"
    settings = {
        k.replace("defaults.", f"{role}.") if k.startswith("defaults.") else k: v
        for k, v in settings.items()
    }
    if not settings:
        note = note or f"by hand: {' and '.join(found.ours)}" + (
            f" ({found.note})" if found.note else ""
        )
    return Row(key, shown, settings, note)


def _settings(key: str, how: Any, ours: str, value: Any, facts: Facts) -> tuple[Settings, str]:
    """Settings of ours, or why there are none; neither where the value needs a person. `how`: see
    keys.yaml."""
    if key in NUMBERS or key in SPECIAL:
        made = (NUMBERS | SPECIAL)[key](value, facts) if key in SPECIAL or is_number(value) else ""
        return (made, "") if isinstance(made, dict) else ({}, made)
    if isinstance(how, dict) and "when" in how:
        return (dict(how["set"]), "") if value == how["when"] else ({}, RECIPES)
    if isinstance(how, dict):
        return ({ours: how[value]} if isinstance(value, str | bool) and value in how else {}), ""
    if how == "positive" and type(value) is int:
        return {ours: max(0, value)}, ""
    if how in ("same", "positive"):
        return {ours: value}, ""
    return {}, "" if how == "hand" else f"the recipe's {ours} stays"
