"""A search that remembers: answers of another search, on disk, given again without asking it.

Promises that an answer is kept under everything that decides it (query, k, retriever with its corpus), and that in replay
nothing is ever asked: a query that was not recorded is a Fault `not_recorded`. Refuses to remember a fault, or an answer
of less than the whole corpus.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ssp.base.errors import Fault, InputError
from ssp.search.hits import Answers, Search
from ssp.search.known import Book, Found

MISSING = "not_recorded"


class RecordedSearch(Book):
    """`inner` (None: replay only) behind the file `path`. Safe in several threads.

    `retrievers`: corpus → name of what answers there, which says all that decides an answer but the query and k. `ttl` in
    seconds, 0: for ever. InputError when the file is not one of these, or when it must exist and does not.
    """

    def __init__(
        self,
        path: Path,
        inner: Search | None,
        retrievers: Mapping[str, str],
        ttl: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if inner is None and not path.is_file():
            raise InputError("a replayed search has a record", path, "record one first (without --replay)")
        super().__init__(path, ttl, clock)
        self._inner, self._retrievers = inner, retrievers

    def search(self, queries: list[str], k: int, corpus: str) -> Answers:
        """As the inner search; only what is not on record is asked there, in one call. Fault `not_recorded` in replay."""
        seconds: dict[str, float] = {}

        def work(keys: list[tuple[str, int, str]]) -> list[Found]:
            asked = [query for _, _, query in keys]
            if self._inner is None:
                raise Fault(MISSING, f"{len(asked)} queries in {corpus}, the first: {asked[0]!r}")
            fresh = self._inner.search(asked, k, corpus)
            seconds.update(getattr(fresh, "seconds", {}))
            return [(documents, getattr(fresh, "coverage", 1.0)) for documents in fresh]

        keys = [(self._retrievers[corpus], k, query) for query in queries]
        found, missing = self.ask(keys, work, lambda key, answer: answer[1] == 1.0)
        coverage = min((coverage for _, coverage in found.values()), default=1.0)
        return Answers([found[key][0] for key in keys], coverage, seconds, len(found) - len(missing))
