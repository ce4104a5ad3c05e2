"""A run that was recorded: two steps of a small quickstart in two starts, with ReMax, extra batches, contexts that are read
anew and three evaluation sets; beside it (`expected`) what readers made of it.

Weights lie in the archive as differences from those that they were learned from, in planes of bytes, because these compress.
Its ledger's columns were added, and a part of its rewards that episodes have no more was taken away.
"""

from __future__ import annotations

import json
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


def expected() -> Any:
    """What readers said: digest, outcomes, bank, curriculum, board, compare."""
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
    asked = [f"run.dir={run}", f"defaults.model={run / 'checkpoints' / 'solver' / 'v1'}"]
    cfg = concrete(load("quickstart", [*json.loads((to / "settings.json").read_text()), *asked]))
    (run / "config.yaml").write_text(to_yaml(cfg), encoding="utf-8")
    return run
