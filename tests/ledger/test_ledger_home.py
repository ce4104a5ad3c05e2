"""A ledger on a network file system: written on a local disk, copied before checkpoints, found again anywhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest

from ssp.base.errors import InputError
from ssp.record.ledger import HomeLedger, Ledger, home


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder that the kernel says is on NFS, and a temporary folder that is not."""
    share, disk = tmp_path / "my share #2?a=b%20", tmp_path / "disk"
    share.mkdir()
    disk.mkdir()
    mounts = [("/dev/sda1", "/", "ext4"), ("old:/", str(share), "cifs"), ("server:/share", str(share), "nfs4")]
    parts = [psutil._ntuples.sdiskpart(*mount, "rw") for mount in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: parts)
    monkeypatch.setattr(home.tempfile, "gettempdir", lambda: str(disk))
    return share / "run" / "ledger.db"


def open_at(target: Path) -> HomeLedger:
    target.parent.mkdir(exist_ok=True)
    return HomeLedger(target)


def queue(ledger: Ledger, *names: str) -> None:
    ledger.create([{"id": n, "game_id": "g", "role": "solver"} for n in names])
    ledger.advance([{"id": n, "state": "queued", "outcome": "scored", "reward": 1.0} for n in names])


def states(target: Path) -> dict[str, int]:
    book = Ledger(target, readonly=True)
    found = {state: n for state, n in book.check().get("solver", {}).items() if n}
    book.close()
    return found


def test_on_a_disk_the_run_folders_file_is_written(tmp_path: Path) -> None:
    assert home.file_system(tmp_path) and not home.shared(home.file_system(tmp_path))
    ledger = HomeLedger(tmp_path / "ledger.db")
    queue(ledger, "a")
    ledger.keep()
    assert ledger.where() == "" and states(tmp_path / "ledger.db") == {"queued": 1}


def test_on_a_network_the_folder_has_what_the_last_checkpoint_needs(network: Path) -> None:
    ledger = open_at(network)
    assert "is on nfs4" in ledger.where() and str(ledger.path) in ledger.where()
    queue(ledger, "a", "b")
    ledger.commit("solver", 1, 1, 1, ["a"])
    assert states(network) == {}
    ledger.keep()
    assert states(network) == {"trained": 1, "queued": 1}
    assert sorted(path.name for path in network.parent.iterdir()) == ["ledger.db"]
    ledger.commit("solver", 1, 2, 2, ["b"])
    assert ledger.path.with_name("ledger.db-wal").exists(), "who reads it holds up no write"
    ledger.fold()
    assert states(network) == {"trained": 2}


def test_a_new_run_where_one_was_deleted_begins_with_nothing(network: Path) -> None:
    first = open_at(network)
    queue(first, "a")
    first.fold()
    first.close()
    shutil.rmtree(network.parent)
    again = open_at(network)
    assert again.check() == {} and again.next_version("solver") == 1


def test_a_restart_on_the_same_machine_goes_on_from_the_last_call(network: Path) -> None:
    first = open_at(network)
    number = first.next_version("run")
    queue(first, "a")
    again = open_at(network)  # the one before was killed
    assert again.get(["a"])[0]["state"] == "queued" and again.next_version("run") == number + 1
    assert states(network) == {"queued": 1}  # and it is kept again at once


@pytest.mark.parametrize("lost", ["the disk", "the machine"])
def test_elsewhere_it_goes_on_from_the_copy_and_gives_no_number_again(network: Path, lost: str) -> None:
    first = open_at(network)
    queue(first, "a")
    first.next_version("solver")
    first.keep()
    given = [first.next_version("solver"), first.next_version("run")]
    queue(first, "b")
    work = first.path.parent
    aside = work.with_name("aside")
    shutil.move(work, aside)
    other = open_at(network)
    assert states(network) == {"queued": 1}
    assert other.next_version("solver") > given[0] and other.next_version("run") > given[1]
    if lost == "the machine":  # it comes back with an old file, after another one has gone on
        queue(other, "c")
        other.keep()
        shutil.rmtree(work)
        shutil.move(aside, work)
        assert [row["id"] for row in open_at(network).get(["a", "c"])] == ["a", "c"]


def test_a_temporary_folder_on_the_network_is_refused(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home.tempfile, "gettempdir", lambda: str(network.parent.parent))
    with pytest.raises(InputError, match="set TMPDIR"):
        open_at(network)


def test_a_copy_that_was_cut_short_is_fetched_again(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_at(network)
    queue(first, *(f"e{i:04}" for i in range(2000)))
    first.keep()
    shutil.rmtree(first.path.parent)
    whole = shutil.copyfile

    def cut(source: Path, target: Path) -> None:
        whole(source, target)
        with open(target, "r+b") as file:
            file.truncate(network.stat().st_size // 2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(home.shutil, "copyfile", cut)
        open_at(network)
    assert open_at(network).tally()["solver"]["queued"] == 2000


def test_a_copy_that_a_kill_left_half_is_no_lasting_one(network: Path) -> None:
    first = open_at(network)
    first.close()
    (network.parent / f".{network.name}.4711.part").write_bytes(b"half")
    open_at(network)
    assert [path.name for path in network.parent.iterdir()] == [network.name]


def test_what_a_checkpoint_is_about_to_name_is_in_the_file_itself(tmp_path: Path) -> None:
    """The log beside it need not have reached the disk when a machine fails, as state.json has."""
    ledger = HomeLedger(tmp_path / "ledger.db")
    queue(ledger, "a", "b")
    ledger.commit("solver", 1, 1, ledger.next_version("solver"), ["a"])
    ledger.keep()
    shutil.copyfile(tmp_path / "ledger.db", tmp_path / "alone.db")
    assert states(tmp_path / "alone.db") == {"trained": 1, "queued": 1}
    ledger.fold()  # at the end nothing is beside it, so that who looks on needs no right to write
    assert not list(tmp_path.glob("ledger.db-*"))


def test_numbers_go_on_from_the_highest_and_not_from_how_many_there_are(network: Path) -> None:
    """After a copy a million is left out; whoever counted rows would give numbers out that were used since."""
    first = open_at(network)
    queue(first, "a")
    given = [first.next_version("solver") for _ in range(3)]
    first.keep()
    first.close()
    shutil.rmtree(network.parent.parent.parent / "disk")
    (network.parent.parent.parent / "disk").mkdir()
    other = open_at(network)
    later = [other.next_version("solver", 2, step) for step in range(3)]
    assert later == [given[-1] + home.SKIPPED + n for n in (1, 2, 3)]
    assert other.next_version("solver", 2, 1) == later[1]
