"""The embedded policy is the shipped one, unaltered, and the tool that taught it still gives its like."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.learning import coldstart
from ssp.record.manifest import read_record
from ssp.selfplay.workers import build
from tests.bench.coldstart import teach


def test_the_shipped_policy_is_small_and_refused_when_altered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {path.name: path.read_bytes() for path in coldstart.ARTEFACT.iterdir() if path.is_file()}
    assert sum(map(len, files.values())) < 600_000
    assert build.model_dir(Config(), "solver") == coldstart.ARTEFACT
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if name != "generation_config.json" else b"{}")
    monkeypatch.setattr(coldstart, "ARTEFACT", tmp_path)
    with pytest.raises(InputError, match="as they were written"):
        build.model_dir(Config(), "solver")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_seed_0_passes_its_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the shipped one did; which of its bits are the same depends on the processor that multiplies."""
    monkeypatch.setattr(sys, "argv", ["teach.py", "--seed", "0", "--out", str(tmp_path / "made")])
    assert teach.main() == 0
    made, shipped = read_record(tmp_path / "made"), read_record(coldstart.ARTEFACT)
    assert made["gate_passed"]
    for name in ("tokenizer.json", "tokenizer_config.json", "tokenization_exact.py"):
        assert made["sha256"][name] == shipped["sha256"][name]
