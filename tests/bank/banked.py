"""A small real run for the bank's tests: the whole game in one process, with scripted policies, replay and a few voids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssp.config.load import to_yaml
from tests.selfplay import fakes

STEPS = 8


def played(folder: Path, searcher: Any = None, **changes: Any) -> fakes.Stage:
    """A finished run in `folder`, with its config.yaml; `changes` as in `fakes.config`."""
    settings = {"steps": STEPS, "game__batch": "replay", "eval__every": 4, **changes}
    stage = fakes.Stage(fakes.config(**settings), folder, searcher)
    stage.play()
    (folder / "config.yaml").write_text(to_yaml(stage.cfg))
    return stage
