"""Equal queries become one search: within a call, among the threads that ask at a time, and over
time (in memory, or in a file that any number of processes share). A failure is never kept."""

import json
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError, holding
from ssp.base.values import Seconds
from ssp.search.hits import Answers, Search

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
SearchKey = tuple[str, int, str]
"""Name of a retriever, k, query."""

MISSING = "not_recorded"
_TABLE = """CREATE TABLE IF NOT EXISTS answers (
    retriever TEXT, k INTEGER, query TEXT, at REAL, documents TEXT, PRIMARY KEY (retriever, k, query))
"""


@dataclass(eq=False)
class _Flight:
    """One caller's work: what it made, or what it raised. Less than a `Future`, of which most are
    never waited for."""

    made: Mapping[Any, Any] | None = None
    error: BaseException | None = None

    def over(self) -> bool:
        """Whether the work has ended."""
        return self.made is not None or self.error is not None


class Known(Generic[Key, Value]):
    """The `keep` answers that were used last, in memory. Safe in several threads. `hits` and
    `misses` count keys."""

    def __init__(self, keep: int = 0) -> None:
        self._keep = keep
        self._answers: OrderedDict[Key, Value] = OrderedDict()
        self._flying: dict[Key, _Flight] = {}
        self._lock = threading.Lock()
        self._landed = threading.Condition(self._lock)
        self.hits = self.misses = 0

    def ask(
        self,
        keys: Iterable[Key],
        work: Callable[[list[Key]], Sequence[Value]],
        worth: Callable[[Key, Value], bool] = lambda key, value: True,
        seconds: float | None = None,
    ) -> tuple[dict[Key, Value], set[Key]]:
        """The answer of each key, and the keys that were not known. `work` answers those that
        nobody works on, in their order; what is `worth` it is kept. Raises what the work for a key
        raised, and TimeoutError when another caller's takes longer than `seconds`."""
        keys = dict.fromkeys(keys)
        with self._lock:
            answers = self._get(keys)
            missing = [key for key in keys if key not in answers]
            self.hits += len(answers)
            self.misses += len(missing)
            others = {key: self._flying[key] for key in missing if key in self._flying}
            mine = [key for key in missing if key not in others]
            flight = _Flight()
            self._flying |= dict.fromkeys(mine, flight)
        if mine:
            try:
                made = dict(zip(mine, work(mine), strict=True))
                kept = {key: value for key, value in made.items() if worth(key, value)}
                with self._lock:
                    self._put(kept)
                flight.made = made
                answers |= made
            except BaseException as error:
                flight.error = error  # for the others
                raise
            finally:
                with self._lock:
                    for key in mine:
                        del self._flying[key]
                    self._landed.notify_all()
        for key, other in others.items():
            with self._landed:
                if not self._landed.wait_for(other.over, seconds):
                    raise TimeoutError
            if other.made is None:
                raise other.error or RuntimeError
            answers[key] = other.made[key]
        return answers, set(missing)

    def _get(self, keys: Iterable[Key]) -> dict[Key, Value]:
        answers = {key: self._answers[key] for key in keys if key in self._answers}
        for key in answers:
            self._answers.move_to_end(key)
        return answers

    def _put(self, answers: Mapping[Key, Value]) -> None:
        self._answers |= answers
        while len(self._answers) > self._keep:
            self._answers.popitem(last=False)


class Book(Known[SearchKey, list[Document]]):
    """Answers in the file `path`, for `ttl` seconds (0: for ever), the latest `keep` of them (0:
    all). InputError when the file is not one of these."""

    def __init__(self, path: Path, ttl: float = 0.0, keep: int = 0) -> None:
        super().__init__(keep)
        self._ttl = ttl
        rule = "a search record is a file that this program wrote"
        with holding(sqlite3.DatabaseError, rule, path, "name another, or remove it"):
            self._book = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
            self._book.execute("PRAGMA journal_mode=WAL")
            self._book.execute(_TABLE)

    def close(self) -> None:
        """Close the file."""
        self._book.close()

    def _get(self, keys: Iterable[SearchKey]) -> dict[SearchKey, list[Document]]:
        select = "SELECT at, documents FROM answers WHERE retriever=? AND k=? AND query=?"
        answers = {}
        for key in keys:
            retriever, k, query = key
            row = self._book.execute(select, (retriever, k, sendable(query))).fetchone()
            if row is not None:
                at, documents = row
                if not self._ttl or time.time() - at <= self._ttl:
                    answers[key] = [Document(*fields) for fields in json.loads(documents)]
        return answers

    def _put(self, answers: Mapping[SearchKey, list[Document]]) -> None:
        rows = []
        for (retriever, k, query), documents in answers.items():
            body = json.dumps([[d.id, d.contents, d.score] for d in documents])
            rows.append((retriever, k, sendable(query), time.time(), body))
        with self._book:  # commits, or rolls back: else the file would stay locked for all
            self._book.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", rows)
            if self._keep:  # a replaced row gets a new number too
                limit = "DELETE FROM answers WHERE rowid <= (SELECT max(rowid) FROM answers) - ?"
                self._book.execute(limit, (self._keep,))


class RecordedSearch(Book):
    """The search `inner` behind a record in the file `path`. Without `inner` the record is
    replayed: a query that it has not is a Fault `not_recorded`. `retrievers`: corpus → name of what
    answers there, which says all that decides an answer but the query and k. InputError as of
    `Book`, and for a replay without a file."""

    def __init__(
        self, path: Path, inner: Search | None, retrievers: Mapping[str, str], ttl: float = 0.0
    ) -> None:
        if inner is None and not path.is_file():
            rule = "a replayed search has a record"
            raise InputError(rule, path, "record one first (without --replay)")
        super().__init__(path, ttl)
        self._inner, self._retrievers = inner, retrievers

    def search(self, queries: list[str], k: int, corpus: str) -> Answers:
        """As the inner search; only what is not on record is asked there, in one call. Fault
        `not_recorded` in replay."""
        seconds: Seconds = {}

        def work(keys: list[SearchKey]) -> list[list[Document]]:
            unknown = [query for _, _, query in keys]
            if self._inner is None:
                missing = f"{len(unknown)} queries in {corpus}, the first: {unknown[0]!r}"
                raise Fault(MISSING, missing)
            fresh = self._inner.search(unknown, k, corpus)
            seconds.update(getattr(fresh, "seconds", {}))
            return fresh

        keys = [(self._retrievers[corpus], k, query) for query in queries]
        answers, missing = self.ask(keys, work)
        return Answers([answers[key] for key in keys], seconds, len(answers) - len(missing))


def sendable(query: str) -> str:
    """`query` with "?" for each lone surrogate, which cannot be sent or written; tokenisers drop it
    anyway."""
    return query.encode("utf-8", "replace").decode()
