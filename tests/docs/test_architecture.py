"""The architecture page: every room is on it, nothing is that does not exist, and its table of imports is true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from launch.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
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


def rooms() -> set[str]:
    return {f"ssp/{path.parent.name}" for path in (ROOT / "ssp").glob("*/__init__.py")}


def test_every_room_is_described_once_and_exists() -> None:
    before = TEXT.partition("## Who may import whom")[0]
    assert sorted(re.findall(r"^\| `(ssp/\w+)` \|", before, re.MULTILINE)) == sorted(rooms())


def test_every_file_beside_the_rooms_and_every_actor_is_described() -> None:
    there = {f"ssp/{path.name}" for path in (ROOT / "ssp").glob("*.py")} - {"ssp/__init__.py"}
    there |= {f"actors/{path.name}" for path in (ROOT / "actors").glob("*.py")} - {"actors/__init__.py"}
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


@cache
def imported(room: str) -> frozenset[str]:
    """What a room imports: other rooms of ssp by their names, and top-level packages."""
    found: set[str] = set()
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            found |= {
                parts[1] if parts[0] == "ssp" and len(parts) > 1 else parts[0]
                for parts in (n.split(".") for n in names)
            }
    return frozenset(found)


def bans() -> list[tuple[str, str]]:
    """(room, what it does not import), a pair each, of the last table."""
    table = TEXT.partition("## Who may import whom")[2]
    pairs = []
    for line in table.splitlines():
        if not line.startswith("| ") or line.startswith("| room"):
            continue
        left, right = (cell.strip() for cell in line.strip("| ").split(" | "))
        who = sorted(rooms()) if left.startswith("every room") else CODE.findall(left)
        names = (
            [room.partition("/")[2] for room in sorted(rooms())] if right == "any other room" else CODE.findall(right)
        )
        pairs += [(room, name) for room in who for name in names if room != f"ssp/{name}"]
    return pairs


def test_the_table_of_imports_names_what_exists() -> None:
    known = {room.partition("/")[2] for room in rooms()} | {"ray", "actors", "launch"}
    assert len(bans()) > 150
    assert {name for _, name in bans()} <= known
    assert {room for room, _ in bans()} == rooms()


@pytest.mark.parametrize("room", sorted(rooms()))
def test_nobody_imports_what_the_page_forbids(room: str) -> None:
    assert sorted(imported(room) & {name for who, name in bans() if who == room}) == []


def test_actors_do_not_know_the_commands() -> None:
    assert "launch" not in imported("actors")
