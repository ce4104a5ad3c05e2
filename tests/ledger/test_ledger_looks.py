"""Looking at a ledger: nothing is left in the folder, what a run writes later is seen, and errors name what is wrong."""

from __future__ import annotations

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
