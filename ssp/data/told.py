"""What an agent is told of its question: the columns of its row. What says the right answers is
hidden, unless the agent asks for it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssp.base.text import same
from ssp.data.containers import rows
from ssp.data.readers import Question

_SECRET = re.compile(
    r"golds?|targets?|labels?|solutions?|rationale|rubric|reward_model|ground_truth|"
    r"(?!pred|s_aliases).*(answers?|alias|aliases|answer_list|synonyms)"
)
"""Names of columns that hold right answers, or words about them."""


def told(file: str | Path, questions: Iterable[Question]) -> list[Question]:
    """All `questions` of a file, each with its `row`: the file's columns, `id` and `golds`."""
    known = []
    for question, row in zip(questions, rows(file), strict=True):
        named = {"id": question.id, "golds": list(question.answers)}
        known.append(replace(question, row={**row.fields, **named}))
    return known


def hidden(value: Any, answers: Sequence[str]) -> Any:
    """`value`, a row or a part of one, without what says the right `answers`: columns that are named
    like some, and texts that are one, which become empty."""
    if isinstance(value, Mapping):
        kept = {}
        for name, part in value.items():
            if not _SECRET.fullmatch(name):
                kept[name] = hidden(part, answers)
        return kept
    if isinstance(value, list):
        return [hidden(part, answers) for part in value]
    return "" if isinstance(value, str) and same(value, answers) else value
