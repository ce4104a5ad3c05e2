"""What is said of keys and options that are none of ours: of settings that are gone (`gone.yaml`), and
of those of other systems, which the extra `migration` knows."""

import functools
from collections.abc import Iterable
from pathlib import Path

import yaml

from ssp.base.extras import extra, there

PAGE = "docs/migration.md"
MIGRATION = "migration"
TABLE = Path(__file__).with_name("gone.yaml")


@functools.cache
def table() -> dict[str, str]:
    """Row → what stands for the setting, the block (`chaos.*`) or the value (`judge.kind=engine`)."""
    read: dict[str, str] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return read


def rows(name: str) -> list[str]:
    """Every row that would be about a key, the nearest first: its name, then the blocks that it lies
    in; the first block may be a role's of any name, so also those of `defaults`. Hydra's + before a
    name does not count."""
    wanted = name.lstrip("+~")
    _, _, rest = wanted.partition(".")
    names = [wanted, f"defaults.{rest}"] if rest else [wanted]

    listed = []
    for full in names:
        listed.append(full)
        block = "" if "=" in full else full
        while "." in block:
            block = block.rpartition(".")[0]
            listed.append(f"{block}.*")
    return listed


def row(name: str) -> str:
    """The row about a key, an option or `key=value`; "" where it is not gone."""
    return next((one for one in rows(name) if one in table()), "")


def word(name: str) -> str:
    """What to write in place of a key, an option or `key=value`; "" where nobody knows it."""
    here = row(name)
    if here:
        return f"{here} is gone: {table()[here]}"
    return str(extra(MIGRATION, name).word(name)) if there(MIGRATION) else ""


def advice(names: Iterable[str]) -> str:
    """The words of all these, in a line; "" where nobody knows one."""
    said = "; ".join(filter(None, map(word, names)))
    return f"{said} (values: {PAGE})" if said else ""
