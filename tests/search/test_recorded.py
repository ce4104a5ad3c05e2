"""The search that remembers."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError
from ssp.search import known
from ssp.search.known import RecordedSearch

BM25 = {"train": "bm25 train", "heldout": "bm25 heldout"}


class Counting:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        self.asked.append(queries)
        return [[Document(f"{corpus}{i}", f'"{query}"\nÜ {query}', 0.1 + i) for i in range(k)] for query in queries]


@pytest.mark.covers("SR-51", "SS-09")
def test_what_was_asked_once_is_not_asked_again(tmp_path: Path) -> None:
    inner = Counting()
    first = RecordedSearch(tmp_path / "r.db", inner, BM25)
    online = first.search(["a", "b", "a"], 2, "train")
    assert inner.asked == [["a", "b"]]
    assert first.search(["b", "c"], 2, "train")[0] == online[1]
    assert inner.asked[1:] == [["c"]] and (first.hits, first.misses) == (1, 3)
    first.close()
    offline = RecordedSearch(tmp_path / "r.db", None, BM25)
    assert offline.search(["a", "b", "a"], 2, "train") == online
    assert (offline.hits, offline.misses) == (2, 0)


@pytest.mark.parametrize(
    "other", [("bm25 train", "train", 3), ("bm25 heldout", "heldout", 2), ("e5 train", "train", 2)]
)
def test_everything_that_decides_an_answer_is_in_its_key(tmp_path: Path, other: tuple[str, str, int]) -> None:
    RecordedSearch(tmp_path / "r.db", Counting(), BM25).search(["a"], 2, "train")
    retriever, corpus, k = other
    with pytest.raises(Fault, match="not_recorded"):
        RecordedSearch(tmp_path / "r.db", None, {corpus: retriever}).search(["a"], k, corpus)


@pytest.mark.covers("SS-09")
def test_an_answer_lives_as_long_as_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    inner = Counting()
    search = RecordedSearch(tmp_path / "r.db", inner, BM25, ttl=60.0)
    monkeypatch.setattr(known.time, "time", lambda: now[0])
    search.search(["a"], 1, "train")
    now[0] += 60.0
    search.search(["a"], 1, "train")
    assert len(inner.asked) == 1
    now[0] += 0.1
    search.search(["a"], 1, "train")
    search.search(["a"], 1, "train")
    assert len(inner.asked) == 2


def test_bad_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="record one first"):
        RecordedSearch(tmp_path / "none.db", None, BM25)
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(InputError, match="text.db"):
        RecordedSearch(tmp_path / "text.db", Counting(), BM25)


def test_a_write_that_failed_leaves_the_file_free(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "r.db", timeout=0.1, isolation_level=None)
    other.execute("CREATE TABLE answers (retriever TEXT, k INTEGER, query TEXT, at REAL, documents TEXT)")
    other.execute("CREATE TRIGGER full BEFORE INSERT ON answers BEGIN SELECT RAISE(FAIL, 'disk full'); END")
    search = RecordedSearch(tmp_path / "r.db", Counting(), BM25)
    with pytest.raises(sqlite3.Error, match="disk full"):
        search.search(["a"], 1, "train")
    other.execute("DROP TRIGGER full")
    assert search.search(["a"], 1, "train") == search.search(["a"], 1, "train") and search.hits == 1
