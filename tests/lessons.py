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


def every_role(count: int) -> list[dict[str, Any]]:
    """The same for the proposer and the verifier too."""
    made = rows(count)
    for row in rows(count):
        target, _, name = row["turns"][1].split()[1], *row["fields"]["question"].split()[1::-1]
        turns, (read,) = [row["turns"][0], f"<question> {name} founder ask ? </question>"], row["results"]
        made.append({"role": "proposer", "fields": {"target": target}, "turns": turns, "results": row["results"]})
        made.append({"role": "verifier", "fields": row["fields"], "documents": read, "turns": row["turns"][1:]})
    return made


def write(path: Path, count: int, every: bool = False) -> Path:
    """A file of them, or of those of `every` role."""
    told = every_role(count) if every else rows(count)
    path.write_text("".join(json.dumps(row) + "\n" for row in told), encoding="utf-8")
    return path
