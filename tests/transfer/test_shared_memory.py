"""Folders in shared memory: what a killed process left goes at the next start, a living one's stays."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ssp.base import shared

OWNER = """
import sys, time
from pathlib import Path
from ssp.base import shared
shared.SHARED_MEMORY = Path(sys.argv[1])
with shared.folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "SHARED_MEMORY", tmp_path)


def test_leftovers_of_a_killed_process_go_at_the_next_start_and_a_living_ones_stay(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner:
        theirs = Path(owner.stdout.readline().strip())
        with shared.folder() as mine:
            assert theirs.is_dir() and theirs != mine
        assert not mine.exists()
        owner.send_signal(signal.SIGKILL)
    (theirs / "weights.safetensors").touch()
    (tmp_path / f"{shared.PREFIX}old").touch()  # as earlier versions left them
    with shared.folder() as mine:
        assert [*tmp_path.iterdir()] == [mine]


def test_a_start_that_sweeps_at_the_wrong_moment_takes_no_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making a folder and locking it, another start may find it unlocked."""
    lock, swept = shared.fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not swept:
            swept.append("")
            swept.extend(shared.sweep(tmp_path))
        lock(descriptor, how)

    monkeypatch.setattr(shared.fcntl, "flock", late)
    with shared.folder() as mine:
        assert len(swept) == 2 and mine.is_dir()
