"""`ssp index`."""

from __future__ import annotations

import json

import pytest

from launch import index
from ssp.episode import Document
from ssp.errors import InputError
from ssp.search import build, load

CORPUS = [
    Document("pota", '"pota"\npota a company . pota seat vure .'),
    Document("vure", '"vure"\nvure a city . vure mayor bino .'),
    Document("bino", '"bino"\nbino a person . bino employer pota . 東京'),
]


@pytest.fixture
def corpus_file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": d.id, "contents": d.contents}) + "\n" for d in CORPUS))
    return path


def test_index_then_load(corpus_file, tmp_path, capsys):
    out = tmp_path / "made" / "index"
    assert index.main(["--corpus", str(corpus_file), "--out", str(out), "--k1", "0.9", "--b", "0.4"]) == 0
    assert "3 documents" in capsys.readouterr().out
    assert load(out).retrieve(["pota a"], 3) == build(CORPUS, 0.9, 0.4).retrieve(["pota a"], 3)
    with pytest.raises(InputError, match="does not exist yet"):
        index.main(["--corpus", str(corpus_file), "--out", str(out)])


@pytest.mark.parametrize("line, word", [("{", "line 4"), (json.dumps({"id": "pota", "contents": "x"}), "unique")])
def test_index_of_a_bad_corpus_leaves_nothing(corpus_file, tmp_path, line, word):
    corpus_file.write_text(corpus_file.read_text() + line)
    with pytest.raises(InputError, match=word):
        index.main(["--corpus", str(corpus_file), "--out", str(tmp_path / "out")])
    with pytest.raises(InputError, match="must exist"):
        index.main(["--corpus", str(tmp_path / "gone"), "--out", str(tmp_path / "out")])
    with pytest.raises(InputError, match="k1"):
        corpus_file.write_text(json.dumps({"id": 1, "contents": "x"}))
        index.main(["--corpus", str(corpus_file), "--out", str(tmp_path / "out"), "--b", "7"])
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.jsonl"]
