"""The search server as an ASGI app, without a web framework: a request costs tens of microseconds
beside its search."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import REQUEST_TIMEOUT
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError
from ssp.search.batcher import Batcher, Outcome, settle
from ssp.search.router import DOWN, Options, Router
from ssp.search.serving import forms
from ssp.search.serving.forms import BatchSearch, Refused, Rerank, Retrieve, Search
from ssp.search.shard import Reranker

CORPUS = "train"
"""The name of the corpus that is served: data.corpus."""
LOADING = "retriever_loading"
BUSY = "retriever_busy"
MAX_REQUESTS = 512
"""Requests that are under way at once, their bodies included; connections without one do not
count."""
BODY_SECONDS = 30.0
"""In which a body arrives as a whole."""
RETRY_AFTER = (b"retry-after", b"1")
"""When a client is told to try again, in seconds."""
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Info = dict[str, float]
Reply = tuple[int, bytes, Sequence[tuple[bytes, bytes]]]

JSON = (b"content-type", b"application/json")


@dataclass
class Served:
    """A loaded corpus: what answers, how by default, its reranker, and what /status tells. `shards`
    gives {first, rows, state} of each shard now; /readyz refuses while one is not `up`."""

    router: Router
    options: Options = Options()
    reranker: Reranker | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    shards: Callable[[], Sequence[Mapping[str, Any]]] = lambda: ()

    @property
    def coverage(self) -> float:
        """The share of the rows that a search would reach now."""
        shards = self.shards()
        total = sum(shard["rows"] for shard in shards)
        return (
            sum(shard["rows"] for shard in shards if shard["state"] == "up") / total
            if total
            else 1.0
        )


class Metrics:
    """The figures of one server, in a registry of its own."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.requests = Counter(
            "ssp_requests", "Requests by path and status", ["path", "status"], registry=own
        )
        self.queries = Counter("ssp_queries", "Queries asked", registry=own)
        self.cached = Counter("ssp_cache_hits", "Queries answered from the cache", registry=own)
        self.faults = Counter(
            "ssp_faults", "Requests that failed, by cause", ["cause"], registry=own
        )
        self.batches = Counter("ssp_batches", "Searches, each of merged queries", registry=own)
        self.stages = Counter(
            "ssp_stage_seconds", "Seconds of the searches by stage", ["stage"], registry=own
        )
        self.latency = Histogram(
            "ssp_request_seconds", "Seconds from body to reply", registry=own, buckets=BUCKETS
        )
        self.waiting = Gauge("ssp_waiting_queries", "Queries that wait", registry=own)
        self.coverage = Gauge("ssp_coverage", "Share of the corpus that is searched", registry=own)
        self.ready = Gauge("ssp_ready", "1 when /readyz says so", registry=own)


class SearchApi:
    """The app. `topk`: documents a query when a body names none. `timeout`: seconds for one
    request. Concurrent requests are merged into searches of at most `max_batch` queries, made by
    `workers` threads; `window`: see `Batcher`. Answers only once `open` was called."""

    def __init__(
        self,
        topk: int,
        timeout: float = 20.0,
        max_batch: int = 64,
        window: float = 0.0,
        workers: int = 1,
    ) -> None:
        self.topk, self.timeout = topk, timeout
        self.metrics = Metrics()
        self._counts = dict.fromkeys(("requests", "queries", "refused", "faults"), 0)
        self._started, self._busy = time.monotonic(), 0
        self._served: Served | None = None
        self._searches = Batcher[str, list[Document], Info](
            self._search, max_batch, window, workers, settle=_in_loop
        )
        self._rerankings: Batcher[Any, list[float], None] = Batcher(
            self._rerank, max_batch, window, settle=_in_loop
        )
        self._gets: dict[str, Callable[[], Reply]] = {
            "/health": lambda: _json(200, {"status": "ok"}),
            "/healthz": lambda: _json(200, {"status": "ok"}),
            "/readyz": self._readyz,
            "/status": lambda: _json(200, self.status()),
            "/metrics": self._metrics,
        }

    def open(self, served: Served) -> None:
        """From now on this is what answers."""
        self._served = served

    def close(self) -> None:
        """End the threads; what waits gets a 503."""
        self._searches.close()
        self._rerankings.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        status, body, headers = await self._answer(scope["path"], scope["method"], receive)
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, path: str, method: str, receive: Receive) -> Reply:
        if path in self._gets:
            if method in ("GET", "HEAD"):
                return self._gets[path]()
            return _json(405, {"detail": "Method Not Allowed"}, (b"allow", b"GET, HEAD"))
        if path not in forms.FORMS:
            return _json(404, {"detail": "Not Found"})
        if method != "POST":
            return _json(405, {"detail": "Method Not Allowed"}, (b"allow", b"POST"))
        began = time.perf_counter()
        self._counts["requests"] += 1
        self._busy += 1
        try:
            if self._busy > MAX_REQUESTS:
                raise Fault(BUSY, f"{MAX_REQUESTS} requests are under way")
            asked: Any = forms.read(forms.FORMS[path], await _body(receive))
            reply = await (self._reranked if isinstance(asked, Rerank) else self._retrieved)(asked)
        except Refused as refused:
            self._counts["refused"] += 1
            end = [(b"connection", b"close")] if refused.status == REQUEST_TIMEOUT else []
            reply = _json(refused.status, {"detail": refused.detail}, *end)
        except InputError as refused:  # what only the index knows: a knob that it has not
            self._counts["refused"] += 1
            reply = _json(422, {"detail": str(refused)})
        except Fault as fault:
            self._counts["faults"] += 1
            self.metrics.faults.labels(fault.cause).inc()
            reply = _json(503, {"detail": str(fault), "cause": fault.cause}, RETRY_AFTER)
        except Exception:
            self.metrics.requests.labels(path, "500").inc()
            raise
        finally:
            self._busy -= 1
        self.metrics.requests.labels(path, str(reply[0])).inc()
        self.metrics.latency.observe(time.perf_counter() - began)
        return reply

    async def _retrieved(self, asked: Retrieve | Search | BatchSearch) -> Reply:
        served = self._open()
        question = asked.question(self.topk, served.options, served.reranker is not None)
        began = time.perf_counter()
        self._counts["queries"] += len(question.queries)
        self.metrics.queries.inc(len(question.queries))
        found, infos = await self._soon(
            self._searches, (question.k, question.options), question.queries
        )
        content = question.render(found)
        if question.timings:
            total, seconds = time.perf_counter() - began, dict[str, float]()
            for stage, spent in (pair for info in infos for pair in info.items()):
                seconds[stage] = seconds.get(stage, 0.0) + spent
            content["timings"] = {
                "wait": max(0.0, total - sum(seconds.values())),
                **seconds,
                "total": total,
            }
        return _json(200, content)

    async def _reranked(self, asked: Rerank) -> Reply:
        forms.needs(self._open().reranker is not None)
        scores, _ = await self._soon(self._rerankings, None, asked.pairs())
        return _json(200, asked.reply(scores))

    async def _soon(
        self, batcher: Batcher[Any, Any, Any], key: Hashable, items: Sequence[Any]
    ) -> tuple[Any, Any]:
        future = batcher.submit(key, items, asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(self.timeout):
                return await future  # type: ignore[no-any-return]
        except TimeoutError:
            raise Fault(DOWN, f"no answer within {self.timeout:g} s") from None

    def _open(self) -> Served:
        if self._served is None:
            raise Fault(LOADING, "the index is not loaded yet")
        return self._served

    def _search(self, key: Any, queries: list[str]) -> tuple[list[list[Document]], Info]:
        served, (k, options) = self._open(), key
        answers = served.router.search(queries, k, CORPUS, options)
        self.metrics.batches.inc()
        self.metrics.cached.inc(answers.known)
        for stage, seconds in answers.seconds.items():
            self.metrics.stages.labels(stage).inc(seconds)
        return answers, answers.seconds

    def _rerank(
        self, key: Any, pairs: list[tuple[str, list[Document]]]
    ) -> tuple[list[list[float]], None]:
        reranker = self._open().reranker
        assert reranker is not None
        began = time.perf_counter()
        scores = reranker.scores(
            [query for query, _ in pairs], [documents for _, documents in pairs]
        )
        self.metrics.stages.labels("rerank").inc(time.perf_counter() - began)
        return scores, None

    def _readyz(self) -> Reply:
        if self._served is None:
            return _json(503, {"status": "loading"}, RETRY_AFTER)
        coverage = self._served.coverage
        if coverage < 1:
            return _json(503, {"status": "partial", "coverage": coverage}, RETRY_AFTER)
        return _json(200, {"status": "ready", "coverage": coverage})

    def status(self) -> dict[str, Any]:
        """What /status shows."""
        served = self._served
        return {
            "state": "loading" if served is None else "serving",
            **(served.about if served else {}),
            "topk": self.topk,
            "shards": list(served.shards()) if served else [],
            "coverage": served.coverage if served else 0.0,
            **self._counts,
            "waiting": self._searches.waiting,
            "uptime_seconds": round(time.monotonic() - self._started, 3),
        }

    def _metrics(self) -> Reply:
        self.metrics.waiting.set(self._searches.waiting)
        self.metrics.coverage.set(self._served.coverage if self._served else 0.0)
        self.metrics.ready.set(self._readyz()[0] == 200)
        return (
            200,
            generate_latest(self.metrics.registry),
            [(b"content-type", b"text/plain; version=0.0.4")],
        )


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                event = await receive()
                if event["type"] != "http.request":
                    raise Refused(400, "the body is incomplete")
                body += event.get("body", b"")
                if len(body) > forms.MAX_BODY:
                    raise Refused(413, f"the body is above {forms.MAX_BODY} bytes")
                if not event.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise Refused(
            REQUEST_TIMEOUT, f"the body did not arrive within {BODY_SECONDS:g} s"
        ) from None


def _json(status: int, content: Any, *headers: tuple[bytes, bytes]) -> Reply:
    return status, orjson.dumps(content), (JSON, *headers)


def _in_loop(outcomes: Sequence[Outcome]) -> None:
    """Settle all in their event loop, with one call into it."""
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        outcomes[0][0].get_loop().call_soon_threadsafe(settle, outcomes)
