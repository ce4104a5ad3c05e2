"""Dense search: exact to the bit however it is cut, faiss's knobs by request, faiss's files in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp.base.errors import InputError
from ssp.search.dense import FaissIndex, FlatIndex, faiss, flat_vectors
from ssp.search.hits import NO_ROW, Hits, Knobs, merge

IP = faiss.METRIC_INNER_PRODUCT


def normal(rows: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def clustered(rows: int, width: int, seed: int = 0, clusters: int = 200) -> np.ndarray:
    """Points around a few hundred centres, of length 1, as embeddings are."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((clusters, width))[rng.integers(0, clusters, rows)]
    points = points + 0.8 * rng.standard_normal((rows, width))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)


def brute(vectors: np.ndarray, queries: np.ndarray, k: int) -> Hits:
    """Every product in double precision, rounded; sorted by score, then row."""
    scores = np.stack([(vectors.astype(np.float64) * query.astype(np.float64)).sum(1) for query in queries])
    scores = scores.astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Hits.of(list(zip(order, np.take_along_axis(scores, order, 1), strict=True)), k)


def same(a: Hits, b: Hits) -> bool:
    return bool((a.rows == b.rows).all()) and a.scores.tobytes() == b.scores.tobytes()


def cut(vectors: np.ndarray, bounds: list[int], queries: np.ndarray, k: int) -> Hits:
    """The merged answer of shards that begin at `bounds`."""
    ends = [*bounds[1:], len(vectors)]
    shards = [FlatIndex(vectors[a:b], a) for a, b in zip(bounds, ends, strict=True)]
    return merge([shard.search(queries, k) for shard in shards], k)


def crowded() -> np.ndarray:
    """Rows with everything that makes a cut hard: copies, copies but for the last bit, zeros, opposites."""
    vectors = normal(3000, 48)
    vectors[100:140] = vectors[7]
    vectors[2000:2030] = np.nextafter(vectors[7], np.float32(np.inf))
    vectors[2990:] = vectors[7]
    vectors[300:400] = 0
    vectors[500:600] = -vectors[700:800]
    return vectors


@pytest.mark.covers("SR-42")
@pytest.mark.parametrize("k", [1, 5, 36, 60, 500])
def test_flat_is_brute_force_to_the_bit_and_so_are_its_shards(k):
    vectors = crowded()
    queries = np.concatenate([normal(20, 48, 1), vectors[[7, 2005, 300, 505]]])
    expected = brute(vectors, queries, k)
    assert same(FlatIndex(vectors).search(queries, k), expected)
    assert same(cut(vectors, [0, 120, 121, 130, 2010, 2999], queries, k), expected)


def test_scores_that_float32_cannot_tell_apart_are_ordered_by_their_true_value():
    """Sums that cancel: float32 products in any order give noise of 1e-4, the true values differ by 1e-6."""
    rng = np.random.default_rng(3)
    half = rng.standard_normal((2000, 200)).astype(np.float32) * 30
    vectors = np.concatenate([half, -half, 1e-6 * rng.permutation(2000)[:, None].astype(np.float32)], axis=1)
    queries = np.concatenate([np.ones((25, 400)), np.ones((25, 1))], axis=1).astype(np.float32)
    queries[:, :400] *= rng.uniform(0.9, 1.1, (25, 1)).astype(np.float32)
    expected = brute(vectors, queries, 10)
    assert same(FlatIndex(vectors).search(queries, 10), expected)
    assert same(cut(vectors, [0, 777], queries, 10), expected)
    _, rough = faiss.knn(queries, vectors, 10, metric=IP)
    assert (rough != expected.rows).any(), "float32 alone would do: the test shows nothing"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_shards_of_any_vectors_are_the_whole(data):
    width = data.draw(st.sampled_from([1, 2, 3, 8, 17, 64]))
    rows = data.draw(st.integers(1, 60))
    values = st.sampled_from([0.0, 1.0, -1.0, 0.1, 1 / 3, 1e-8, 3e4, 7.0])
    distinct = data.draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=6))
    picks = data.draw(st.lists(st.integers(0, len(distinct) - 1), min_size=rows, max_size=rows))
    vectors = np.array(distinct, np.float32)[picks]
    asked = data.draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=24))
    queries, k = np.array(asked, np.float32), data.draw(st.integers(1, 70))
    bounds = sorted(data.draw(st.sets(st.integers(0, rows), max_size=4)) | {0})
    expected = brute(vectors, queries, k)
    assert same(FlatIndex(vectors).search(queries, k), expected)
    assert same(cut(vectors, bounds, queries, k), expected)


def test_more_than_there_is_and_nothing_at_all():
    vectors = normal(5, 8)
    hits = FlatIndex(vectors, first=100).search(normal(2, 8, 1), 9)
    assert (np.sort(hits.rows[:, :5]) == np.arange(100, 105)).all()
    assert (hits.rows[:, 5:] == NO_ROW).all() and np.isneginf(hits.scores[:, 5:]).all()
    empty = FlatIndex(vectors[:0]).search(normal(2, 8, 1), 3)
    assert (empty.rows == NO_ROW).all() and empty.rows.shape == (2, 3)
    assert FlatIndex(vectors).search(normal(0, 8), 3).rows.shape == (0, 3)


@pytest.mark.parametrize("found", [FlatIndex, lambda v: FaissIndex([built("Flat", v)], [0])])
def test_bad_requests_are_refused(found):
    index = found(normal(9, 4))
    for queries, k, knobs in (
        (normal(1, 5), 1, Knobs()),
        (normal(1, 4)[0], 1, Knobs()),
        (np.full((1, 4), np.nan, np.float32), 1, Knobs()),
        (normal(1, 4), 1, Knobs(ef_search=8)),
        (normal(1, 4), 1, Knobs(nprobe=8)),
    ):
        with pytest.raises(InputError):
            index.search(queries, k, knobs)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_vectors_without_a_finite_score_are_refused(value):
    vectors = normal(50, 4)
    vectors[13, 2] = value
    with pytest.raises(InputError, match="finite"):
        FlatIndex(vectors).search(normal(1, 4), 3)


def built(factory: str, vectors: np.ndarray, metric: int = IP) -> Any:
    index = faiss.index_factory(vectors.shape[1], factory, metric)
    if not index.is_trained:
        index.train(vectors)
    index.add(vectors)
    return index


def recall(found: Hits, exact: Hits) -> float:
    pairs = zip(found.rows.tolist(), exact.rows.tolist(), strict=True)
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in pairs]))


@pytest.mark.covers("SR-43", "SR-44")
def test_hnsw_and_ivf_find_what_is_near_in_20k_clustered_vectors():
    vectors, queries = clustered(20_000, 64), clustered(200, 64, seed=0)
    exact = FlatIndex(vectors).search(queries, 10)
    hnsw = FaissIndex([built("HNSW32", vectors)], [0])
    assert recall(hnsw.search(queries, 10, Knobs(ef_search=128)), exact) >= 0.95
    ivf = FaissIndex([built("IVF64,Flat", vectors)], [0])
    assert recall(ivf.search(queries, 10, Knobs(nprobe=1)), exact) < 1
    whole = ivf.search(queries, 10, Knobs(nprobe=64))
    assert (whole.rows == exact.rows).all()
    np.testing.assert_allclose(whole.scores, exact.scores, rtol=1e-5)


@pytest.mark.parametrize(
    ("factory", "held"),
    [
        ("Flat", ()),
        ("SQfp16", ()),
        ("PQ8x4", ()),
        ("HNSW16", ("ef_search",)),
        ("HNSW16_SQ8", ("ef_search",)),
        ("PCA16,HNSW8", ("ef_search",)),
        ("IDMap,HNSW8", ("ef_search",)),
        ("IVF32,Flat", ("nprobe",)),
        ("IVF32_HNSW8,Flat", ("ef_search", "nprobe")),
        ("IVF32,SQ8,RFlat", ("nprobe",)),
        ("OPQ8_32,IVF32,PQ8x4fs,RFlat", ("nprobe",)),
    ],
)
def test_knobs_reach_the_index_inside_for_one_request_only(factory, held):
    vectors, queries = clustered(2000, 32), clustered(50, 32, seed=0)
    inner = faiss.index_factory(32, factory, IP)
    if not inner.is_trained:
        inner.train(vectors)
    inner.add_with_ids(vectors, np.arange(2000)) if "IDMap" in factory else inner.add(vectors)
    index = FaissIndex([inner], [5000])
    assert index.knobs == held
    exact, before = FlatIndex(vectors, 5000).search(queries, 10), index.search(queries, 10)
    assert same(before, index.search(queries, 10, Knobs()))
    worst = index.search(queries, 10, Knobs(**dict.fromkeys(held, 1)))
    best = index.search(queries, 10, Knobs(**{name: {"ef_search": 256, "nprobe": 32}[name] for name in held}))
    assert not held or recall(best, exact) > recall(worst, exact)
    assert same(before, index.search(queries, 10)), "a knob outlived its request"
    for name in {"ef_search", "nprobe"} - set(held):
        with pytest.raises(InputError, match=name):
            index.search(queries, 10, Knobs(**{name: 4}))


def test_parts_are_one_index_and_what_was_not_found_is_not_a_row():
    vectors, queries = clustered(900, 16), clustered(30, 16, seed=0)
    parts = [built("IVF4,Flat", vectors[:400]), built("IVF4,Flat", vectors[400:])]
    index = FaissIndex(parts, [0, 400])
    exact = FlatIndex(vectors).search(queries, 10)
    assert (index.search(queries, 10, Knobs(nprobe=4)).rows == exact.rows).all()
    few = index.search(queries, 600, Knobs(nprobe=1))
    assert few.rows.shape == (30, 600) and (few.rows == NO_ROW).any()
    for rows, scores in zip(few.rows, few.scores, strict=True):
        held = rows[rows != NO_ROW]
        assert len(set(held.tolist())) == len(held) and (rows[len(held) :] == NO_ROW).all()
        assert (np.diff(scores[: len(held)]) <= 0).all() and np.isneginf(scores[len(held) :]).all()


@pytest.mark.covers("SR-42")
@pytest.mark.parametrize("factory", ["Flat", "HNSW16"])
def test_the_vectors_of_a_faiss_file_are_read_in_place(tmp_path, factory):
    vectors, path = normal(1000, 24), tmp_path / "e5.index"
    faiss.write_index(built(factory, vectors), str(path))
    mapped = flat_vectors(path)
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    spans = [[int(end, 16) for end in span.split("-")] for span, *_ in maps]
    assert any(first <= mapped.ctypes.data < last for first, last in spans) and (mapped == vectors).all()
    queries = normal(40, 24, 1)
    assert same(FlatIndex(mapped[333:], 333).search(queries, 7), FlatIndex(vectors[333:], 333).search(queries, 7))
    assert same(cut(mapped, [0, 100, 555], queries, 7), brute(vectors, queries, 7))


def test_files_without_plain_vectors_are_refused(tmp_path):
    path = tmp_path / "some.index"
    for factory, metric, rule in (
        ("IVF4,Flat", IP, "flat faiss index"),
        ("HNSW8_SQ8", IP, "flat faiss index"),
        ("Flat", faiss.METRIC_L2, "inner product"),
        ("HNSW8", faiss.METRIC_L2, "inner product"),
        ("Flat", faiss.METRIC_L1, "inner product"),
    ):
        faiss.write_index(built(factory, normal(200, 8), metric), str(path))
        with pytest.raises(InputError, match=rule):
            flat_vectors(path)
    faiss.write_index(built("Flat", normal(200, 8)), str(path))
    whole = path.read_bytes()
    for size in (len(whole) - 1, 50, 44, 20, 3, 0):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="faiss reads"):
            flat_vectors(path)
