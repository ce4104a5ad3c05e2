"""Pages: links lead somewhere, the index is whole, settings and figures that they name exist, nothing is announced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ssp.config.keys import all_keys
from ssp.telemetry.figures import FIGURES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
KEYS = set(all_keys(("proposer", "solver")))
BLOCKS = {key.partition(".")[0] for key in KEYS if "." in key}
OF_ROLES = {key.removeprefix("solver.") for key in KEYS if key.startswith("solver.")}
ROLE_BLOCKS = {key.partition(".")[0] for key in OF_ROLES if "." in key}
FENCES = {"bash", "sh", "console", "yaml", "json", "python", "mermaid", ""}
"""Languages of fenced blocks: `bash` is what a newcomer types on one machine without a GPU, and is run (tests/bench/walk.py); `sh` needs
GPUs, several machines, somebody's data or hours; `console` has output in it."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


@cache
def anchors(path: Path) -> set[str]:
    """Fragments of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_every_page_is_in_the_index() -> None:
    """Those of a folder are named by it."""
    index = DOCS / "README.md"
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in LINK.findall(prose(index))}
    assert [named(path) for path in sorted(DOCS.glob("*.md")) if path != index and path not in linked] == []
    assert [named(path) for path in DOCS.iterdir() if path.is_dir() and path not in linked] == []


FILE_ENDS = {"md", "npy", "py", "yaml", "json", "jsonl", "db", "html", "txt"}


def settings(path: Path) -> Iterator[str]:
    """Dotted names in code whose first part is a block of the configuration."""
    for code in CODE.findall(prose(path)):
        for word in code.split():
            name = word.partition("=")[0]
            if re.fullmatch(r"[a-z_]+(\.\w+)+", name) and name.partition(".")[0] in BLOCKS | ROLE_BLOCKS:
                yield name


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_a_page(path: Path) -> None:
    """Links lead somewhere, settings exist (those of migration.md have a test of their own), fenced blocks say what they
    are, and it describes what the code does: what is missing is said as missing."""
    lost = []
    for target in (target for target in LINK.findall(prose(path)) if not re.match(r"[a-z]+:", target)):
        name, _, fragment = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        if not page.exists() or (fragment and fragment not in anchors(page)):
            lost.append(target)
    assert lost == []
    known = (
        KEYS
        | OF_ROLES
        | {"placement.ROLEs", "schedule.max_staleness.ROLE"}
        | {f"{role}.reward_options" for role in ("proposer", "solver")}
    )
    ends = {name for name in settings(path) if name not in known and name.rpartition(".")[2] not in FILE_ENDS}
    unknown = {name for name in ends if not name.rpartition(".")[0].endswith(".reward_options")}
    assert path.name == "migration.md" or unknown == set()
    assert {kind for kind, _ in FENCE.findall(path.read_text(encoding="utf-8"))} - FENCES == set()
    announced = r"(?i)\b(todo|fixme|coming soon|will be added|work in progress|in a later release)\b"
    assert re.findall(announced, prose(path)) == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 160


def test_ten_figures_have_advice_and_exist() -> None:
    section = (
        (DOCS / "metrics.md").read_text(encoding="utf-8").partition("## Ten to look at first")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\|`([^`]+)`\|[^|]+\|[^|]{40,}\|$", section, re.MULTILINE)
    assert len(rows) == 10
    assert set(rows) <= {figure.name for figure in FIGURES}
