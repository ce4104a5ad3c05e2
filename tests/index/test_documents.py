"""Documents on disk: what goes in comes out, in one gather, from every form of corpus file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.data import readers
from ssp.data.opened import parse
from ssp.data.readers import decode, read_corpus
from ssp.search import documents
from ssp.search.bm25 import fingerprint
from ssp.search.documents import MappedDocuments

CORPUS = [
    Document("a", '"Pota"\npota a company . pota seat vure .'),
    Document("b", '"Vure"\nvure a city . "quoted" \u2028 line\r\nbreak .'),
    Document("ü", '"東京"\n東京 a city . pota .'),
    Document("4", "."),
]
ROWS = [
    {"id": "a", "title": "Pota", "text": "pota a company . pota seat vure ."},
    {"id": "b", "contents": CORPUS[1].contents, "other": [1, {}]},
    {"id": "ü", "title": ' "東京" ', "text": "東京 a city . pota ."},
    {"contents": ".", "id": 4},
]
TEXT = "\n".join([json.dumps(ROWS[0]), *(json.dumps(row, ensure_ascii=False) for row in ROWS[1:])]) + "\n"


def never(stage, done, total):
    pass


def stored(corpus, folder):
    *found, skipped = documents.store(corpus, folder / "blob", folder / "offsets.npy", folder / "names.npy", never)
    assert skipped == 0
    return tuple(found), MappedDocuments(folder / "blob", np.load(folder / "offsets.npy", mmap_mode="r"), 0, found[0])


def write(path, raw):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(raw))
    elif path.suffix == ".zst":
        with pyarrow.output_stream(str(path), compression="zstd") as stream:
            stream.write(raw)
    else:
        path.write_bytes(raw)
    return path


@pytest.mark.covers("SR-50")
@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz", "c.jsonl.zst", "c.json"])
@pytest.mark.parametrize(
    "raw", [TEXT.encode(), TEXT.encode()[:-1], b"\xef\xbb\xbf\n \n" + TEXT.replace("\n", "\r\n\n \x0b\n").encode()]
)
def test_every_form_of_corpus_file_gives_its_documents(tmp_path, name, raw):
    found, held = stored(write(tmp_path / name, raw), tmp_path)
    assert held.gather(np.arange(4)) == CORPUS == read_corpus(tmp_path / name)
    assert list(held.stream(1)) == CORPUS[1:]
    assert found == (4, fingerprint(CORPUS))


@pytest.mark.parametrize("raw", [TEXT.encode(), b"\xef\xbb\xbf \n" + TEXT.replace("\n", "\n \x0b\n").encode()])
def test_a_plain_file_serves_in_place(tmp_path, monkeypatch, raw):
    monkeypatch.setattr(documents, "LINK_FROM", 1)
    corpus = write(tmp_path / "c.jsonl", raw)
    found, held = stored(corpus, tmp_path)
    assert (tmp_path / "blob").samefile(corpus)
    assert held.gather(np.array([3, 0, 0, 2])) == [CORPUS[i] for i in (3, 0, 0, 2)]
    packed = write(tmp_path / "c.jsonl.gz", raw)
    (tmp_path / "blob").unlink()
    assert stored(packed, tmp_path)[0] == found
    assert not (tmp_path / "blob").is_symlink() and (tmp_path / "blob").stat().st_nlink == 1


def test_a_slice_gives_only_its_rows(tmp_path):
    stored(write(tmp_path / "c.jsonl", TEXT.encode()), tmp_path)
    held = MappedDocuments(tmp_path / "blob", np.load(tmp_path / "offsets.npy"), 1, 2)
    assert held.gather(np.array([2, 1])) == [CORPUS[2], CORPUS[1]]
    assert held.gather(np.array([], dtype=np.int64)) == []
    for row in (0, 3, -1):
        with pytest.raises(IndexError):
            held.gather(np.array([1, row]))


BAD = [
    ("{", "line 3"),
    ("[]", "line 3"),
    ('{"id": "c"}', "line 3, field contents"),
    (b'{"id": "c", "contents": "\xff"}', "line 3, byte"),
    ('{"id": "b", "contents": "x"}', "line 3, field id.*also on .*line 2"),
    ("x" * 1_000_001, "line 3"),
]


@pytest.mark.covers("SR-50")  # each field's rules: tests/data
@pytest.mark.parametrize("line, place", BAD)
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_a_bad_row_is_refused_with_its_line(tmp_path, line, place, suffix):
    raw = line if isinstance(line, bytes) else line.encode()
    good = b'{"id": "a", "contents": "x"}\n{"id": "b", "contents": "x"}\n'
    corpus = write(tmp_path / f"c.{suffix}", good + raw + b"\n")
    with pytest.raises(InputError, match=place):
        stored(corpus, tmp_path)


def test_ids_of_equal_hash_are_told_apart(tmp_path, monkeypatch):
    class Weak:
        def digest(self):
            return b"same"

    monkeypatch.setattr(documents.hashlib, "blake2b", lambda *_, **__: Weak())
    assert stored(write(tmp_path / "c.jsonl", TEXT.encode()), tmp_path)[0][0] == 4
    twice = b'\n{"id": "4", "contents": "x"}\n\n' + TEXT.encode()
    with pytest.raises(InputError, match="line 7, field id.*also on .*line 2"):
        stored(write(tmp_path / "d.jsonl", twice), tmp_path)


values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.just([])
    | st.just(" ")
    | st.just("")
)
fields = st.dictionaries(st.sampled_from(["id", "_id", "docid", "contents", "title", "text", "x"]), values)


@given(fields)
def test_the_short_way_to_decode_is_the_long_one(found):
    """Whatever is in a row: the document, or the refusal, of the careful reader."""
    raw, path = json.dumps(found).encode(), Path("c.jsonl")

    def outcome(read):
        try:
            return read()
        except InputError as error:
            return str(error)

    assert outcome(lambda: decode(raw, path, 1)) == outcome(lambda: readers.document_of(parse(path, 1, 0, raw)))
