"""A run whose folder is on a network: its ledger is written elsewhere, and the folder has all of it when the run ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FINAL, Stage, config, scripted

from ssp.record.ledger import home


def test_the_folder_has_every_episode_of_a_run_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)
    monkeypatch.setattr(home, "file_system", lambda path: "nfs4" if "share" in str(path) else "ext4")
    monkeypatch.setattr(home.tempfile, "gettempdir", lambda: str(tmp_path / "disk"))
    stage = Stage(config(), tmp_path / "share" / "run")
    stage.play()
    states = stage.settled()  # reads the folder's file
    assert {state for counts in states.values() for state, n in counts.items() if n} <= FINAL
    (written,) = (tmp_path / "disk").rglob("ledger.db")
    assert stage.ledger.digest() == home.Ledger(written, readonly=True).digest()
    assert states["eval"]["kept"] == 5 + 3 + 10  # at the start, at step 2, and of both sets after the last save
