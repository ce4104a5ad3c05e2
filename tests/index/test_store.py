"""An index folder: the answers of the whole from any shards, and every way in which it can be broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from folders import Encode, corpus, dense

from ssp.base.errors import InputError
from ssp.data.readers import read_corpus
from ssp.search.hits import Knobs, merge
from ssp.search.index import store
from ssp.search.index.builder import IndexPlan, build_index
from ssp.search.shard import in_memory

ROWS = 200
ASKED = ["word3 town", "é5", "row17 word1", "nothing", "row199 row0", "title"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    build_index(corpus(folder / "c.jsonl", ROWS), folder / "index", dense(save_embedding=True), encode=Encode())
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made / "index", tmp_path / "index")


def lists(hits):
    return [[(row, np.float32(score).tobytes()) for row, score in found] for found in hits.lists()]


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_shards_merge_to_the_single_index(made, n):
    shards = [store.open_shard(made / "index", i, n) for i in range(n)]
    vectors = Encode()(ASKED)
    found = [shard.search(ASKED, vectors, 7, Knobs(), "hybrid") for shard in shards]
    documents = read_corpus(made / "c.jsonl")
    (memory,) = in_memory(documents)
    expected = memory.search(ASKED, None, 7, Knobs(), "bm25")[0]
    assert lists(merge([words for words, _ in found], 7)) == lists(expected)
    table = Encode()([d.contents for d in documents])
    scores = (vectors.astype(np.float64) @ table.T.astype(np.float64)).astype(np.float32)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :7]
    assert merge([dense for _, dense in found], 7).rows.tolist() == expected.tolist()
    assert [shard.span for shard in shards] == [(ROWS * i // n, ROWS * (i + 1) // n) for i in range(n)]
    assert [d for shard in shards for d in shard.fetch(np.arange(*shard.span))] == documents
    assert {shard.retriever for shard in shards} == {store.name_of(store.read_manifest(made / "index"))}
    assert {shard.kind for shard in shards} == {"hybrid"}


@pytest.mark.parametrize("n, fits", [(1, True), (2, True), (4, True), (3, False), (8, False)])
def test_an_approximate_index_is_cut_by_parts(tmp_path_factory, n, fits, made):
    folder = made / "parts"
    if not folder.exists():
        build_index(made / "c.jsonl", folder, dense("IVF4,Flat", parts=4, kind="dense"), encode=Encode())
    if not fits:
        with pytest.raises(InputError, match=f"4 parts, {n} shards.*--parts {n}"):
            store.open_shard(folder, 0, n)
        return
    vectors = Encode()(ASKED)
    shards = [store.open_shard(folder, i, n) for i in range(n)]
    found = merge([shard.search(ASKED, vectors, 5, Knobs(nprobe=4), "dense")[0] for shard in shards], 5)
    exact = store.open_shard(made / "index").search(ASKED, vectors, 5, Knobs(), "dense")[0]
    assert found.rows.tolist() == exact.rows.tolist()


FILES = ["documents.jsonl", "offsets.npy", *store.WORDS, "dense/vectors.npy"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_a_changed_file_is_refused(folder, name, how):
    store.open_shard(folder)
    path = folder / name
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(raw) if how == "flip" else bytes(raw[:-1]))
    with pytest.raises(InputError, match=name):
        store.open_shard(folder)


def test_contents_are_read_once_a_machine_and_again_when_asked(folder, monkeypatch):
    read = []
    inner = store._sha256
    monkeypatch.setattr(store, "_sha256", lambda path, *rest: read.append(path.name) or inner(path, *rest))
    store.open_shard(folder)
    names = ["data.npy", "documents.jsonl", "indptr.npy", "offsets.npy", "rows.npy", "tokens.txt", "vectors.npy"]
    assert sorted(read) == names
    store.open_shard(folder, 1, 2)
    assert len(read) == 7
    os.utime(folder / "offsets.npy", ns=(1, 1))
    store.open_shard(folder)
    assert read[7:] == ["offsets.npy"]
    store.verify(folder, store.read_manifest(folder), again=True)
    assert len(read) == 8 + len(store.read_manifest(folder).files)
    (folder / "file").write_text("")
    monkeypatch.setenv("SSP_CACHE", str(folder / "file"))
    for _ in range(2):  # a cache that cannot be written
        store.verify(folder, store.read_manifest(folder), [store.OFFSETS])
    assert read[-2:] == ["offsets.npy"] * 2


def rewritten(folder, edit):
    """The manifest with `edit` and a checksum that is right."""
    path = folder / store.MANIFEST
    body = {**json.loads(path.read_text()), **edit}
    path.write_text(json.dumps({**body, "sha256": store.own_digest(body)}))


@pytest.mark.parametrize(
    "edit", [{"bm25": [2.0, 0.25]}, {"rows": 4}, {"corpus_sha256": "0"}, {"sha256": ""}, {"files": {}}]
)
def test_an_edited_manifest_is_refused(folder, edit):
    path = folder / store.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    with pytest.raises(InputError, match="checksum"):
        store.open_shard(folder)


@pytest.mark.parametrize(
    "edit, word",
    [
        ({"version": 1}, "version 2.*version 1.*ssp index"),
        ({"version": 3}, "version"),
        ({"format": "ssp-bm25", "version": 1}, "ssp-bm25.*ssp index"),
        ({"tokeniser": "x"}, "built by x.*ssp index --corpus"),
        ({"files": {}}, "lists no documents"),
        ({"files": 3}, "manifest"),
        ({"rows": 4}, "offsets.npy has"),
        ({"rows": "x"}, "manifest"),
        ({"bm25": 3}, "manifest"),
        ({"dense": {"factory": "Flat"}}, "manifest"),
        ({"dense": {"factory": "Flat", "dim": 17, "parts": 1, "encoder": {"model": "x"}}}, "vectors.npy has"),
    ],
)
def test_another_form_is_refused_even_with_a_right_checksum(folder, edit, word):
    rewritten(folder, edit)
    with pytest.raises(InputError, match=word):
        store.open_shard(folder)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 99_999, b"null"])
def test_a_broken_manifest_is_refused(folder, text):
    (folder / store.MANIFEST).write_bytes(text)
    with pytest.raises(InputError):
        store.open_shard(folder)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"manifest\.json"):
        store.open_shard(tmp_path / "nothing")


def test_the_manifest_names_what_decides_the_answers(made, tmp_path):
    first = store.read_manifest(made / "index")
    assert (first.rows, first.kind, first.bm25, first.dense.factory) == (ROWS, "hybrid", (1.2, 0.25), "Flat")
    build_index(made / "c.jsonl", tmp_path / "same", dense(save_embedding=True), encode=Encode())
    build_index(made / "c.jsonl", tmp_path / "other", IndexPlan(k1=0.9))
    assert store.read_manifest(tmp_path / "same").sha256 == first.sha256
    other = store.read_manifest(tmp_path / "other")
    assert other.corpus_sha256 == first.corpus_sha256 and store.name_of(other) != store.name_of(first)


def test_what_is_loaded_fits_the_memory_and_vectors_are_read_at_the_start(made, monkeypatch):
    index = made / "index"
    with monkeypatch.context() as patched:
        patched.setattr(store, "available_mb", lambda: 10)
        with pytest.raises(InputError, match=r"\(process 300.*10 MB may be used"):
            store.open_shard(index)
    assert [*store.needs(store.read_manifest(index), 2)] == ["process", "words", "bm25"], "vectors are mapped"
    assert store.open_shard(index, 1, 2).dense._norm is not None


def test_a_folder_without_vectors_is_opened_without_faiss(made, tmp_path):
    build_index(made / "c.jsonl", tmp_path / "words", IndexPlan())
    script = "import sys; from ssp.search.index import store; store.open_shard(sys.argv[1]); assert 'faiss' not in sys.modules"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "words")], check=True, timeout=60)
