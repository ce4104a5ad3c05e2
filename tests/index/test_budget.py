"""What an index needs: refusals with a table, a warning for what is mapped, free memory."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.search.index import budget
from ssp.search.index.budget import Component, check


@pytest.fixture
def four_gb(monkeypatch):
    """A machine with 4,000 MB free."""
    monkeypatch.setattr(budget, "available_mb", lambda memory_mb=0: min(4000, memory_mb or 4000))


def test_what_fits_is_let_through_in_silence(four_gb):
    assert check([Component("dense", 1000), Component("documents", 2000, mapped=True)]) == ""


def test_what_does_not_fit_is_refused_with_a_table(four_gb):
    with pytest.raises(InputError) as error:
        check([Component("dense", 3500), Component("encoder", 700), Component("documents", 9, mapped=True)])
    text = str(error.value)
    for part in ("dense", "3,500 MB", "encoder", "700 MB", "documents", "page cache", "4,200 MB", "4,000 MB"):
        assert part in text
    with pytest.raises(InputError, match="fits its memory"):
        check([Component("dense", 3500)], memory_mb=3000)


def test_what_is_mapped_only_warns(four_gb):
    warning = check([Component("dense", 60_000, mapped=True), Component("encoder", 700)])
    assert "60,000 MB" in warning and "read from disk" in warning


def test_the_free_memory_is_bounded_by_the_setting_and_the_machine(monkeypatch):
    assert budget.available_mb(100) == 100
    assert 0 < budget.available_mb() <= budget.available_mb(0) * 1.5
    monkeypatch.setattr(budget, "_cgroup_rest", lambda: iter([50.0, 70.0]))
    assert budget.available_mb(100) == 50


@pytest.mark.parametrize(
    ("lines", "files", "rest"),
    [
        (
            "4:cpu:/x\n0::/box\n",
            {
                "box/memory.max": "1048576000",
                "box/memory.current": "524288000",
                "box/memory.stat": "inactive_file 104857600",
            },
            [600.0],
        ),
        ("0::/box\n", {"box/memory.max": "max", "box/memory.current": "5", "box/memory.stat": "inactive_file 1"}, []),
        (
            "3:memory:/box\n0::/\n",
            {
                "memory/memory.limit_in_bytes": "209715200",
                "memory/memory.usage_in_bytes": "104857600",
                "memory/memory.stat": "cache 5\ntotal_inactive_file 0",
            },
            [100.0],
        ),
        ("0::/gone\n", {}, []),
        (  # a limit of a group around the process's own
            "0::/slice/box\n",
            {
                "slice/memory.max": "209715200",
                "slice/memory.current": "104857600",
                "slice/memory.stat": "inactive_file 1048576\nactive_file 1048576",
            },
            [102.0],
        ),
    ],
)
def test_cgroups_of_both_versions_are_read(tmp_path, monkeypatch, lines, files, rest):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "own").write_text(lines)
    monkeypatch.setattr(budget, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(budget, "CGROUPS", tmp_path)
    assert list(budget._cgroup_rest()) == rest
