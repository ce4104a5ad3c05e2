"""The tables of docs/migration.md: `python tests/extras/migration/migrationpage.py` writes them between the page's two marks."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from ssp.config.gone import PAGE
from ssp.extras.migration import Section, find, sections
from ssp.extras.migration.variables import ACCEPTED, TOLD

MARKS = ("<!-- tables: made by python tests/extras/migration/migrationpage.py -->", "<!-- end of tables -->")
DEEP = ("actor_rollout_ref", "custom_reward_function")
"""Blocks whose keys lie in blocks of their own."""
DEEPER = re.compile(rf"^{DEEP[0]}\.(?=\w+\.)")
"""What such a key leaves out in a row of another block; the page says so."""


def tables() -> str:
    """Variables first, then each system's keys, as Markdown."""
    lines = ["## Environment variables", "", "|theirs|ours||", "|-|-|-|"]
    lines += [f"|`{name}`|`{ours}`|{note}|" for name, (ours, note) in ACCEPTED.items()]
    lines += [f"|{coded(TOLD)}|not taken: set {coded(TOLD.values())}|other programs read them too|"]
    for section in sections().values():
        lines += ["", f"## {section.title}", "", "|theirs|ours|meaning|", "|-|-|-|", *rows(section)]
    return "\n".join(lines) + "\n"


def rows(section: Section) -> list[str]:
    """A row for all keys that the same can be said of, and their other names; of names that end alike the first. Two rows and
    more of one block stand below its name, and leave it out."""
    others: dict[str, list[str]] = {}
    for key in chain.from_iterable(one.keys for one in sections().values()):
        if key.stands_for != key.name:
            others.setdefault(key.stands_for, []).append(key.name)
    alike: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for key in section.keys:
        if key.stands_for == key.name:
            more = others.get(key.name, []) if key is find(key.name) else []
            alike.setdefault((key.ours, key.note), []).extend([key.name, *more])
    sizes = Counter(block_of(names[0]) for names in alike.values())
    below: dict[str, list[str]] = {"": []}
    for (ours, note), names in alike.items():
        block = block_of(names[0])
        block = block if sizes[block] > 1 else ""
        ends = {name.removeprefix("--").rpartition(".")[2]: name for name in reversed(names)}
        short = [DEEPER.sub("", name.removeprefix(block)) for name in names if name in ends.values()]
        named = [key.removeprefix("defaults") for key in ours]
        below.setdefault(block, []).append(f"|{', '.join(short)}|{', '.join(named) or '-'}|{note}|")
    lines = below.pop("")
    for block, its_rows in below.items():
        lines += [f"|**{block}**|||", *its_rows]
    return lines


def block_of(name: str) -> str:
    """`algorithm`, or `actor_rollout_ref.actor`: what keys of one block begin with; "" for a key of no block."""
    parts = name.split(".")
    return ".".join(parts[: min(len(parts) - 1, 2 if parts[0] in DEEP else 1)])


def coded(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def page(text: str) -> str:
    before, _, rest = text.partition(MARKS[0])
    return f"{before}{MARKS[0]}\n\n{tables()}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


def main() -> int:
    path = Path(__file__).resolve().parents[3] / PAGE
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
