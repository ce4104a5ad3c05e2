"""Files of weights: the safetensors format, who removes which file, and what a torn or missing one is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from ssp.base import shared
from ssp.base.errors import Fault, InvariantError, SspError
from ssp.base.shared import sweep
from ssp.record.manifest import seal
from ssp.selfplay.transfer.files import Shelf, disk_shelf, memory_shelf, read
from ssp.selfplay.transfer.publisher import Publisher


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "model.embed.weight": rng.standard_normal((7, 3)).astype(np.float32),
        "norm.weight": rng.standard_normal(5).astype(np.float16),
        "scalar": np.array(3.5, np.float32),
        "none": np.zeros((0, 4), np.float32),
        "steps": np.arange(4)[::2],  # not contiguous
    }


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return list(a) == list(b) and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and a[name].tobytes() == b[name].tobytes()
        for name in a
    )


@pytest.fixture(params=["memory", "disk"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    if request.param == "memory":
        return memory_shelf("run-1", "solver", 2, tmp_path)
    return disk_shelf(tmp_path, "solver", 2)


def test_a_file_is_safetensors_and_comes_back_bit_for_bit(shelf: Shelf) -> None:
    path = shelf.put(0, weights())
    found = read(path)
    assert same(found, weights())
    theirs = safetensors.numpy.load_file(path)
    assert same({name: theirs[name] for name in found}, found)
    with pytest.raises(ValueError, match="read-only"):
        found["model.embed.weight"][0, 0] = 1.0


def test_the_newest_stay_and_a_reader_keeps_what_it_has_mapped(shelf: Shelf, tmp_path: Path) -> None:
    paths = [shelf.put(0, weights(0))]
    first = read(paths[0])
    paths += [shelf.put(serial, weights(serial)) for serial in (1, 2, 3)]
    assert [path.exists() for path in paths] == [False, False, True, True]
    assert same(first, weights(0)) and same(read(paths[3]), weights(3))
    with pytest.raises(Fault, match="payload_lost"):
        read(paths[0])
    shelf.close()
    assert not [path for path in paths if path.exists()] and not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("left", [0, 6, 40, 300])
def test_a_torn_file_is_a_lost_payload(tmp_path: Path, left: int) -> None:
    path = memory_shelf("r", "solver", 1, tmp_path).put(0, weights())
    os.truncate(path, left)
    with pytest.raises(Fault, match="payload_lost"):
        read(path)


def test_a_model_folder_is_read_whole_and_as_its_record_has_it(tmp_path: Path) -> None:
    publisher = Publisher()
    publisher.exported = weights  # type: ignore[method-assign]
    publisher.export(str(tmp_path / "v1"), {})
    assert same(read(tmp_path / "v1"), weights())
    seal(tmp_path / "v1", {})
    (tmp_path / "v1" / "model.safetensors").write_bytes(
        memory_shelf("r", "x", 1, tmp_path).put(0, weights(1)).read_bytes()
    )
    with pytest.raises(Fault, match="payload_lost.*sha256"):
        read(tmp_path / "v1")


def test_a_dtype_that_the_file_cannot_hold_leaves_nothing(shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(InvariantError, match="complex128"):
        shelf.put(0, {"w": np.zeros(2, np.complex128)})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_without_room_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SspError, match=r"transfer\.kind"):
        memory_shelf("r", "solver", 1, tmp_path).put(0, weights())
    assert list(tmp_path.iterdir()) == []


OWNER = """
import sys, time
import numpy as np
from pathlib import Path
from ssp.selfplay.transfer.files import memory_shelf
shelf = memory_shelf("killed-run", "solver", 2, Path(sys.argv[1]))
print(shelf.put(0, {"w": np.ones(3, np.float32)}), flush=True)
time.sleep(600)
"""


def test_leftovers_of_a_killed_learner_go_at_the_next_start_and_a_living_ones_stay(tmp_path: Path) -> None:
    mine = memory_shelf("my-run", "solver", 2, tmp_path).put(0, weights())
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner:
        theirs = Path(owner.stdout.readline().strip())
        assert "killed-run" in theirs.name and str(owner.pid) in theirs.name
        assert sweep(tmp_path) == [] and theirs.exists()
        owner.send_signal(signal.SIGKILL)
    assert theirs.exists()  # memory files outlive their process: that is why there is a sweep
    memory_shelf("another-run", "proposer", 2, tmp_path)
    assert not theirs.exists() and mine.exists()


def test_a_start_that_sweeps_at_the_wrong_moment_takes_no_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making a file and locking it, another run's start may find it unlocked."""
    lock, swept = shared.fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not swept:
            swept.append(True)
            swept.extend(sweep(tmp_path))
        lock(descriptor, how)

    shelf = memory_shelf("r", "solver", 2, tmp_path)
    monkeypatch.setattr(shared.fcntl, "flock", late)
    path = shelf.put(0, weights())
    assert len(swept) == 2 and same(read(path), weights())


def test_the_disk_shelf_of_a_resumed_run_starts_empty(tmp_path: Path) -> None:
    old = disk_shelf(tmp_path, "solver", 2).put(0, weights())
    new = disk_shelf(tmp_path, "solver", 2).put(0, weights(1))
    assert same(read(new), weights(1)) and [path for path in old.parent.iterdir()] == [new]
