"""The architecture page and CONTRIBUTING: every wing, actor and command is there, and nothing is that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from launch.main import COMMANDS
from tests.test_house import ORDER

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md")
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
CODE = re.compile(r"`([^`]+)`")


def cells(column: str) -> Iterator[list[str]]:
    """Rows of the tables whose first column has that head."""
    inside = False
    for line in TEXT.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if row and not set(line) <= set("|- "):
            if inside and row[0] != column:
                yield row
            inside = inside or row[0] == column
        elif not row:
            inside = False


def first(column: str) -> list[str]:
    return [name for row in cells(column) for name in CODE.findall(row[0])]


def test_every_wing_is_described_once_in_their_order() -> None:
    assert first("wing") == ORDER


def test_every_actor_is_described() -> None:
    there = {f"actors/{path.name}" for path in (ROOT / "actors").glob("*.py")} - {"actors/__init__.py"}
    there |= {f"actors/{path.parent.name}" for path in (ROOT / "actors").glob("*/__init__.py")}
    assert set(first("file")) == there


def test_every_command_is_described_and_exists() -> None:
    named = first("command")
    assert sorted(named) == sorted(COMMANDS)


def test_every_folder_of_launch_and_every_path_is_there() -> None:
    mentioned = set(re.findall(r"`((?:launch|ssp|actors|tests)/[\w./]+)`", TEXT))
    assert [name for name in sorted(mentioned) if not (ROOT / name).exists()] == []
    folders = {f"launch/{path.parent.name}" for path in (ROOT / "launch").glob("*/__init__.py")}
    assert folders - mentioned == set()
