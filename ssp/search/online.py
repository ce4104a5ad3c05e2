"""Search engines of the web, one entry a engine: a query goes out, titles and snippets come back.

Owns the table of engines and what a result becomes: `"title"` newline snippet, with the link as id. Promises at most k
documents a query, that trouble of the service is a Fault (law 2), and that the key comes from the environment and is in no
message. Refuses to fetch pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from ssp.engines.endpoint import key_from
from ssp.episode import Document
from ssp.errors import Fault, InputError
from ssp.search.router import NO_CORPUS
from ssp.search.source import ABOUT_THE_QUERY, BACKOFF, PROBE, SCHEMA, TRIES, Service, sendable

AT_ONCE = 10
"""Requests under way, as in SSRL."""
_KEY = (401, 403)


@dataclass(frozen=True)
class WebEngine:
    """One engine: its address, the environment variable with the key, (query, k, key) → method and what httpx takes
    beside the address, and the reply's results, best first."""

    url: str
    key_env: str
    request: Callable[[str, int, str], tuple[str, dict[str, Any]]]
    results: Callable[[dict[str, Any]], list[dict[str, Any]]]


def _serper(query: str, k: int, key: str) -> tuple[str, dict[str, Any]]:
    return "POST", {"headers": {"X-API-KEY": key}, "json": {"q": query, "num": k}}


ENGINES = {
    "serper": WebEngine("https://google.serper.dev/search", "SERPER_API_KEY", _serper, lambda reply: reply["organic"]),
}
"""By name. Results are objects with title, snippet and link, where one of the first two may be missing."""


class OnlineSearch:
    """`Search` over the engine called `name`; every corpus but `none` is the web. `url` in place of the engine's own.

    InputError for an unknown engine, and for a key that is not set or not taken; `timeout`, `tries`, `backoff`:
    see `Service`.
    """

    def __init__(
        self,
        name: str,
        url: str = "",
        timeout: float = 20.0,
        tries: int = TRIES,
        backoff: float = BACKOFF,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if name not in ENGINES:
            raise InputError(f"an online engine is one of {', '.join(ENGINES)}", name, "use one of these")
        self._engine = ENGINES[name]
        self._url, self._key = url or self._engine.url, key_from(self._engine.key_env)
        self._service = Service(timeout, tries, backoff, transport)

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """For each query at most `k` documents, as the engine ranked them. Raises Fault.

        A query that the engine refuses although it takes another finds nothing: that is the policy's doing (law 2).
        """
        if corpus == NO_CORPUS or not queries:
            return [[] for _ in queries]
        with ThreadPoolExecutor(min(AT_ONCE, len(queries))) as pool:
            return list(pool.map(lambda query: self._one(query, k), queries))

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _one(self, query: str, k: int) -> list[Document]:
        status, content = self._ask(query, k)
        if status in ABOUT_THE_QUERY:
            self._documents(*self._ask(PROBE, k), k)
            return []
        return self._documents(status, content, k)

    def _ask(self, query: str, k: int) -> tuple[int, bytes]:
        method, request = self._engine.request(sendable(query), k, self._key)
        return self._service.ask(method, self._url, **request)

    def _documents(self, status: int, content: bytes, k: int) -> list[Document]:
        if status in _KEY:
            variable = self._engine.key_env
            raise InputError(f"the engine takes the key in {variable}", f"status {status}", f"export {variable}=...")
        if not 200 <= status < 300:
            raise Fault(SCHEMA, f"{self._url}: status {status}")
        try:
            results = self._engine.results(json.loads(content))
            return [_document(result, rank) for rank, result in enumerate(results[:k], start=1)]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Fault(SCHEMA, f"{self._url}: the answer is not a list of results") from error


def _document(result: dict[str, Any], rank: int) -> Document:
    title, snippet = (_plain(result.get(name, "")) for name in ("title", "snippet"))
    if not isinstance(result["link"], str):
        raise TypeError("a link is a text")
    return Document(result["link"], f'"{title}"\n{snippet}', 1.0 / rank)


def _plain(text: str) -> str:
    """One line without ellipses, with which engines mark where they cut; half of a surrogate pair goes too."""
    whole = text.replace("...", " ").replace("…", " ").encode("utf-8", "ignore").decode()
    return " ".join(whole.split())
