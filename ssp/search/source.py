"""Search over HTTP: a server that speaks Search-R1's `/retrieve`. Its failure is a Fault (law 2),
never an empty answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ssp.base.episode import Document
from ssp.base.errors import Fault
from ssp.base.services import Service, clean
from ssp.search.hits import Answers, Search
from ssp.search.known import sendable
from ssp.search.router import DOWN, NO_CORPUS, PARTIAL

if TYPE_CHECKING:
    import httpx

SCHEMA = "retriever_schema"
BATCH = 256
ABOUT_THE_QUERY = (400, 413, 414, 422)
"""Statuses with which a service may refuse one query; it is a fault when it refuses `PROBE` too."""
PROBE = "a"
SAID = 300
"""Bytes of a refusal that are shown."""


class Elsewhere:
    """`Search` by `there` for the corpora called `names`, by `otherwise` for the others. `none`
    finds nothing."""

    def __init__(self, there: Search, names: Collection[str], otherwise: Search) -> None:
        self._there, self._names, self._otherwise = there, names, otherwise

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """For each query at most `k` documents, best first. Raises what the two raise."""
        if corpus == NO_CORPUS:
            return Answers([[] for _ in queries])
        return (self._there if corpus in self._names else self._otherwise).search(
            queries, k, corpus
        )


class HttpSearch:
    """`Search` by POST to `url` (a base address, or the whole one ending in /retrieve); the
    corpus's name is not sent. `timeout`: see `Service`. Safe in several threads."""

    def __init__(
        self, url: str, timeout: float = 20.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        base = url.rstrip("/")
        self.url = base if base.endswith("/retrieve") else f"{base}/retrieve"
        self._service = Service((DOWN, SCHEMA), timeout, transport=transport)

    def search(self, queries: list[str], k: int, corpus: str) -> Answers:
        """For each query at most `k` documents, best first, as the server ranked and scored them.
        Raises Fault. A query that it refuses (400, 413, 414, 422) while it takes another finds
        nothing: the policy's doing, not a fault (law 2)."""
        parts = [self._batch(queries[at : at + BATCH], k) for at in range(0, len(queries), BATCH)]
        return Answers([found for part in parts for found in part])

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _batch(self, queries: list[str], k: int) -> list[list[Document]]:
        status, content = self._post(queries, k)
        if status not in ABOUT_THE_QUERY:
            return parse(status, content, len(queries), k)
        if len(queries) > 1:
            return [found for query in queries for found in self._batch([query], k)]
        parse(*self._post([PROBE], k), 1, k)
        return [[]]

    def _post(self, queries: list[str], k: int) -> tuple[int, bytes]:
        body = {"queries": [sendable(query) for query in queries], "topk": k, "return_scores": True}
        return self._service.ask("POST", self.url, json=body)


def parse(status: int, content: bytes, queries: int, k: int) -> list[list[Document]]:
    """Documents of a `/retrieve` reply with scores: `{"result": [[{"document": {"id", "contents"},
    "score"}]]}`. A document without an id gets one made from its contents; it may be its text
    alone; a reply without any score is in rank order, and a score is 1 / rank. Anything else that
    differs from the contract raises Fault(retriever_schema), an answer of which the server says
    that it covers a part of the corpus Fault(retriever_partial)."""
    if not 200 <= status < 300:
        said = clean(content[:SAID].decode(errors="replace"), "", SAID)
        raise Fault(SCHEMA, f"status {status}" + (f": {said}" if said else ""))
    try:
        reply = json.loads(content)
        result = reply["result"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Fault(SCHEMA, "the answer is not a JSON object with a result") from error
    if (
        not isinstance(result, list)
        or len(result) != queries
        or not all(isinstance(found, list) for found in result)
    ):
        raise Fault(SCHEMA, f"result is not a list of {queries} lists")
    if reply.get("coverage", 1.0) != 1.0:
        raise Fault(PARTIAL, "the server searched a part of its corpus")
    ranked = not any(
        isinstance(item, dict) and "score" in item for found in result for item in found
    )
    given = [1 / rank if ranked else None for rank in range(1, k + 1)]
    return [
        [_document(item, score) for item, score in zip(found, given, strict=False)]
        for found in result
    ]


def _number(value: Any) -> bool:
    """A finite number. The comparison is false for nan, and safe for an integer that no float
    holds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _document(item: Any, score: float | None) -> Document:
    """An item of a reply, with its own score where none is given."""
    document = item.get("document") if isinstance(item, dict) else None
    if isinstance(document, str):
        document = {"contents": document}
    if not isinstance(document, dict) or not isinstance(document.get("contents"), str):
        raise Fault(SCHEMA, "an item of result is not {document: {id, contents}, score}")
    contents, number = document["contents"], document.get("id")
    score = item.get("score") if score is None else score
    if not _number(score):
        raise Fault(SCHEMA, "a score is not a finite number")
    if not contents.isascii() and contents != sendable(contents):
        raise Fault(SCHEMA, "contents is not valid Unicode")
    if number is None:
        number = hashlib.sha256(contents.encode()).hexdigest()[:16]
    if isinstance(number, bool) or not isinstance(number, str | int):
        raise Fault(SCHEMA, "a document's id is neither a string nor an integer")
    return Document(str(number), contents, float(score))
