"""Search over HTTP: a server that speaks Search-R1's `/retrieve`.

Owns the request, its deadline and its retries. Promises that a failure of the service is a Fault (law 2), never an
empty answer: `retriever_down` (no connection, time-out, 5xx, 429 after the last try) or `retriever_schema` (not the
contract). Refuses to fall back to another server.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import httpx

from ssp.episode import Document
from ssp.errors import Fault, InputError
from ssp.search.router import NO_CORPUS

if TYPE_CHECKING:
    from ssp.config.schema import RetrieverConfig
    from ssp.rollout import Search

DOWN, SCHEMA = "retriever_down", "retriever_schema"
TRIES = 4
BACKOFF = 0.2
LONGEST_PAUSE = 5.0
BATCH = 256
LONGEST_REPLY = 256 * 2**20
_BUSY = (408, 425, 429)
ABOUT_THE_QUERY = (400, 413, 414, 422)
"""Statuses with which a service may refuse one query; it is a fault when it refuses `PROBE` too."""
PROBE = "a"


class Service:
    """Requests to one HTTP service, each with a deadline and retries. Safe in several threads.

    `timeout`: seconds for one request, answer included. It is tried `tries` times, with pauses of `backoff`·2^n seconds
    (a server's Retry-After counts, up to LONGEST_PAUSE).
    """

    def __init__(
        self, timeout: float, tries: int = TRIES, backoff: float = BACKOFF, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._timeout, self._tries, self._backoff = timeout, tries, backoff
        self._client = httpx.Client(timeout=timeout, transport=transport, trust_env=False)

    def ask(self, method: str, url: str, **request: Any) -> tuple[int, bytes]:
        """Status (below 500) and content of the reply. `request`: what httpx takes. Fault(retriever_down) after the last
        try."""
        trouble = ""
        for attempt in range(self._tries):
            pause = min(self._backoff * 2**attempt, LONGEST_PAUSE)
            try:
                status, asked, content = self._once(method, url, request)
            except httpx.RequestError as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                if status < 500 and status not in _BUSY:
                    return status, content
                trouble = f"status {status}"
                pause = min(max(pause, float(asked)), LONGEST_PAUSE) if asked.isdecimal() else pause
            if attempt + 1 < self._tries:
                time.sleep(pause)
        raise Fault(DOWN, f"{url}: {trouble} ({self._tries} tries)")

    def _once(self, method: str, url: str, request: dict[str, Any]) -> tuple[int, str, bytes]:
        """One request: status, Retry-After header, content. httpx's own time-out is a chunk's, hence the clock here."""
        deadline = time.monotonic() + self._timeout
        content = bytearray()
        with self._client.stream(method, url, **request) as reply:
            for chunk in reply.iter_bytes():
                content += chunk
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"answer not complete after {self._timeout} s")
                if len(content) > LONGEST_REPLY:
                    raise Fault(SCHEMA, f"{url}: answer above {LONGEST_REPLY} bytes")
            return reply.status_code, reply.headers.get("retry-after", ""), bytes(content)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def remote_search(cfg: RetrieverConfig, corpora: Collection[str], otherwise: Search) -> Search:
    """`otherwise`, with the server at `retriever.url`, if there is one, for the corpora that it stands for."""
    if not cfg.url:
        return otherwise
    return HttpSearch(cfg.url, cfg.timeout, corpora=corpora, otherwise=otherwise)


class HttpSearch:
    """`Search` by POST to `url` (a base address, or the whole one ending in /retrieve).

    `corpora`: names that this server stands for (None = every name); another one is searched by `otherwise`. `none` finds
    nothing and sends nothing. `timeout`, `tries`, `backoff`: see `Service`. Safe in several threads.
    """

    def __init__(
        self,
        url: str,
        timeout: float = 20.0,
        tries: int = TRIES,
        backoff: float = BACKOFF,
        corpora: Collection[str] | None = None,
        transport: httpx.BaseTransport | None = None,
        otherwise: Search | None = None,
    ) -> None:
        try:
            address = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InputError("retriever.url is an http(s) address", url, "e.g. http://127.0.0.1:8000") from error
        if address.scheme not in ("http", "https") or not address.host:
            raise InputError("retriever.url is an http(s) address", url, "e.g. http://127.0.0.1:8000")
        self.url = url if address.path.rstrip("/").endswith("/retrieve") else url.rstrip("/") + "/retrieve"
        self.corpora, self._otherwise = corpora, otherwise
        self._service = Service(timeout, tries, backoff, transport)

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """For each query at most `k` documents, best first, as the server ranked and scored them. Raises Fault.

        A query that the server refuses (400, 413, 414, 422) although it takes another finds nothing: that is the
        policy's doing, not a fault (law 2).
        """
        if corpus == NO_CORPUS:
            return [[] for _ in queries]
        if self.corpora is not None and corpus not in self.corpora:
            if self._otherwise is not None:
                return self._otherwise.search(queries, k, corpus)
            known = ", ".join([*self.corpora, NO_CORPUS])
            raise InputError(f"a search names a corpus of this server ({known})", corpus, "name one of these")
        found: list[list[Document]] = []
        for start in range(0, len(queries), BATCH):
            found += self._batch(queries[start : start + BATCH], k)
        return found

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _batch(self, queries: list[str], k: int) -> list[list[Document]]:
        status, content = self._post(queries, k)
        if status not in ABOUT_THE_QUERY:
            return parse(status, content, len(queries), k)
        if len(queries) > 1:
            return [self._batch([query], k)[0] for query in queries]
        parse(*self._post([PROBE], k), 1, k)
        return [[]]

    def _post(self, queries: list[str], k: int) -> tuple[int, bytes]:
        body = {"queries": [sendable(query) for query in queries], "topk": k, "return_scores": True}
        return self._service.ask("POST", self.url, json=body)


def sendable(query: str) -> str:
    """A lone surrogate cannot be sent, and tokenisers drop it anyway."""
    return query.encode("utf-8", "replace").decode()


def parse(status: int, content: bytes, queries: int, k: int) -> list[list[Document]]:
    """Documents of a `/retrieve` reply with scores: `{"result": [[{"document": {"id", "contents"}, "score"}]]}`.

    A document without an id (Search-R1's BM25 server sends none) gets one made from its contents. Anything else that
    differs from the contract raises Fault(retriever_schema).
    """
    if not 200 <= status < 300:
        raise Fault(SCHEMA, f"status {status}")
    try:
        result = json.loads(content)["result"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Fault(SCHEMA, "the answer is not a JSON object with a result") from error
    if not isinstance(result, list) or len(result) != queries or not all(isinstance(found, list) for found in result):
        raise Fault(SCHEMA, f"result is not a list of {queries} lists")
    return [[_document(item) for item in found[:k]] for found in result]


def _document(item: Any) -> Document:
    document = item.get("document") if isinstance(item, dict) else None
    if not isinstance(document, dict) or not isinstance(document.get("contents"), str):
        raise Fault(SCHEMA, "an item of result is not {document: {id, contents}, score}")
    contents, number, score = document["contents"], document.get("id"), item.get("score")
    # The comparison is false for nan too, and safe for an integer that no float holds.
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < 1e300:
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
