"""Traces of the generated world in the quickstart's protocol, for warm starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ssp.game.world import World


def rows(count: int, seed: int = 5) -> list[dict[str, Any]]:
    """One search and an answer each; answers that the shipped policy would not have given."""
    world = World(seed)
    names = list(world.entities)
    made = []
    for row in range(count):
        document = world.documents()[row]
        turns = [f"<search> {names[row]} </search>", f"<answer> {names[-1 - row]} </answer>"]
        found = [[{"id": document.id, "contents": document.contents}]]
        made.append({"fields": {"question": f"{names[row]} founder ask"}, "turns": turns, "results": found})
    return made


def write(path: Path, count: int) -> Path:
    """A file of them."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(count)), encoding="utf-8")
    return path
