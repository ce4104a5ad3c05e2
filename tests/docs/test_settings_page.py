"""The settings page is in step with the schema, has every key, and the schema explains each."""

from __future__ import annotations

import re

import settings

from ssp.config.fields import choices, ends
from ssp.config.keys import all_keys
from ssp.config.schema import PRESETS

TEXT = settings.PAGE.read_text(encoding="utf-8")
TABLES = TEXT.partition("\n## The run as a whole\n")[2]
ROWS = dict(re.findall(r"^\|`([^`]+)`\|([^|]+)\|[^|]+\|.+\|$", TABLES, re.MULTILINE))
"""Key → what it takes."""


KEYS = {key: hint for key, hint in all_keys(("solver",)).items() if "[]" not in key}


def as_on_the_page(key: str) -> str:
    key = re.sub(r"^(defaults|solver)\.", f"{settings.ROLE}.", key)
    return key.replace("max_staleness.solver", "max_staleness.ROLE").replace("placement.solvers", "placement.ROLEs")


def test_the_page_is_as_the_schema_says() -> None:
    assert settings.page() == TEXT, "run python tests/settings.py"


def test_every_key_has_a_row_and_every_row_a_key() -> None:
    every = {as_on_the_page(key) for key in KEYS}
    blocks = {key.rpartition(".")[0] for key in every} | set(settings.ROLES)
    assert {key for key in ROWS if "[]" not in key} == every - blocks
    assert {key.partition("[]")[0] for key in ROWS if "[]" in key} <= every


def test_there_are_few_keys() -> None:
    """A key of the roles counts once. One more takes the place of another, which becomes a constant beside its use."""
    keys = [key for key in ROWS if "[]" not in key]
    assert len(keys) <= 131


def test_every_key_is_explained_by_the_schema() -> None:
    """Its block's docstring names it, as `key`."""
    assert settings.unexplained() == []


def test_the_tables_are_on_the_page() -> None:
    for key, hint in KEYS.items():
        row = ROWS.get(as_on_the_page(key), "")
        assert all(f"`{name}`" in row for name in choices(hint) if name), key
        assert ends(hint) is None or re.search(r"from \d|\d to |finite", row), key
    for name, bound in PRESETS.items():
        assert f"\n|`{name}`|{bound}|" in TEXT
