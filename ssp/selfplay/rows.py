"""One row of the data that a run plays."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TargetRow:
    """One row: a target answer with further fields of the proposer's prompt (`hints`), or a
    question with its answers and what a good answer has (`rubric`). `row`: see `Question`."""

    target: str
    question: str = ""
    golds: tuple[str, ...] = ()
    hints: dict[str, str] = field(default_factory=dict)
    rubric: str = ""
    row: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
