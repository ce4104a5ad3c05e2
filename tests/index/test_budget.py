"""What an index needs: refused or let through."""

from __future__ import annotations

import pytest

from ssp.base import devices
from ssp.base.errors import InputError
from ssp.search.index import store


def test_what_fits_is_let_through_and_the_rest_is_refused(monkeypatch):
    monkeypatch.setattr(store, "available_mb", lambda: 4000)
    store.check_memory({"dense": 4000})
    with pytest.raises(InputError, match=r"4,200 MB \(dense 3,500, encoder 700\), and 4,000 MB may be used"):
        store.check_memory({"dense": 3500, "encoder": 700})


def test_the_free_memory_is_bounded_by_the_groups_around_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(devices, "CGROUPS", tmp_path)
    (tmp_path / "own").write_text("4:cpu:/x\n0::/slice/box\n")
    box = tmp_path / "slice" / "box"
    box.mkdir(parents=True)
    assert devices.available_mb() > 100, "nothing is told"
    for folder, most in ((box, "max"), (box.parent, str(90 * 2**20))):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{60 * 2**20}\n")
        (folder / "memory.stat").write_text(f"inactive_file {2**20}\nactive_file {2**20}\n")
    assert devices.available_mb() == 32
    assert list(devices.memories())[1:] == [(32 * 2**20, 90 * 2**20)]
