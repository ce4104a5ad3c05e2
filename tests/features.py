"""The feature table: which test shows which feature of the reference systems. `python tests/features.py` rewrites it.

Owns the tests of each row of docs/features.md; its ids and words stand there.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "features.md"

FEATURES = dict(re.findall(r"^\|([A-Z]+-?\d+)\|([^|]+)\|", TABLE.read_text(encoding="utf-8"), re.MULTILINE))
"""Row id → what it is, in a few words."""

LATER: dict[str, str] = {}
"""Rows without a test yet, and what they belong to."""


@functools.cache
def marks() -> dict[str, list[str]]:
    """Row id → tests that carry it, as `file::test`, in order."""
    named: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.covers":
                        for row in ast.literal_eval(ast.List(decorator.args, ast.Load())):
                            named[row].append(f"{path.relative_to(TESTS).as_posix()}::{node.name}")
    return named


def table() -> str:
    """The page: a row a feature, with the files of its tests."""
    lines = [
        "# Features of the reference systems, and the tests that show them",
        "",
        "Each row is a feature, with the files that show it: `search/bm25` is `tests/search/test_bm25.py`. This prints, or runs, the",
        "tests of a row:",
        "",
        "```sh",
        "python tests/features.py SR-10",
        "python -m pytest $(python tests/features.py SR-10)",
        "```",
        "",
        "`python tests/features.py` makes this page from the `covers` marks of the tests.",
        "",
        "SR is Search-R1, EP EMA-PG, RS ReSearch, SS SSRL, SP Search Self-play, GA other games of the field, X what went wrong in",
        "several systems, U what their users fought.",
        "",
        "|id|feature|shown in|",
        "|-|-|-|",
    ]
    for row, what in FEATURES.items():
        files = dict.fromkeys(name.partition("::")[0] for name in marks().get(row, []))
        shown = ", ".join(file.replace("test_", "").removesuffix(".py") for file in files)
        lines.append(f"|{row}|{what}|{shown or 'not yet: ' + LATER.get(row, 'open')}|")
    return "\n".join(lines) + "\n"


def main(rows: list[str]) -> None:
    """Print the tests of these rows; write the page where none is asked for."""
    unknown = sorted(set(rows) - set(FEATURES))
    if unknown:
        sys.exit(f"no row of {TABLE.name}: {' '.join(unknown)}")
    for row in rows:
        print(*(f"tests/{name}" for name in marks()[row]), sep="\n")
    if not rows:
        TABLE.write_text(table(), encoding="utf-8")
        print(f"{TABLE}: {sum(row in marks() for row in FEATURES)} of {len(FEATURES)} rows have a test")


if __name__ == "__main__":
    main(sys.argv[1:])
