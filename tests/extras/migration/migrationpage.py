"""The tables of docs/migration.md: `python tests/extras/migration/migrationpage.py` writes them between the page's two marks."""

from __future__ import annotations

import sys
from pathlib import Path

from ssp.config import gone
from ssp.config.gone import PAGE
from ssp.extras.migration import sections
from ssp.extras.migration.variables import ACCEPTED, TOLD

MARKS = ("<!-- tables: made by python tests/extras/migration/migrationpage.py -->", "<!-- end of tables -->")


def tables() -> str:
    """Variables first, then each system's keys, as Markdown."""
    lines = ["## Environment variables", "", "| theirs | ours | |", "|---|---|---|"]
    lines += [f"| `{name}` | `{ours}` | {note} |" for name, (ours, note) in ACCEPTED.items()]
    lines += [f"| `{name}` | not taken: set `{ours}` | other programs read it too |" for name, ours in TOLD.items()]
    for section in sections().values():
        lines += ["", f"## {section.title}", "", "| theirs | ours | values, meaning |", "|---|---|---|"]
        for key in section.keys:
            ours = ", ".join(f"`{name}`" for name in key.ours) or "-"
            lines.append(f"| `{key.name}` | {ours} | {key.note} |")
    lines += ["", "## Settings of ours that are gone", "", "| theirs | ours | values, meaning |", "|---|---|---|"]
    lines += [f"| `{row}` | - | {note} |" for row, note in gone.table().items()]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    before, _, rest = text.partition(MARKS[0])
    return f"{before}{MARKS[0]}\n\n{tables()}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


def main() -> int:
    path = Path(__file__).resolve().parents[3] / PAGE
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
