"""Scripted policies in every test of self-play; a test with others of its own puts them in their place."""

from __future__ import annotations

from pathlib import Path

import fakes
import pytest

from ssp.selfplay.transfer import files


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """See `fakes.scripted`; files of weights that processes share lie in the test's folder."""
    made = files.memory_shelf
    monkeypatch.setattr(files, "memory_shelf", lambda run, role, keep: made(run, role, keep, tmp_path))
    fakes.scripted(monkeypatch)
