"""A search that remembers: answers of another search, on disk or in memory, given again without asking it.

Owns the file (SQLite, shared by any number of processes). Promises that an answer is kept under everything that decides
it (query, k, retriever with its corpus), that what is too old counts as not there, and that in replay nothing is ever
asked: a query that was not recorded is a Fault `not_recorded`. Refuses to remember a fault, or an answer of less than the
whole corpus.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError
from ssp.search.hits import Answers, Search
from ssp.search.source import sendable

_TABLE = """CREATE TABLE IF NOT EXISTS answers (
    retriever TEXT, k INTEGER, query TEXT, at REAL, documents TEXT, PRIMARY KEY (retriever, k, query))
"""
MISSING = "not_recorded"


class RecordedSearch:
    """`inner` (None: replay only) behind the file `path` (`:memory:`: none). Safe in several threads.

    `retrievers`: corpus → name of what answers there, which says all that decides an answer but the query and k. `ttl` in
    seconds, 0: for ever. `keep`: the latest so many answers are kept, 0: all.

    `hits` and `misses` count queries. InputError when the file is not one of these, or when it must exist and does not.
    """

    def __init__(
        self,
        path: Path,
        inner: Search | None,
        retrievers: Mapping[str, str],
        ttl: float = 0.0,
        clock: Callable[[], float] = time.time,
        keep: int = 0,
    ) -> None:
        if inner is None and not path.is_file():
            raise InputError("a replayed search has a record", path, "record one first (without --replay)")
        self._inner, self._retrievers, self._ttl, self._clock, self._most = inner, retrievers, ttl, clock, keep
        self._lock = threading.Lock()
        self.hits = self.misses = 0
        try:
            self._book = sqlite3.connect(path, timeout=60.0, check_same_thread=False, isolation_level=None)
            self._book.execute("PRAGMA journal_mode=WAL")
            self._book.execute(_TABLE)
        except sqlite3.DatabaseError as error:
            raise InputError(
                "a search record is a file that this program wrote", f"{path}: {error}", "name another"
            ) from error

    def search(self, queries: list[str], k: int, corpus: str) -> Answers:
        """As the inner search; only what is not on record is asked there, in one call. Fault `not_recorded` in replay."""
        retriever = self._retrievers[corpus]
        with self._lock:
            known = {query: found for query in queries if (found := self._find(query, k, retriever)) is not None}
            asked = [query for query in dict.fromkeys(queries) if query not in known]
            self.hits, self.misses = self.hits + len(known), self.misses + len(asked)
        if asked and self._inner is None:
            raise Fault(MISSING, f"{len(asked)} queries in {corpus}, the first: {asked[0]!r}")
        fresh = self._inner.search(asked, k, corpus) if asked and self._inner is not None else []
        answers = dict(zip(asked, fresh, strict=True))
        coverage, seconds = getattr(fresh, "coverage", 1.0), getattr(fresh, "seconds", {})
        if answers and coverage == 1.0:
            with self._lock:
                self._keep(answers, k, retriever)
        both = known | answers
        return Answers([both[query] for query in queries], coverage, seconds, len(known))

    def close(self) -> None:
        """Close the file."""
        self._book.close()

    def _find(self, query: str, k: int, retriever: str) -> list[Document] | None:
        row = self._book.execute(
            "SELECT at, documents FROM answers WHERE retriever=? AND k=? AND query=?", (retriever, k, sendable(query))
        ).fetchone()
        if row is None or (self._ttl and self._clock() - row[0] > self._ttl):
            return None
        return [Document(*fields) for fields in json.loads(row[1])]

    def _keep(self, answers: dict[str, list[Document]], k: int, retriever: str) -> None:
        now = self._clock()
        rows = [
            (retriever, k, sendable(query), now, json.dumps([[d.id, d.contents, d.score] for d in found]))
            for query, found in answers.items()
        ]
        with self._book:  # commits, or rolls back: else the file would stay locked for all
            self._book.execute("BEGIN")
            self._book.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", rows)
            if self._most:  # a replaced row gets a new number too
                limit = "DELETE FROM answers WHERE rowid <= (SELECT max(rowid) FROM answers) - ?"
                self._book.execute(limit, (self._most,))
