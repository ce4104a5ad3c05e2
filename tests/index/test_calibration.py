"""Calibration: recall against exact search or said to be unknown, knobs in order, a table, a file."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from folders import Encode, corpus, dense

from ssp.episode import Document
from ssp.errors import InputError
from ssp.index import calibration, store
from ssp.index.builder import build_index
from ssp.index.calibration import Calibration, Setting, calibrate, describe_start, questions, recall
from ssp.search.dense import FaissIndex, FlatIndex, faiss
from ssp.search.hits import NO_ROW, Hits, Knobs
from ssp.search.shard import HeldDocuments, Shard


@pytest.fixture(scope="module")
def world():
    """3,000 vectors around 50 centres, 60 queries, IVF in two parts, HNSW."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((50, 32))[rng.integers(0, 50, 3060)] + 0.8 * rng.standard_normal((3060, 32))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    vectors, queries = vectors[:3000], vectors[3000:]

    def built(factory, rows):
        index = faiss.index_factory(32, factory, faiss.METRIC_INNER_PRODUCT)
        index.train(rows)
        index.add(rows)
        return index

    ivf = [FaissIndex([built("IVF32,Flat", vectors[a : a + 1500])], [a]) for a in (0, 1500)]
    return vectors, queries, ivf, FaissIndex([built("HNSW16", vectors)], [0])


def test_recall_and_times_of_a_grid_and_the_cheapest_that_is_good_enough(world):
    vectors, queries, ivf, _ = world
    grid = [Knobs(nprobe=n) for n in (32, 1, 8)]
    found = calibrate(ivf, queries, 10, FlatIndex(vectors).search(queries, 10), "name", grid, seconds=0.01)
    by_knob = {setting.nprobe: setting for setting in found.settings}
    assert by_knob[32].recall == 1 and by_knob[1].recall < by_knob[8].recall < 1
    assert all(setting.ms_1 > 0 and setting.ms_32 > 0 for setting in found.settings)
    assert found.smallest(1.0) == by_knob[32] and found.queries == 60 and found.threads >= 1
    assert [s.ms_32 for s in found.settings] == sorted(s.ms_32 for s in found.settings)
    table = found.table()
    assert "nprobe=32" in table and "1.000" in table and found.machine in table and found.date.endswith("+00:00")


def test_the_cheapest_comes_first_and_unknown_recall_is_never_enough():
    settings = (Setting(16, 0, 0.9, 0.1, 0.1), Setting(64, 0, 0.96, 0.3, 0.2), Setting(128, 0, 0.99, 0.5, 0.4))
    found = Calibration("r", 10, 5, settings, "m", 1, 0.0, "d")
    assert found.smallest() == settings[1] and found.smallest(0.99) == settings[2] and found.smallest(0.999) is None
    assert "reached with: ef_search=64" in found.table()
    unknown = Calibration("r", 10, 5, (Setting(16, 0, None, 0.1, 0.1),), "m", 1, 0.0, "d")
    assert unknown.smallest(0.0) is None and "unknown" in unknown.table() and "reached" not in unknown.table()
    poor = Calibration("r", 10, 5, settings[:1], "m", 1, 0.0, "d")
    assert "no setting reaches" in poor.table()


def test_without_exact_vectors_recall_is_unknown(world):
    _, queries, _, hnsw = world
    found = calibrate([hnsw], queries, 5, None, grid=[Knobs(ef_search=32)], seconds=0.01)
    assert found.settings[0].recall is None and "recall unknown" in found.table()


def test_the_grid_is_of_the_knobs_that_there_are(world):
    vectors, queries, ivf, hnsw = world
    assert {k.ef_search for k in calibration.default_grid(hnsw.knobs)} == {0, *calibration.EF_SEARCH}
    assert {k.nprobe for k in calibration.default_grid(ivf[0].knobs)} == {0, *calibration.NPROBE}
    assert calibration.default_grid(()) == [Knobs()]
    flat = calibrate([FlatIndex(vectors)], queries[:4], 3, FlatIndex(vectors).search(queries[:4], 3), seconds=0.01)
    assert len(flat.settings) == 1 and flat.settings[0].recall == 1 and str(flat.settings[0]) == "as built"
    with pytest.raises(InputError, match="nprobe"):
        calibrate([hnsw], queries, 5, None, grid=[Knobs(nprobe=3)], seconds=0.01)
    with pytest.raises(InputError, match="questions"):
        calibrate([hnsw], queries[:0], 5, None)


def test_recall_counts_what_is_there():
    exact = Hits.of([(np.array([1, 2, 3]), np.ones(3)), (np.array([4]), np.ones(1))], 3)
    assert recall(exact, exact) == 1
    assert recall(Hits(np.array([[1, 9, 2], [NO_ROW, 5, 6]]), np.zeros((2, 3), np.float32)), exact) == 0.5
    assert math.isnan(recall(exact, Hits.of([(np.empty(0), np.empty(0))] * 2, 3)))


def test_a_calibration_is_kept_for_its_own_retriever(tmp_path):
    found = Calibration("hnsw 1234", 10, 5, (Setting(16, 0, None, 0.1, 0.1),), "m", 1, 0.5, "2026-01-01")
    assert Calibration.load_from(tmp_path, "hnsw 1234") is None
    found.save(tmp_path)
    assert Calibration.load_from(tmp_path, "hnsw 1234") == found
    assert Calibration.load_from(tmp_path, "another") is None
    assert [path.name for path in tmp_path.iterdir()] == [calibration.FILE]
    for broken in ("{", "[]", json.dumps({"retriever": "hnsw 1234"})):
        (tmp_path / calibration.FILE).write_text(broken)
        with pytest.raises(InputError, match="remove it"):
            Calibration.load_from(tmp_path, "hnsw 1234")


def test_questions_are_titles_and_first_sentences_in_turn():
    documents = [Document(str(i), f'"Title {i}"\nBorn {i} b.c. in Rome. Died there.') for i in range(20)]
    held = HeldDocuments(documents[5:], first=5)
    texts = questions(held, 8)
    assert len(texts) == 8 and texts == questions(held, 8)
    assert sum(text.startswith("Title") for text in texts) == 4
    assert not any("Died" in text or '"' in text for text in texts)
    assert questions(HeldDocuments([Document("0", "\n"), Document("1", "")]), 9) == []
    assert all(len(text.split()) <= 24 for text in questions(HeldDocuments([Document("0", '"T"\n' + "word " * 99)]), 3))


class Letters:
    """An encoder: where in a text each letter is."""

    def encode_queries(self, texts):
        rows = [
            [sum((j + 2) ** 0.5 for j, c in enumerate(text) if c == chr(97 + i)) for i in range(26)] for text in texts
        ]
        return np.array(rows, np.float32), {}


def test_an_index_folder_is_measured_with_its_own_corpus(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    texts = ["".join(chr(97 + int(c)) for c in rng.integers(0, 26, 30)) for _ in range(400)]
    documents = [Document(str(i), f'"{text[:6]}"\n{text}. More.') for i, text in enumerate(texts)]
    vectors = Letters().encode_queries([d.contents for d in documents])[0]
    index = faiss.index_factory(26, "IVF8,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    shard = Shard("ivf", 400, HeldDocuments(documents), dense=FaissIndex([index], [0]))
    monkeypatch.setattr(calibration, "stored_vectors", lambda folder: [(vectors[:100], 0), (vectors[100:], 100)])
    monkeypatch.setattr(calibration, "measured", lambda folder: "dense ivf")
    found = calibration.calibrate_folder(tmp_path, [shard], Letters(), count=40, seconds=0.005)
    assert found.queries == 40 and found.retriever == "dense ivf"
    assert {s.nprobe: s.recall for s in found.settings}[16] == 1
    monkeypatch.setattr(calibration, "stored_vectors", lambda folder: None)
    unknown = calibration.calibrate_folder(tmp_path, [shard], Letters(), count=40, seconds=0.005)
    assert all(setting.recall is None for setting in unknown.settings)
    with pytest.raises(InputError, match="dense"):
        calibration.calibrate_folder(tmp_path, [Shard("b", 400, HeldDocuments(documents))], Letters())


def test_a_folder_of_both_kinds_has_one_calibration(tmp_path):
    made = build_index(corpus(tmp_path / "c.jsonl", 20), tmp_path / "i", dense(), encode=Encode())
    encoder = type("Queries", (), {"encode_queries": lambda self, texts: (Encode()(texts), {})})()
    for kind in ("hybrid", "dense"):
        shard = store.open_shard(tmp_path / "i", kind=kind)
        found = calibration.calibrate_folder(tmp_path / "i", [shard], encoder, count=4, seconds=0.001)
        assert found.retriever == calibration.measured(tmp_path / "i") == store.name_of(made, "dense")


def test_what_a_start_prints():
    found = Calibration("r", 10, 5, (Setting(16, 0, 1.0, 0.1, 0.1),), "m", 1, 0.0, "d")
    assert describe_start(found) == found.table()
    assert "unknown" in describe_start(None)
