"""Building an index folder: what is in it, what is taken over, what is refused, and going on after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
from folders import DIM, Encode, corpus, dense

from ssp.base.errors import InputError
from ssp.data.readers import read_corpus
from ssp.search import bm25, documents, postings
from ssp.search.hits import Knobs, merge
from ssp.search.index import builder, store, vectors
from ssp.search.index.builder import IndexPlan, build_index

ROWS = 150
ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path):
    return corpus(tmp_path / "c.jsonl", ROWS)


def contents(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != store.MANIFEST
    }


def table(source):
    return Encode()([d.contents for d in read_corpus(source)])


@pytest.mark.parametrize("run_tokens, merged", [(70, 300), (400, 1), (8_000_000, 16_000_000)])
def test_bm25_on_disk_has_the_bits_of_bm25_in_memory(source, tmp_path, monkeypatch, run_tokens, merged):
    monkeypatch.setattr(postings, "RUN_TOKENS", run_tokens)
    monkeypatch.setattr(postings, "MERGED_POSTINGS", merged)
    build_index(source, tmp_path / "i", IndexPlan(k1=0.9, b=0.4))
    built = bm25.build([d.contents for d in read_corpus(source)], 0.9, 0.4)
    held = store.open_shard(tmp_path / "i").bm25
    for one, other in ((held.data, built.data), (held.local, built.local), (held.indptr, built.indptr)):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert list(held.vocabulary.items()) == list(built.vocabulary.items())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.jsonl", "i"]


@pytest.mark.covers("SR-50")
@pytest.mark.parametrize(
    "factory, knobs",
    [
        ("Flat", Knobs()),
        ("HNSW32", Knobs(ef_search=200)),
        ("IVF8,Flat", Knobs(nprobe=8)),
        ("IVF8,SQfp16", Knobs(nprobe=8)),
    ],
)
def test_every_kind_of_dense_index_finds_what_is_nearest(source, tmp_path, factory, knobs):
    made = build_index(source, tmp_path / "i", dense(factory), encode=Encode())
    assert (made.dense.factory, made.dense.dim, made.dense.encoder.model) == (factory, DIM, "fake/encoder")
    asked = Encode()(["one", "two", "three"])
    found = store.open_shard(tmp_path / "i").search([], asked, 1, knobs, "dense")[0]
    assert found.rows[:, 0].tolist() == (asked @ table(source).T).argmax(axis=1).tolist()


def test_a_file_system_without_second_names(source, tmp_path, monkeypatch):
    def refuses(*paths):
        raise PermissionError(1, "Operation not permitted")

    build_index(source, tmp_path / "linked", dense(), encode=Encode())
    monkeypatch.setattr("os.link", refuses)
    build_index(source, tmp_path / "copied", dense(), encode=Encode())
    assert contents(tmp_path / "copied") == contents(tmp_path / "linked")


@pytest.mark.covers("SR-50")
def test_a_saved_embedding_is_used_again_without_encoding(source, tmp_path, monkeypatch):
    encode = Encode()
    build_index(source, tmp_path / "one", dense(save_embedding=True), encode=encode)
    assert encode.texts == ROWS
    saved = tmp_path / "one" / store.EMBEDDING
    assert np.array_equal(np.load(saved), table(source)) and saved.stat().st_nlink == 2
    again = Encode()
    for name, link_from in (("two", 2**40), ("three", 1)):
        monkeypatch.setattr(documents, "LINK_FROM", link_from)
        build_index(source, tmp_path / name, dense(embedding=saved), encode=again)
        assert contents(tmp_path / name) == {
            n: raw for n, raw in contents(tmp_path / "one").items() if n != store.EMBEDDING
        }
        assert (tmp_path / name / store.VECTORS).samefile(saved) == (link_from == 1)
    np.load(saved).tofile(tmp_path / "emb_e5.memmap")
    np.save(tmp_path / "half.npy", np.load(saved).astype(np.float16))
    build_index(source, tmp_path / "four", dense(embedding=tmp_path / "emb_e5.memmap"), encode=again)
    assert contents(tmp_path / "four") == contents(tmp_path / "two")
    build_index(source, tmp_path / "five", dense("HNSW16", embedding=tmp_path / "half.npy"), encode=again)
    assert again.texts == 0


def broken(rows=ROWS, dim=DIM, bad=None):
    made = np.ones((rows, dim), np.float32)
    if bad is not None:
        made[bad, 1] = np.nan
    return made


@pytest.mark.parametrize(
    "saved, word",
    [
        (broken(ROWS - 1), "149 rows"),
        (broken(dim=8), "rows of 8"),
        (broken(bad=77), "row 77"),
        (broken().astype(np.float64), "float64"),
        (np.ones(ROWS, np.float32), "one table"),
        (b"", "embedding"),
        (b"\x93NUMPY", "embedding"),
    ],
)
def test_an_embedding_that_does_not_fit_is_refused(source, tmp_path, saved, word):
    if isinstance(saved, bytes):
        (tmp_path / "e.npy").write_bytes(saved)
    else:
        np.save(tmp_path / "e.npy", saved)
    (tmp_path / "e.memmap").write_bytes(b"x" * 1001)
    for name, said in (("e.npy", word), ("e.memmap", "not 150 rows")):
        with pytest.raises(InputError, match=said):
            build_index(source, tmp_path / "i", dense(embedding=tmp_path / name), encode=Encode())
        (tmp_path / ".i.building").rename(tmp_path / name.partition(".")[2])
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize("factory", ["HNSW8", "PCA8,HNSW8", "HNSW8_SQ8,RFlat", "IVF4_HNSW8,Flat"])
def test_graphs_are_built_with_200_candidates_a_quantisers_as_faiss_does(source, tmp_path, factory):
    build_index(source, tmp_path / "i", dense(factory, kind="dense"), encode=Encode())
    index = faiss.read_index(str(tmp_path / "i" / store.part_name(0)))
    held = {"PCA8,HNSW8": "index", "HNSW8_SQ8,RFlat": "base_index", "IVF4_HNSW8,Flat": "quantizer"}.get(factory)
    graph = faiss.downcast_index(getattr(index, held) if held else index).hnsw
    assert graph.efConstruction == (40 if held == "quantizer" else 200)


@pytest.mark.covers("SR-50")
@pytest.mark.parametrize("factory, called", [("Flat", "Flat"), ("HNSW12", "HNSW12"), ("SQ8", "SQ8")])
@pytest.mark.parametrize("link_from", [1, 2**40])
def test_published_files_are_taken_over_as_they_are(source, tmp_path, monkeypatch, factory, called, link_from):
    monkeypatch.setattr(documents, "LINK_FROM", link_from)
    index = faiss.index_factory(DIM, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(table(source))
    index.add(table(source))
    published = tmp_path / "e5.index"
    faiss.write_index(index, str(published))
    encode = Encode()
    made = build_index(
        source,
        tmp_path / "i",
        dense(factory if factory == "SQ8" else "Flat", kind="dense", faiss_file=published),
        encode=encode,
    )
    assert (made.dense.factory, made.dense.parts, made.kind) == (
        called,
        1,
        "dense",
    ) and encode.texts <= vectors.LOOKED_AT
    assert (tmp_path / "i" / store.part_name(0)).samefile(published) == (link_from == 1)
    assert (tmp_path / "i" / store.DOCUMENTS).samefile(source) == (link_from == 1)
    shards = 2 if factory == "Flat" else 1
    asked = Encode()(["one", "two"])
    parts = [
        store.open_shard(tmp_path / "i", i, shards).search([], asked, 3, Knobs(), "dense")[0] for i in range(shards)
    ]
    expected = index.search(asked, 3)[1]
    assert merge(parts, 3).rows.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "rows, dim, metric, word",
    [(ROWS - 1, DIM, 0, "149 rows"), (ROWS, 8, 0, "rows of 8"), (ROWS, DIM, 1, "inner product")],
)
def test_an_index_file_that_does_not_fit_is_refused(source, tmp_path, rows, dim, metric, word):
    index = faiss.index_factory(dim, "HNSW8", metric)
    index.add(np.ones((rows, dim), np.float32))
    faiss.write_index(index, str(tmp_path / "x.index"))
    with pytest.raises(InputError, match=word):
        build_index(source, tmp_path / "i", dense(faiss_file=tmp_path / "x.index"), encode=Encode())
    index = faiss.index_factory(DIM, "SQ8", faiss.METRIC_INNER_PRODUCT)
    index.train(table(source))
    index.add(table(source))
    faiss.write_index(index, str(tmp_path / "sq.index"))
    with pytest.raises(InputError, match="set --faiss"):
        build_index(source, tmp_path / "s", dense(faiss_file=tmp_path / "sq.index"), encode=Encode())
    (tmp_path / "junk.index").write_bytes(b"junk")
    with pytest.raises(InputError, match="faiss"):
        build_index(source, tmp_path / "j", dense(faiss_file=tmp_path / "junk.index"), encode=Encode())


@pytest.mark.parametrize(
    "plan, word",
    [
        (IndexPlan(b=7), "k1"),
        (IndexPlan(k1=float("nan")), "k1"),
        (IndexPlan(kind="dense"), "encoder"),
        (dense(kind="bm25"), "encoder"),
        (dense(parts=3), "any number of shards"),
        (dense("HNSW8", parts=151), "151 parts of 150"),
        (dense("IVF4096,Flat"), "IVF4096"),
        (dense(faiss_file=Path("x"), parts=2), "as it is"),
        (dense(embedding=Path("missing.npy")), "must exist"),
        (dense(embedding=Path("/tmp")), "be a file"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(source, tmp_path, plan, word):
    with pytest.raises(InputError, match=word):
        build_index(source, tmp_path / "i", plan, encode=Encode())
    assert not (tmp_path / "i").exists()


def test_vectors_and_factories_that_cannot_be_are_refused(source, tmp_path):
    for factory in ("nonsense", "PQ7"):
        with pytest.raises(InputError, match=factory):
            build_index(source, tmp_path / "i", dense(factory), encode=(encode := Encode()))
        assert encode.texts == 0 and [path.name for path in tmp_path.iterdir()] == ["c.jsonl"], (
            "before anything is made"
        )
    with pytest.raises(InputError, match="row 5 "):
        build_index(
            source,
            tmp_path / "i",
            dense(),
            encode=lambda texts: np.where(np.arange(len(texts))[:, None] == 5, np.inf, Encode()(texts)),
        )


def test_a_bad_corpus_leaves_nothing_behind(source, tmp_path):
    with pytest.raises(InputError, match="must exist"):
        build_index(tmp_path / "gone", tmp_path / "i", IndexPlan())
    source.write_text('{"id": 1, "contents": "."}')
    with pytest.raises(InputError, match="1 documents without a word"):
        build_index(source, tmp_path / "i", IndexPlan())
    source.write_text("")
    with pytest.raises(InputError, match="at least one row"):
        build_index(source, tmp_path / "i", IndexPlan())
    assert [p.name for p in tmp_path.iterdir()] == ["c.jsonl"]


def test_taken_and_unwritable_folders_are_refused(source, tmp_path):
    (tmp_path / "empty").mkdir()
    build_index(source, tmp_path / "empty", IndexPlan())
    before = contents(tmp_path / "empty")
    for out in (tmp_path / "empty", source):
        with pytest.raises(InputError, match="does not exist yet"):
            build_index(source, out, IndexPlan())
    assert contents(tmp_path / "empty") == before
    with pytest.raises(InputError, match="can be written"):
        build_index(source, source / "index", IndexPlan())


def stopped(monkeypatch, where, name, source, out, plan):
    """A build that ends at the call of `where.name`."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, name, stop)
        with pytest.raises(KeyboardInterrupt):
            build_index(source, out, plan, encode=Encode())


def test_another_plan_is_refused_where_a_build_is_unfinished(source, tmp_path, monkeypatch):
    out = tmp_path / "i"
    stopped(monkeypatch, vectors, "build_parts", source, out, dense("HNSW8"))
    for plan, word in (
        (dense("HNSW16"), "factory was HNSW8, now HNSW16.*rm -r"),
        (dense("HNSW8", k1=2), "k1 was"),
        (IndexPlan(), "kind was"),
    ):
        with pytest.raises(InputError, match=f"{word}"):
            build_index(source, out, plan, encode=Encode())
    with monkeypatch.context() as patch, pytest.raises(InputError, match="corpus was"):
        patch.chdir(tmp_path)
        os.utime(source, ns=(1, 1))
        build_index(source, out, dense("HNSW8"), encode=Encode())
    (tmp_path / ".i.building" / builder.NOTES).write_text("{")
    with pytest.raises(InputError, match="notes"):
        build_index(source, out, dense("HNSW8"), encode=Encode())


def test_one_process_at_a_time(source, tmp_path):
    def report(stage, done, total):
        with pytest.raises(InputError, match="one process at a time"):
            build_index(source, tmp_path / "i", IndexPlan())

    build_index(source, tmp_path / "i", IndexPlan(), report)


KILLED = """
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import faiss
from folders import Encode, dense
from ssp.search import postings
from ssp.search.index import builder, store, vectors
from ssp.search import documents
faiss.omp_set_num_threads(1)
postings.RUN_TOKENS, vectors.SAVE_SECONDS, vectors.ADDED = 120, 0, 16
here = Path({here!r})

def die(inner, at):
    calls = 0
    def call(*some, **named):
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*some, **named)
    return call

def build(out, name, at):
    encode = Encode()
    if name == "encode":
        encode = die(encode, at)
    elif name:
        where, _, name = name.partition(".")
        setattr(globals()[where], name, die(getattr(globals()[where], name), at))
    builder.build_index(Path({source!r}), out, dense("HNSW8", parts=2, save_embedding=True), encode=encode)
    out.with_name(out.name + ".encoded").write_text(str(getattr(encode, "texts", -1)))

def life(out, name="", at=0):  # in a child of its own, which has nothing to import
    child = os.fork()
    if not child:
        try:
            build(out, name, at)
            os._exit(0)
        except BaseException as error:
            print(out, name, repr(error), flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

ends = [[life(here / "whole")]]
for i, (name, at) in enumerate({moments!r}):
    out = here / f"i{{i}}"
    killed = life(out, name, at)
    there = [out.exists(), (here / f".i{{i}}.building").exists()]
    ends.append([killed, there, life(out)])
print(json.dumps(ends))
"""


@pytest.mark.ray
@pytest.mark.covers("SR-50")
def test_a_build_killed_in_any_stage_goes_on_to_the_same_folder(source, tmp_path):
    """Each kill hits one build; a run that is not killed ends it. Nothing that was on disk is made again."""
    moments = [
        ("documents._check_ids", 1, ROWS),
        ("postings._run", 3, ROWS),
        ("postings._gathered", 1, ROWS),
        ("encode", 3, ROWS - 64),
        ("vectors._write", 1, 0),
        ("faiss.RandomGenerator", 3, 0),
        ("faiss.RandomGenerator", 8, 0),
        ("store._sha256", 4, 0),
        ("store.stamp", 1, 0),
    ]
    places = {"tests": str(ROOT / "tests"), "source": str(source), "here": str(tmp_path)}
    script = KILLED.format(**places, moments=[moment[:2] for moment in moments])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    [whole], *lives = json.loads(done.stdout.splitlines()[-1])
    assert whole == 0, done.stdout
    expected = contents(tmp_path / "whole")
    for i, ((name, _, encoded), (killed, there, ended)) in enumerate(zip(moments, lives, strict=True)):
        assert (killed, ended) == (-signal.SIGKILL, 0), (name, done.stdout)
        assert there == [name == "store.stamp", True], name
        assert (tmp_path / f"i{i}.encoded").read_text() == str(encoded), name
        assert contents(tmp_path / f"i{i}") == expected, name
        assert not (tmp_path / f".i{i}.building").exists()
