"""The pages as tests read them: README.md and docs/*.md, their blocks and the commands in these.

Owns the convention: a ```bash block is a walk, run from top to bottom by `tests/bench/walk.py`; ```sh and ```console show only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WALKED, SHOWN = "bash", ("sh", "console")
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_HEREDOC = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END\n", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its first line (from 1), its language and text, and the heading above it."""

    page: Path
    line: int
    language: str
    text: str
    heading: str

    @property
    def name(self) -> str:
        inside = self.page.is_relative_to(ROOT)
        return f"{self.page.relative_to(ROOT) if inside else self.page.name}:{self.line}"

    @property
    def files(self) -> dict[str, str]:
        """Small files that it writes by `cat > NAME <<'END'`."""
        return dict(_HEREDOC.findall(self.text))

    @property
    def commands(self) -> list[list[str]]:
        """The words of each of its other lines, continued ones put together, without comments."""
        rest = _HEREDOC.sub("", self.text).replace("\\\n", " ")
        return [words for line in rest.splitlines() if (words := shlex.split(line, comments=True))]


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The page's fenced blocks of these languages (none: all), in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        if not languages or found[1] in languages:
            above = text[: found.start()]
            headings = re.findall(r"^#+ (.+)$", above, re.MULTILINE)
            yield Block(page, above.count("\n") + 2, found[1], found[2], headings[-1] if headings else "")
