"""Search over HTTP: a server that speaks Search-R1's `/retrieve`, or what the path of its address
says (`WIRES`). Its failure is a Fault (law 2), never an empty answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
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
"""Statuses by which a service may refuse a query. It is a fault when it refuses `PROBE` too."""
PROBE = "a"
SAID = 300
"""Bytes of a refusal that are shown."""


@dataclass(frozen=True)
class Wire:
    """How a server is asked. `body`: of some queries and k. `reply`: its answer to so many queries
    in the form of `/retrieve`. `most`: queries in one request."""

    body: Callable[[list[str], int], dict[str, Any]]
    reply: Callable[[Any, int], Any] = lambda reply, queries: reply
    most: int = BATCH


def _of_search(reply: Any, queries: int) -> Any:
    """FlashRAG's answer to one query: its documents and their scores; ReCall's: documents alone."""
    if any(isinstance(part, dict) for part in _listed(reply)):
        return {"result": [[{"document": document} for document in reply]]}
    return _of_batch([[part] for part in reply or [[], []]], queries)


def _of_batch(reply: Any, queries: int) -> Any:
    """FlashRAG's answer: a list of documents a query, and such lists of their scores."""
    result = []
    for documents, scores in zip(*_listed(reply), strict=True):
        pairs = zip(_listed(documents), _listed(scores), strict=True)
        result.append([{"document": document, "score": score} for document, score in pairs])
    return {"result": result}


def _of_queries(reply: Any, queries: int) -> Any:
    """R1-Searcher's answer: a list of texts a query, best first."""
    result = []
    for texts in _listed(reply["answers"]):
        result.append([{"document": text} for text in _listed(texts)])
    return {"result": result}


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


WIRES = {
    "/retrieve": Wire(lambda texts, k: {"queries": texts, "topk": k, "return_scores": True}),
    "/search": Wire(
        lambda texts, k: {"query": texts[0], "top_n": k, "return_score": True}, _of_search, 1
    ),
    "/batch_search": Wire(
        lambda texts, k: {"query": texts, "top_n": k, "return_score": True}, _of_batch
    ),
    "/queries": Wire(lambda texts, k: {"queries": texts, "k": k}, _of_queries),
}
"""What the path of an address says: Search-R1's form (also without a path), FlashRAG's and ReCall's
two, R1-Searcher's."""


class Elsewhere:
    """`Search` by `there` for the corpora called `names`, by `otherwise` for the others. In the
    corpus `none` nothing is found."""

    def __init__(self, there: Search, names: Collection[str], otherwise: Search) -> None:
        self._there, self._names, self._otherwise = there, names, otherwise

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """For each query at most `k` documents, best first. Raises what the two raise."""
        if corpus == NO_CORPUS:
            return Answers([[] for _ in queries])
        search = self._there if corpus in self._names else self._otherwise
        return search.search(queries, k, corpus)


class HttpSearch:
    """`Search` by POST to `url`, which ends in a path of `WIRES`, or else is a base address; the
    corpus's name is not sent. `timeout`: see `Service`. Safe in several threads."""

    def __init__(
        self, url: str, timeout: float = 20.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        base = url.rstrip("/")
        path = next(filter(base.endswith, WIRES), "")
        self.url = base if path else f"{base}/retrieve"
        self._wire = WIRES[path or "/retrieve"]
        self._service = Service((DOWN, SCHEMA), timeout, transport=transport)

    def search(self, queries: list[str], k: int, corpus: str) -> Answers:
        """For each query at most `k` documents, best first, as the server ranked and scored them.
        Raises Fault. A query that it refuses (400, 413, 414, 422) while it takes another finds
        nothing: the policy's doing, not a fault (law 2)."""
        answers = Answers()
        most = min(BATCH, self._wire.most)
        for at in range(0, len(queries), most):
            answers += self._batch(queries[at : at + most], k)
        return answers

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _batch(self, queries: list[str], k: int) -> list[list[Document]]:
        status, content = self._post(queries, k)
        if status not in ABOUT_THE_QUERY:
            return parse(status, content, len(queries), k, self._wire)
        if len(queries) > 1:
            answers = []
            for query in queries:
                answers += self._batch([query], k)
            return answers
        parse(*self._post([PROBE], k), 1, k, self._wire)
        return [[]]

    def _post(self, queries: list[str], k: int) -> tuple[int, bytes]:
        body = self._wire.body([sendable(query) for query in queries], k)
        return self._service.ask("POST", self.url, json=body)


def parse(
    status: int, content: bytes, queries: int, k: int, wire: Wire = WIRES["/retrieve"]
) -> list[list[Document]]:
    """Documents of a reply, which `wire` brings into the form of `/retrieve` with scores:
    `{"result": [[{"document": {"id", "contents"}, "score"}]]}`.

    A document without an id gets one made from its contents; it may be its text alone. A reply
    without any score is in rank order, and a score is 1 / rank. Any other difference from the
    contract raises Fault(retriever_schema); an answer that covers, as the server says, a part of
    the corpus raises Fault(retriever_partial)."""
    if not 200 <= status < 300:
        said = clean(content[:SAID].decode(errors="replace"), "", SAID)
        raise Fault(SCHEMA, f"status {status}: {said}" if said else f"status {status}")
    try:
        reply = wire.reply(json.loads(content), queries)
        result = reply["result"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise Fault(SCHEMA, "the answer is not a JSON object with a result") from error
    lists = isinstance(result, list) and all(isinstance(items, list) for items in result)
    if not lists or len(result) != queries:
        raise Fault(SCHEMA, f"result is not a list of {queries} lists")
    if reply.get("coverage", 1.0) != 1.0:
        raise Fault(PARTIAL, "the server searched a part of its corpus")

    scored = False
    for items in result:
        scored = scored or any(isinstance(item, dict) and "score" in item for item in items)
    answers = []
    for items in result:
        documents = []
        for rank, item in enumerate(items[:k], 1):
            documents.append(_document(item, None if scored else 1 / rank))
        answers.append(documents)
    return answers


def _document(item: Any, score: float | None) -> Document:
    """The document in an item of a reply, with the item's own score where none is given."""
    document = item.get("document") if isinstance(item, dict) else None
    if isinstance(document, str):
        document = {"contents": document}
    if not isinstance(document, dict) or not isinstance(document.get("contents"), str):
        raise Fault(SCHEMA, "an item of result is not {document: {id, contents}, score}")
    contents = document["contents"]
    number = document.get("id")
    if score is None:
        score = item.get("score")
    # the comparison is false for nan, and safe for an integer that no float holds
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < 1e300:
        raise Fault(SCHEMA, "a score is not a finite number")
    if not contents.isascii() and contents != sendable(contents):
        raise Fault(SCHEMA, "contents is not valid Unicode")
    if number is None:
        number = hashlib.sha256(contents.encode()).hexdigest()[:16]
    if isinstance(number, bool) or not isinstance(number, str | int):
        raise Fault(SCHEMA, "a document's id is neither a string nor an integer")
    return Document(str(number), contents, float(score))
