"""The feature table: which test shows which feature of the reference systems. `python tests/features.py` rewrites it.

Owns the tests and the status of each row of docs/features.md; its ids and words stand there. Ids are those of the study of the reference systems: SR Search-R1, EP EMA-PG, RS ReSearch, SS SSRL, SP Search Self-play, GA other games of the field,
X what went wrong in several, U what their users fought.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "features.md"

FEATURES = dict(re.findall(r"^\| ([A-Z]+-?\d+) \| ([^|]+) \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE))
"""Row id → what it is, in a few words."""

LATER: dict[str, str] = {}
"""Rows without a test yet, and what they belong to."""


@functools.cache
def marks() -> dict[str, list[str]]:
    """Row id → tests that carry it, as `file::test`, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.covers":
                        for row in ast.literal_eval(ast.List(decorator.args, ast.Load())):
                            found[row].append(f"{path.relative_to(TESTS).as_posix()}::{node.name}")
    return found


def table() -> str:
    found = marks()
    lines = [
        "# Features of the reference systems, and the tests that show them",
        "",
        "Made by `python tests/features.py` from the tests' `covers` marks; a test fails when it is out of date. SR is",
        "Search-R1, EP EMA-PG, RS ReSearch, SS SSRL, SP Search Self-play, GA other games of the field, X what went wrong in",
        "several, U what their users fought. `bash launch/test.sh --nightly` runs every test below.",
        "",
        "| id | feature | tests | status |",
        "|---|---|---|---|",
    ]
    for row, what in FEATURES.items():
        tests = "<br>".join(f"`{name}`" for name in found.get(row, []))
        status = "tested" if tests else f"not yet: {LATER.get(row, 'open')}"
        lines.append(f"| {row} | {what} | {tests} | {status} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
    print(f"{TABLE}: {sum(row in marks() for row in FEATURES)} of {len(FEATURES)} rows have a test")
