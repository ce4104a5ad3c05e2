"""Real small runs with the torch engine in one process, for the tests of `ssp replay`; and changes planted in their records."""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainruns import REPO, SMALL

from launch.main import run
from ssp.base.episode import Episode
from ssp.record import episodes as transcripts

KEPT = ["save.every=1", "save.keep=1000", "void.limit=1.0", "health.on_collapse=warn"]


def alone() -> Any:
    place = REPO / "tests" / "bench" / "experiments" / "alone.py"
    spec = importlib.util.spec_from_file_location("alone", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def play(folder: Path, *settings: str, small: bool = True, config: str = "quickstart") -> Path:
    """A run's folder, played to its end with every checkpoint kept."""
    sizes = [setting for setting in SMALL if not setting.startswith("eval.")] if small else []
    asked = ["eval.every=0", "eval.final_questions_per_hop=2"] if small else []
    argv = ["--config", config, f"run.dir={folder}", *sizes, *asked, *KEPT, *settings]
    assert run(alone().main, argv) == 0
    return folder


def copied(folder: Path, to: Path) -> Path:
    """The run once more, with checkpoints that are the first one's."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    (to / "checkpoints").symlink_to(folder / "checkpoints")
    return to


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    book = sqlite3.connect(folder / "ledger.db")
    book.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in book.execute(sql)]
    finally:
        book.close()


def put(folder: Path, sql: str, *values: Any) -> None:
    book = sqlite3.connect(folder / "ledger.db")
    assert book.execute(sql, values).rowcount == 1
    book.commit()
    book.close()


def rewrite(folder: Path, row: dict[str, Any], change: Callable[[Episode], None]) -> None:
    path = folder / "episodes" / row["file"]
    block = transcripts.read(path)
    change(block[row["row"]])
    path.unlink()
    transcripts.write(path, block)
