"""What an index needs: estimates against faiss's own files, refusals with a table, choices with reasons."""

from __future__ import annotations

import numpy as np
import pytest

from ssp.errors import InputError
from ssp.index import budget
from ssp.index.budget import Component, check, choose, expected_ms, index_bytes
from ssp.search.dense import faiss
from ssp.search.hits import Knobs

WIKI = 21_015_324


@pytest.mark.parametrize(
    "factory",
    [
        "Flat",
        "SQfp16",
        "SQ8",
        "HNSW32",
        "HNSW16_SQ8",
        "IDMap,Flat",
        "PCA32,Flat",
        "IVF64,Flat",
        "IVF64,SQ8",
        "IVF64_HNSW16,SQ8",
        "PCAR32,IVF64,PQ8x4",
        "IVF64,PQ16x4fs,RFlat",
        "PQ4x4",
    ],
)
def test_the_estimate_is_the_size_of_the_index_that_faiss_writes(factory):
    vectors = np.random.default_rng(0).standard_normal((5000, 64)).astype(np.float32)
    index = faiss.index_factory(64, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add_with_ids(vectors, np.arange(5000)) if "IDMap" in factory else index.add(vectors)
    written = len(faiss.serialize_index(index))
    assert index_bytes(factory, 5000, 64) == pytest.approx(written, rel=0.05, abs=20_000)


@pytest.mark.parametrize("factory", ["Nothing", "", "IVF,", "PQ7"])
def test_a_factory_that_faiss_refuses_is_refused(factory):
    with pytest.raises(InputError, match="index_factory"):
        index_bytes(factory, 1000, 64)


@pytest.fixture
def four_gb(monkeypatch):
    """A machine with 4,000 MB free."""
    monkeypatch.setattr(budget, "available_mb", lambda memory_mb=0: min(4000, memory_mb or 4000))


def test_what_fits_is_let_through_in_silence(four_gb):
    assert check([Component("dense", 1000), Component("documents", 2000, mapped=True)]) == ""


def test_what_does_not_fit_is_refused_with_a_table(four_gb):
    with pytest.raises(InputError) as error:
        check(
            [Component("dense", 3500, note="HNSW32"), Component("encoder", 700), Component("documents", 9, mapped=True)]
        )
    text = str(error.value)
    for part in ("dense", "3,500 MB  HNSW32", "encoder", "700 MB", "documents", "page cache", "4,200 MB", "4,000 MB"):
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


def test_a_small_corpus_is_searched_exactly():
    choice = choose(20_000, 384, memory_mb=4000, latency_ms=50)
    assert choice.factory == "Flat" and choice.knobs == Knobs()
    assert "taken" in str(choice) and all("more exact" in line for line in choice.reasons[2:])


def test_wikipedia_in_16_gb_needs_codes():
    choice = choose(WIKI, 768, memory_mb=16_000, latency_ms=1000)
    assert ",PQ" in choice.factory and choice.knobs.nprobe > 0 and choice.mb < 16_000
    assert any("Flat" in line and "memory" in line for line in choice.reasons)


def test_wikipedia_in_a_big_machine_is_a_matter_of_time():
    assert choose(WIKI, 768, memory_mb=200_000, latency_ms=20_000).factory == "Flat"
    choice = choose(WIKI, 768, memory_mb=200_000, latency_ms=20)
    assert choice.factory == "HNSW32" and choice.knobs.ef_search > 0
    assert any("  Flat" in line and "no: time" in line for line in choice.reasons)


def test_more_shards_make_exact_search_quick_enough():
    alone = choose(2_000_000, 768, memory_mb=100_000, latency_ms=60)
    assert alone.factory != "Flat" and choose(2_000_000, 768, 100_000, 60, shards=16).factory == "Flat"


def test_no_index_for_such_a_budget_is_said_with_every_reason():
    with pytest.raises(InputError) as error:
        choose(WIKI, 768, memory_mb=1000, latency_ms=50)
    assert str(error.value).count("no: memory") == 6


@pytest.mark.parametrize("dim", [64, 100, 384, 1024, 7])
def test_what_is_chosen_can_be_made(dim):
    for rows in (50, 10_000, 1_000_000):
        for factory, knobs, _ in budget._candidates(rows, dim):
            assert index_bytes(factory, rows, dim) > 0 and 0 < expected_ms(factory, knobs, rows, dim) < 1e4
