"""The lines of metrics.jsonl, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ssp.base.errors import InputError


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, the last one of each (step, role), sorted by step (roles in order of appearance).

    An unfinished last line is left out; a broken line elsewhere, or a missing file, raises InputError.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("a metrics file must exist", path, "give the metrics.jsonl of a run folder")
    latest: dict[tuple[int, str], dict[str, Any]] = {}
    for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1], start=1):
        try:
            line = json.loads(text)
            latest[int(line["step"]), str(line["role"])] = line
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            rule = "every finished line of a metrics file must be an object with step and role"
            raise InputError(rule, f"{path}, line {number}: {text[:80]}", "remove that line") from error
    return sorted(latest.values(), key=lambda line: int(line["step"]))
