"""What the board says of the periodic evaluation: the run's own first set, and whether training searches there too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ssp.config.load import to_yaml
from ssp.config.schema import EvalSet
from tests.board.boarded import by_hand, looked, rows
from tests.selfplay import fakes


@pytest.mark.parametrize(
    ("corpus", "wanted"),
    [
        ("world:heldout", {"name": "nq", "corpus": "world:heldout", "elsewhere": True}),
        ("world:train", {"name": "nq", "corpus": "world:train", "elsewhere": False}),
        ("/data/wiki.jsonl", {"name": "nq", "corpus": "wiki.jsonl", "elsewhere": True}),
        ("none", {"name": "nq", "corpus": None, "elsewhere": False}),
    ],
)
def test_the_periodic_evaluation_is_the_runs_own(tmp_path: Path, corpus: str, wanted: dict[str, Any]) -> None:
    run = by_hand(tmp_path / "run", ["why ?"])
    run.config.write_text(to_yaml(fakes.config(data__eval=[EvalSet("nq", "world:heldout", corpus)])))
    assert rows(looked(run))["run", ""]["evaluation"] == wanted


def test_a_run_without_evaluation_sets_tells_of_none(tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["why ?"])
    run.config.write_text(to_yaml(fakes.config(data__eval=[], eval__every=0)))
    assert rows(looked(run))["run", ""]["evaluation"] is None
