"""The embedded policy is the shipped one, unaltered."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.learning import coldstart
from ssp.selfplay.workers import build


def test_the_shipped_policy_is_small_and_refused_when_altered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {path.name: path.read_bytes() for path in coldstart.ARTEFACT.iterdir() if path.is_file()}
    assert sum(map(len, files.values())) < 600_000
    assert build.model_dir(Config(), "solver") == coldstart.ARTEFACT
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if name != "generation_config.json" else b"{}")
    monkeypatch.setattr(coldstart, "ARTEFACT", tmp_path)
    with pytest.raises(InputError, match="as they were written"):
        build.model_dir(Config(), "solver")
