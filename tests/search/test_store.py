"""An index folder: same answers after loading, shards, and every way in which it can be broken."""

from __future__ import annotations

import json

import pytest

from ssp.episode import Document
from ssp.errors import InputError
from ssp.search import build, load, merge, save, store

CORPUS = [
    Document("a", '"Pota"\npota a company . pota seat vure .'),
    Document("b", '"Vure"\nvure a city . "quoted" \u2028 line\r\nbreak .'),
    Document("ü", '"東京"\n東京 a city . pota .'),
    Document("4", "."),
    Document("5", '"Bino"\nbino a person . pota pota'),
]
ASKED = ["pota", "a city", "東京", "line break", "nothing", "pota vure bino"]


@pytest.fixture
def folder(tmp_path):
    save(build(CORPUS, 0.9, 0.4), tmp_path / "index")
    return tmp_path / "index"


def test_a_loaded_index_answers_as_the_built_one(folder):
    built, loaded = build(CORPUS, 0.9, 0.4), load(folder)
    assert loaded.retrieve(ASKED, 3) == built.retrieve(ASKED, 3)
    assert (loaded.k1, loaded.b, loaded.corpus_sha256) == (0.9, 0.4, built.corpus_sha256)
    assert list(loaded.documents) == CORPUS
    assert [p.name for p in folder.parent.iterdir()] == ["index"]


@pytest.mark.parametrize("shards", [2, 3, 5, 8])
def test_loaded_shards_merge_to_the_single_index(folder, shards):
    cut = [load(folder, i, shards) for i in range(shards)]
    assert merge([s.retrieve(ASKED, 3) for s in cut], 3) == load(folder).retrieve(ASKED, 3)
    assert [d for s in cut for d in s.documents] == CORPUS
    assert sum(len(s.documents._text) for s in cut) == (folder / "documents.jsonl").stat().st_size


def test_a_loaded_index_can_be_cut_and_saved(folder, tmp_path):
    whole = load(folder)
    shard = load(folder, 1, 2)
    assert shard.retrieve(ASKED, 3) == whole.shard(1, 2).retrieve(ASKED, 3)
    save(whole, tmp_path / "copy")
    assert store.read_manifest(tmp_path / "copy") == store.read_manifest(folder)
    with pytest.raises(ValueError):
        save(shard, tmp_path / "shard")


def test_mapped_documents_are_a_sequence(folder):
    documents = load(folder).documents
    assert documents[-1] == CORPUS[-1] and list(documents[3:1]) == []
    with pytest.raises(IndexError):
        documents[5]
    with pytest.raises(ValueError):
        documents[::2]


@pytest.mark.parametrize("name", store.FILES)
@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_a_changed_file_is_refused(folder, name, how):
    path = folder / name
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(raw) if how == "flip" else bytes(raw[:-1]))
    with pytest.raises(InputError, match=name):
        load(folder)


@pytest.mark.parametrize("edit", [{"k1": 2.0}, {"rows": 4}, {"corpus_sha256": "0"}, {"sha256": ""}, {"files": {}}])
def test_an_edited_manifest_is_refused(folder, edit):
    path = folder / store.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    with pytest.raises(InputError, match="checksum"):
        load(folder)


@pytest.mark.parametrize(
    "edit, word",
    [
        ({"version": 2}, "version"),
        ({"format": "x"}, "format"),
        ({"tokeniser": "x"}, "tokeniser"),
        ({"files": {}}, "files"),
        ({"rows": 4}, "sizes"),
    ],
)
def test_another_format_is_refused_even_with_a_right_checksum(folder, edit, word):
    path = folder / store.MANIFEST
    manifest = {**json.loads(path.read_text()), **edit}
    path.write_text(json.dumps({**manifest, "sha256": store._manifest_digest(manifest)}))
    with pytest.raises(InputError, match=word):
        load(folder)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 99_999])
def test_a_broken_manifest_is_refused(folder, text):
    (folder / store.MANIFEST).write_bytes(text)
    with pytest.raises(InputError):
        load(folder)


def test_a_missing_folder_and_a_taken_folder_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match=r"manifest\.json"):
        load(tmp_path / "nothing")
    before = store.read_manifest(folder)
    with pytest.raises(InputError, match="does not exist yet"):
        save(build(CORPUS[:1]), folder)
    assert store.read_manifest(folder) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError):
        save(build(CORPUS[:1]), tmp_path / "file" / "index")
    (tmp_path / "empty").mkdir()
    save(build(CORPUS), tmp_path / "empty")
    assert load(tmp_path / "empty").rows == len(CORPUS)


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.np, "save", full)
    with pytest.raises(InputError, match="No space left"):
        save(build(CORPUS), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []
