"""A search server over a tiny corpus for tests, on a real loopback socket or in process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from localsearch import local

from launch import serve
from ssp.base.episode import Document
from ssp.base.errors import Fault
from ssp.search.hits import Answers
from ssp.search.router import Options, Router
from ssp.search.serving.api import CORPUS, SearchApi, Served
from ssp.search.shard import in_memory

DOCUMENTS = [
    Document("pota", '"pota"\npota a company . pota seat vure .'),
    Document("vure", '"vure"\nvure a city . vure mayor bino .'),
    Document("bino", '"bino"\nbino a person . bino employer pota . 東京'),
]


class LongestFirst:
    """A cross-encoder that likes the longest document, and remembers what it read."""

    def __init__(self) -> None:
        self.read: list[tuple[str, str]] = []

    def scores(self, queries: Sequence[str], documents: Sequence[Sequence[Document]]) -> list[list[float]]:
        self.read += [(query, d.contents) for query, some in zip(queries, documents, strict=True) for d in some]
        return [[float(len(d.contents)) for d in some] for some in documents]


class Down:
    """A search that always fails, for a cause."""

    def search(self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None) -> Answers:
        raise Fault("retriever_down", "shard 1")


def tiny(shards: int = 2, **parts: Any) -> Router:
    return local(CORPUS, in_memory(DOCUMENTS, shards=shards), **parts)


def create_app(search: Any, topk: int, about: Mapping[str, Any] | None = None, **options: Any) -> SearchApi:
    """An app that answers from the start. `options`: of `SearchApi`."""
    app = SearchApi(topk, **options)
    held = getattr(search, "corpora", {}).get(CORPUS)
    app.open(Served(search, held.options, held.reranker, about or {}) if held else Served(search, about=about or {}))
    return app


@contextmanager
def running(app: SearchApi) -> Iterator[str]:
    """The app under uvicorn in a thread; gives the base address."""
    with serve.bind("127.0.0.1", 0) as listener:
        server = uvicorn.Server(serve.settings(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            deadline = time.monotonic() + 20
            while not server.started and time.monotonic() < deadline:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            app.close()
    assert not thread.is_alive()


def post(base: str, path: str = "/retrieve", **kwargs: Any) -> httpx.Response:
    return httpx.post(f"{base}{path}", trust_env=False, verify=False, timeout=20, **kwargs)


def get(base: str, path: str) -> httpx.Response:
    return httpx.get(f"{base}{path}", trust_env=False, verify=False, timeout=20)
