"""The GPU check itself, in its dry form: it has not been run on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import check
import pytest

SCRIPT = Path(__file__).with_name("check.py")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_dry_form_runs_every_kind_of_part(tmp_path: Path) -> None:
    """vllm is left out: it has a suite of its own, and takes half a minute to start."""
    wanted = ["learner-3B", "zero-3", "object_store"]
    command = [sys.executable, str(SCRIPT), "--dry", "--folder", str(tmp_path), "--parts", *wanted]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["part"]: row for row in map(json.loads, done.stdout.split("\n\n")[0].splitlines())}
    assert list(rows) == wanted
    assert rows["learner-3B"]["tokens_per_second"] > 0 and 0 < rows["learner-3B"]["mfu"] < 2
    assert rows["zero-3"]["cosine"] > 0.999
    assert rows["object_store"]["seconds"] > 0 and rows["object_store"]["bound"] > 0


def test_a_failure_is_a_row_and_a_missed_target_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check.sys, "executable", "/bin/false")
    failed = check.apart("zero-1", tmp_path, dry=True)
    assert failed == {"failed": "exit code 1"}
    good, bad = (
        {"part": "object_store", "seconds": 1.23456, "missed": []},
        {"part": "learner-3B", "missed": ["MFU >= 45%"]},
    )
    assert check.table([good, {"part": "vllm", "not_run": "vllm is not installed"}]) == 0
    assert check.table([good, bad, {"part": "zero-1", **failed}]) == 1
    said = capsys.readouterr().out
    assert "seconds 1.235" in said and "MFU >= 45%" in said
    assert said.endswith("failed, or missed a target: learner-3B, zero-1\n")
