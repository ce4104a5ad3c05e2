"""A run that was recorded before the ledger had columns for rounds and kinds, brought to today's form.

Two steps of a small quickstart in two starts, with ReMax, extra batches, contexts that are read anew and three evaluation
sets; beside it (`expected`) what that time's readers made of it. Weights lie in the archive as differences from those that
they were learned from, in planes of bytes, because these compress.
"""

from __future__ import annotations

import json
import re
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ssp.base.episode import PROPOSER
from ssp.config.load import to_yaml
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.curriculum import figures
from ssp.selfplay.scene import concrete
from ssp.selfplay.settings import load

ARCHIVE = Path(__file__).parent / "replay" / "data" / "recorded.tar.xz"


GONE = ("referee.alarm_patience", "eval.questions_per_hop")
"""Settings of then that there are no more."""
OVERLONG = 60
"""So was limits.overlong: over the last tokens of an episode its reward fell by up to 1."""


def expected() -> Any:
    """What the readers of then said: digest, outcomes, bank, curriculum, board, compare."""
    with tarfile.open(ARCHIVE) as archive:
        return json.load(archive.extractfile("expected.json"))  # type: ignore[arg-type]


def again(run: RunFolder) -> Iterator[tuple[int, dict[str, float], str]]:
    """(step, curriculum figures, the line of an alarm that begins) of each settled round of a run's files."""
    cfg = RunReader(run).cfg
    curriculum = figures.Curriculum(figures.WINDOW, PROPOSER in cfg.roles)
    for step, asked in figures.read(run):
        values = curriculum.round(step, asked)
        yield step, values, curriculum.said


def unpack(to: Path) -> Path:
    """The run's folder, below `to`, with today's config.yaml of the settings that it was started with."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(to, filter="data")
    run, versions = (to / "run").rename(to / "recorded"), dict[str, np.ndarray]()
    for version, base in json.loads((to / "weights.json").read_text()):
        file = run / "checkpoints" / version / "model.safetensors"
        words = np.frombuffer(file.read_bytes(), np.uint8).reshape(4, -1).T.copy().view(np.int32)[:, 0]
        changes = (words.view(np.uint32) >> 1).view(np.int32) ^ -(words & 1)  # small differences of either sign
        versions[version] = changes + (versions[base] if base else 0)
        file.write_bytes(versions[version].tobytes())
    _number(run / "ledger.db")
    asked = [f"run.dir={run}", f"defaults.model={run / 'checkpoints' / 'solver' / 'v1'}"]
    said = (to / "settings.json").read_text().replace(f", overlong: {OVERLONG}", "")
    then = [one for one in json.loads(said) if one.split("=")[0] not in GONE]
    cfg = concrete(load("quickstart", [*then, *asked]))
    (run / "config.yaml").write_text(to_yaml(cfg), encoding="utf-8")
    return run


def _number(file: Path) -> None:
    """Fill in what that time's ids and names of files said."""
    db = sqlite3.connect(file)
    db.row_factory = sqlite3.Row
    columns = "round INTEGER, kind TEXT, attempt INTEGER, issue INTEGER, incarnation INTEGER, past INTEGER, item TEXT"
    for column in columns.split(", "):
        db.execute(f"ALTER TABLE episodes ADD {column}")
    for column in ("round INTEGER", "kind TEXT", "number INTEGER", "incarnation INTEGER"):
        db.execute(f"ALTER TABLE games ADD {column}")
    for row in db.execute("SELECT id, role, file, game_id FROM episodes").fetchall():
        (round_,) = map(int, re.findall(r"-(\d{6})", row["file"]))
        if row["role"] == "eval":
            item, start, number, issue = re.fullmatch(r"eval/\w+/(.*)@\d+-i(\d+)\.(\d+)\.(\d+)", row["id"]).groups()  # type: ignore[union-attr]
            told = (round_, "evaluation", int(number), int(issue), int(start), 0, item)
        else:
            start, attempt, issue = re.fullmatch(r"[ps]\d+(?:-i\d+(?:a(\d+)|greedy))?-i(\d+)\.(\d+)", row["id"]).group(
                2, 1, 3
            )  # type: ignore[union-attr]
            kind = "proposal" if row["role"] == "proposer" else "greedy" if "greedy" in row["id"] else "attempt"
            number = {"proposal": 0, "greedy": 2}.get(kind) if attempt is None else int(attempt)
            told = (round_ + 1, kind, number, int(issue), int(start), 0, None)
            db.execute(
                "UPDATE games SET round = ?, kind = 'proposed', number = ?, incarnation = ? WHERE id = ?",
                (round_ + 1, int(row["game_id"][1:8]), int(start), row["game_id"]),
            )
        db.execute(
            "UPDATE episodes SET (round, kind, attempt, issue, incarnation, past, item) = (?, ?, ?, ?, ?, ?, ?) "
            "WHERE id = ?",
            (*told, row["id"]),
        )
    db.commit()
    db.close()
