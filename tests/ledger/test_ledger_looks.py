"""Looking at a ledger leaves nothing and sees what a run writes later; one whose writer was killed holds whole calls."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from ssp.base.errors import InputError
from ssp.record.ledger import Ledger


def create(ledger: Ledger, *names: str) -> None:
    ledger.create([{"id": name, "game_id": "g", "role": "solver"} for name in names])


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The ledger of a run that is over, in a folder with a name that a URI writes otherwise."""
    path = tmp_path / "100% ours?" / "ledger.db"
    path.parent.mkdir()
    ledger = Ledger(path)
    create(ledger, "a")
    ledger.fold()
    ledger.close()
    return path


def test_looking_leaves_nothing_in_the_folder(ended: Path) -> None:
    before = [(path.name, path.stat().st_mtime_ns) for path in sorted(ended.parent.iterdir())]
    looker = Ledger(ended, readonly=True)
    assert looker.issued() == {"solver": 1} and [row["id"] for row in looker.get(["a"])] == ["a"]
    assert [(path.name, path.stat().st_mtime_ns) for path in sorted(ended.parent.iterdir())] == before
    looker.close()
    ended.with_name("ledger.db-wal").touch()  # as who looked at it while it was played left it
    ended.parent.chmod(0o500)
    assert Ledger(ended, readonly=True).issued() == {"solver": 1}
    ended.parent.chmod(0o700)
    ended.with_name("ledger.db-wal").unlink()
    assert [(path.name, path.stat().st_mtime_ns) for path in sorted(ended.parent.iterdir())] == before


def test_who_looks_sees_what_a_run_writes_later(ended: Path) -> None:
    """One that looked before the run went on, and one that looks while it plays; and what they see is there after it."""
    early = Ledger(ended, readonly=True)
    assert early.issued() == {"solver": 1}
    run = Ledger(ended)
    create(run, "b")
    late = Ledger(ended, readonly=True)
    assert early.issued() == late.issued() == {"solver": 2}
    create(run, "c")
    assert early.issued() == late.issued() == {"solver": 3}
    late.close()
    early.close()
    run.close()
    assert sorted(path.name for path in ended.parent.iterdir()) == ["ledger.db"]


def test_what_cannot_be_opened_is_not_called_foreign(ended: Path) -> None:
    """A log that SQLite can neither read nor replace, as beside a file in a folder of somebody else's."""
    (ended.with_name("ledger.db-wal") / "full").mkdir(parents=True)
    with pytest.raises(InputError, match="can be opened where it lies.*unable to open.*copy the run's folder"):
        Ledger(ended, readonly=True)
    with pytest.raises(InputError, match="can be opened where it lies"):
        Ledger(ended.parent / "nowhere" / "ledger.db")


WRITER = """
import itertools, sys
from ssp.record.ledger import Ledger
ledger = Ledger(sys.argv[1])
for call in itertools.count():
    ids = [f"{call}-{i}" for i in range(50)]
    ledger.create([{"id": id, "game_id": "g", "role": "solver"} for id in ids])
    ledger.advance([{"id": id, "state": "queued", "outcome": "scored", "reward": 1.0} for id in ids])
    ledger.commit("solver", 1, call + 1, call + 1, ids)
    print(call, flush=True)
"""


def test_a_killed_writer_leaves_whole_calls(tmp_path):
    file = tmp_path / "ledger.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(5):
        said = int(writer.stdout.readline())
    time.sleep(0.003)
    writer.kill()
    writer.wait()
    said = max([said, *map(int, writer.stdout.read().split())])
    ledger = Ledger(file)
    states = ledger.check()["solver"]
    assert all(number % 50 == 0 for number in states.values())
    assert states["trained"] >= 50 * (said + 1)
    counts = ledger.rollback({"solver": 3})
    assert counts["trained"] == states["trained"] - 150
    assert ledger.check()["solver"]["trained"] == 150
