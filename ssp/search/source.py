"""Search over HTTP: servers that speak Search-R1's `/retrieve`, one for the whole corpus or one for each part of it.

Owns the contract of a request and its answer, and the merge of several servers. Promises that a failure of the service
is a Fault (law 2), never an empty answer: `retriever_down` (no connection, time-out, 5xx, 429 after the last try),
`retriever_schema` (not the contract) or `retriever_partial` (too few of several). Refuses to fall back to another server.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError
from ssp.base.services import BACKOFF, TRIES, Service
from ssp.search.hits import Answers, Search
from ssp.search.known import sendable
from ssp.search.router import DOWN, NO_CORPUS, PARTIAL

if TYPE_CHECKING:
    import httpx

SCHEMA = "retriever_schema"
REST = 10.0
"""Seconds in which a server that was down is not asked again, where the others are enough."""
BATCH = 256
ABOUT_THE_QUERY = (400, 413, 414, 422)
"""Statuses with which a service may refuse one query; it is a fault when it refuses `PROBE` too."""
PROBE = "a"


class Elsewhere:
    """`Search` by `there` for the corpora called `names`, by `otherwise` for the others. `none` finds nothing."""

    def __init__(self, there: Search, names: Collection[str], otherwise: Search) -> None:
        self._there, self._names, self._otherwise = there, names, otherwise

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """For each query at most `k` documents, best first. Raises what the two raise."""
        if corpus == NO_CORPUS:
            return Answers([[] for _ in queries])
        return (self._there if corpus in self._names else self._otherwise).search(queries, k, corpus)


def remote(urls: str, timeout: float, min_coverage: float) -> HttpSearch | RemoteShards:
    """The server at an address, or those at several with blanks between, each with its part of the corpus."""
    servers = [HttpSearch(url, timeout) for url in urls.split()]
    return servers[0] if len(servers) == 1 else RemoteShards(servers, min_coverage)


class HttpSearch:
    """`Search` by POST to `url` (a base address, or the whole one ending in /retrieve); the corpus's name is not sent.

    `none` finds nothing and sends nothing. `timeout`, `tries`, `backoff`: see `Service`. Safe in several threads.
    """

    def __init__(
        self,
        url: str,
        timeout: float = 20.0,
        tries: int = TRIES,
        backoff: float = BACKOFF,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        import httpx

        try:
            address = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InputError("retriever.url is an http(s) address", url, "e.g. http://127.0.0.1:8000") from error
        if address.scheme not in ("http", "https") or not address.host:
            raise InputError("retriever.url is an http(s) address", url, "e.g. http://127.0.0.1:8000")
        self.url = url if address.path.rstrip("/").endswith("/retrieve") else url.rstrip("/") + "/retrieve"
        self._service = Service((DOWN, SCHEMA), timeout, tries, backoff, transport)

    def search(self, queries: list[str], k: int, corpus: str) -> Answers:
        """As `ask`, with all tries; nothing in the corpus `none`."""
        return Answers([[] for _ in queries]) if corpus == NO_CORPUS else self.ask(queries, k)

    def ask(self, queries: list[str], k: int, tries: int = 0) -> Answers:
        """For each query at most `k` documents, best first, as the server ranked and scored them. Raises Fault.

        A query that the server refuses (400, 413, 414, 422) although it takes another finds nothing: that is the
        policy's doing, not a fault (law 2). Coverage and seconds as the server says, if it does.
        """
        parts = [self._batch(queries[at : at + BATCH], k, tries) for at in range(0, len(queries), BATCH)]
        return _joined(parts)

    def documents(self) -> int | None:
        """How many documents the server holds, as its GET /status says; None when it does not, or is down."""
        try:
            status, content = self._service.ask("GET", self.url.rstrip("/").removesuffix("/retrieve") + "/status", 1)
            count = json.loads(content)["documents"] if status == 200 else None
        except (Fault, ValueError, KeyError, TypeError, RecursionError):
            return None
        return count if type(count) is int and count > 0 else None

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _batch(self, queries: list[str], k: int, tries: int) -> Answers:
        status, content = self._post(queries, k, tries)
        if status not in ABOUT_THE_QUERY:
            return parse(status, content, len(queries), k)
        if len(queries) > 1:
            return _joined([self._batch([query], k, tries) for query in queries])
        parse(*self._post([PROBE], k, tries), 1, k)
        return Answers([[]])

    def _post(self, queries: list[str], k: int, tries: int) -> tuple[int, bytes]:
        body = {"queries": [sendable(query) for query in queries], "topk": k, "return_scores": True}
        return self._service.ask("POST", self.url, tries, json=body)


class RemoteShards:
    """`Search` over servers that hold one part of the corpus each, asked at once, merged by score (ties by id).

    A part's share of the corpus is that of its documents, as its /status says; a server that does not say counts as the
    mean of the others. An answer whose coverage is below `min_coverage` is a Fault: `retriever_partial`, or what the first
    server failed with when none answered. A server that was down is left alone for `REST` seconds where the others cover
    `min_coverage`, and is then tried once. Safe in several threads.
    """

    def __init__(
        self, servers: Sequence[HttpSearch], min_coverage: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._servers, self._least, self._clock = list(servers), min_coverage, clock
        self._sizes: list[int | None] = [None] * len(servers)
        self._sized = [False] * len(servers)
        self._down: dict[int, float] = {}
        self._lock = threading.Lock()

    def search(self, queries: list[str], k: int, corpus: str) -> Answers:
        """For each query at most `k` documents, best first, with the coverage that they were found in. Raises Fault."""
        if corpus == NO_CORPUS or not queries:
            return Answers([[] for _ in queries])
        with self._lock:
            resting = {i for i, since in self._down.items() if self._clock() - since < REST}
            tired = set(self._down) - resting
            self._down |= {i: self._clock() for i in tired}  # one search tries it, the others go on without
        asked = [i for i in range(len(self._servers)) if i not in resting]
        if self._share({i: 1.0 for i in asked}) < self._least:
            asked, tired = list(range(len(self._servers))), set()
        with ThreadPoolExecutor(max(len(asked), 1)) as pool:
            replies = dict(zip(asked, pool.map(lambda i: self._ask(i, queries, k, i in tired), asked), strict=True))
        answers = {i: reply for i, reply in replies.items() if isinstance(reply, Answers)}
        faults = [reply for reply in replies.values() if isinstance(reply, Fault)]
        coverage = self._share({i: found.coverage for i, found in answers.items()})
        if not answers and faults:
            raise faults[0]
        if coverage < self._least or not answers:
            why = "; ".join(map(str, faults)) or "the servers say so"
            raise Fault(PARTIAL, f"{coverage:.3f} of the corpus was searched: {why}")
        if len({found.ranked for found in answers.values() if any(found)}) > 1:
            raise Fault(SCHEMA, "some parts answer with and some without scores, which cannot be merged")
        merged = [_best([answer[row] for answer in answers.values()], k) for row in range(len(queries))]
        return Answers(merged, coverage, _slowest(list(answers.values())))

    def close(self) -> None:
        """Close the connections."""
        for server in self._servers:
            server.close()

    def _ask(self, i: int, queries: list[str], k: int, once: bool) -> Answers | Fault:
        try:
            found = self._servers[i].ask(queries, k, 1 if once else 0)
        except Fault as fault:
            with self._lock:
                self._down[i] = self._clock()
            return fault
        with self._lock:
            self._down.pop(i, None)
            unsized, self._sized[i] = not self._sized[i], True
        if unsized:
            self._sizes[i] = self._servers[i].documents()
        return found

    def _share(self, coverages: dict[int, float]) -> float:
        """The share of the whole corpus, from the coverage of each server's part. Exactly 1 when every one is."""
        known = [size for size in self._sizes if size is not None]
        mean = sum(known) / len(known) if known else 1.0
        sizes = [mean if size is None else float(size) for size in self._sizes]
        if len(coverages) == len(sizes) and all(coverage == 1.0 for coverage in coverages.values()):
            return 1.0
        return sum(sizes[i] * coverage for i, coverage in coverages.items()) / sum(sizes)


def _best(parts: Sequence[list[Document]], k: int) -> list[Document]:
    def order(document: Document) -> tuple[float, int, str]:
        number = document.id.isascii() and document.id.isdecimal()  # ids that are numbers in their own order
        return (-document.score, int(document.id) if number and len(document.id) < 20 else -1, document.id)

    return sorted((document for part in parts for document in part), key=order)[:k]


def _joined(parts: Sequence[Answers]) -> Answers:
    """Answers to different queries, one after the other: the lowest coverage, all seconds."""
    seconds: dict[str, float] = {}
    for part in parts:
        for stage, spent in part.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    documents = [found for part in parts for found in part]
    coverage = min((part.coverage for part in parts), default=1.0)
    return Answers(documents, coverage, seconds, ranked=any(part.ranked for part in parts))


def _slowest(parts: Sequence[Answers]) -> dict[str, float]:
    """Seconds of servers that worked at the same time: the most of each stage."""
    stages = {stage for part in parts for stage in part.seconds}
    return {stage: max(part.seconds.get(stage, 0.0) for part in parts) for stage in sorted(stages)}


def parse(status: int, content: bytes, queries: int, k: int) -> Answers:
    """Documents of a `/retrieve` reply with scores: `{"result": [[{"document": {"id", "contents"}, "score"}]]}`, with
    `coverage` (0 to 1) and `timings` (seconds by stage) where the server sends them, as ours does.

    Three forms of Search-R1's servers are taken too: a document without an id (BM25) gets one made from its contents; a
    document may be its text alone (reranking); a reply without any score (web engines) is in rank order, and a score is
    1 / rank. Anything else that differs from the contract raises Fault(retriever_schema).
    """
    if not 200 <= status < 300:
        raise Fault(SCHEMA, f"status {status}")
    try:
        reply = json.loads(content)
        result = reply["result"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Fault(SCHEMA, "the answer is not a JSON object with a result") from error
    if not isinstance(result, list) or len(result) != queries or not all(isinstance(found, list) for found in result):
        raise Fault(SCHEMA, f"result is not a list of {queries} lists")
    coverage, timings = reply.get("coverage", 1.0), reply.get("timings", {})
    if not _number(coverage) or not 0 <= coverage <= 1:
        raise Fault(SCHEMA, "coverage is not a number from 0 to 1")
    timings = timings if isinstance(timings, dict) else {}
    seconds = {stage: float(spent) for stage, spent in timings.items() if _number(spent)}
    items = [item for found in result for item in found]
    ranked = bool(items) and not any(isinstance(item, dict) and "score" in item for item in items)
    documents = [
        [_document(item, 1 / rank if ranked else None) for rank, item in enumerate(found[:k], start=1)]
        for found in result
    ]
    return Answers(documents, float(coverage), seconds, ranked=ranked)


def _number(value: Any) -> bool:
    """A finite number. The comparison is false for nan, and safe for an integer that no float holds."""
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
    try:
        encoded = contents.encode()
    except UnicodeEncodeError as error:
        raise Fault(SCHEMA, "contents is not valid Unicode") from error
    if number is None:
        number = hashlib.sha256(encoded).hexdigest()[:16]
    if isinstance(number, bool) or not isinstance(number, str | int):
        raise Fault(SCHEMA, "a document's id is neither a string nor an integer")
    return Document(str(number), contents, float(score))
