"""The search server as an ASGI app."""

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import REQUEST_TIMEOUT
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError
from ssp.base.values import Seconds
from ssp.search.batcher import Batcher, Outcome, settle
from ssp.search.router import DOWN, Options, Router
from ssp.search.serving import forms
from ssp.search.serving.forms import (
    Access,
    BatchSearch,
    RefusedRequest,
    Rerank,
    Retrieve,
    SearchRequest,
)
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
RETRY_AFTER = {"retry-after": "1"}
"""Tells a client in how many seconds to try again."""
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Reply(JSONResponse):
    """JSON, by orjson."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return orjson.dumps(content)


@dataclass
class Served:
    """A loaded corpus: what answers, how by default, its reranker, and what /status tells. `shards`
    gives {first, rows, state} of each shard now; /readyz refuses while one is not `up`. `access`: ids
    and URLs → documents; None: /access is not answered."""

    router: Router
    options: Options = Options()
    reranker: Reranker | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    shards: Callable[[], Sequence[Mapping[str, Any]]] = lambda: ()
    access: Callable[[Sequence[str]], list[Document | None]] | None = None

    @property
    def coverage(self) -> float:
        """The share of the rows that a search would reach now."""
        shards = self.shards()
        rows = sum(shard["rows"] for shard in shards)
        up = sum(shard["rows"] for shard in shards if shard["state"] == "up")
        return up / rows if rows else 1.0


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
        self.topk = topk
        self.timeout = timeout
        self.metrics = Metrics()
        self._counts = dict.fromkeys(("requests", "queries", "refused", "faults"), 0)
        self._started = time.monotonic()
        self._busy = 0
        self._served: Served | None = None
        self._searches = Batcher[str, list[Document], Seconds](
            self._search, max_batch, window, workers, settle=_in_loop
        )
        self._rerankings: Batcher[Any, list[float], None] = Batcher(
            self._rerank, max_batch, window, settle=_in_loop
        )
        self._accesses: Batcher[str, Document | None, None] = Batcher(
            self._access, max_batch, settle=_in_loop
        )
        gets = {
            "/health": self._alive,
            "/healthz": self._alive,
            "/readyz": self._readyz,
            "/status": self._status,
            "/metrics": self._metrics,
        }
        # A request is compared with one route after the other: what searches comes first.
        routes = [Route(path, self._answer, methods=["POST"]) for path in forms.FORMS]
        routes += [Route(path, answer) for path, answer in gets.items()]
        self._app = Starlette(routes=routes, exception_handlers={HTTPException: _unknown})
        self._app.router.redirect_slashes = False

    def open(self, served: Served) -> None:
        """From now on this is what answers."""
        self._served = served

    def close(self) -> None:
        """End the threads; what waits gets a 503."""
        self._searches.close()
        self._rerankings.close()
        self._accesses.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        await self._app(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        """The reply to one question, counted."""
        path = request.scope["path"]
        began = time.perf_counter()
        self._counts["requests"] += 1
        self._busy += 1
        try:
            reply = await self._reply(path, request)
        except Exception:
            self.metrics.requests.labels(path, "500").inc()
            raise
        finally:
            self._busy -= 1
        self.metrics.requests.labels(path, str(reply.status_code)).inc()
        self.metrics.latency.observe(time.perf_counter() - began)
        return reply

    async def _reply(self, path: str, request: Request) -> Response:
        try:
            if self._busy > MAX_REQUESTS:
                raise Fault(BUSY, f"{MAX_REQUESTS} requests are under way")
            asked: Any = forms.read(forms.FORMS[path], await _body(request))
            if isinstance(asked, Access):
                forms.names(self._loaded().access is not None)
                documents, _ = await self._soon(self._accesses, None, asked.urls)
                return Reply(asked.reply(documents))
            if not isinstance(asked, Rerank):
                return await self._retrieved(asked)
            forms.needs(self._loaded().reranker is not None)
            scores, _ = await self._soon(self._rerankings, None, asked.pairs())
            return Reply(asked.reply(scores))
        except RefusedRequest as refused:
            self._counts["refused"] += 1
            late = refused.status == REQUEST_TIMEOUT
            headers = {"connection": "close"} if late else {}
            return Reply({"detail": refused.detail}, refused.status, headers)
        except InputError as refused:  # what only the index knows: a knob that it has not
            self._counts["refused"] += 1
            return Reply({"detail": str(refused)}, 422)
        except Fault as fault:
            self._counts["faults"] += 1
            self.metrics.faults.labels(fault.cause).inc()
            return Reply({"detail": str(fault), "cause": fault.cause}, 503, RETRY_AFTER)

    async def _retrieved(self, asked: Retrieve | SearchRequest | BatchSearch) -> Response:
        served = self._loaded()
        question = asked.question(self.topk, served.options, served.reranker is not None)
        began = time.perf_counter()
        self._counts["queries"] += len(question.queries)
        self.metrics.queries.inc(len(question.queries))
        key = question.k, question.options
        documents, batches = await self._soon(self._searches, key, question.queries)
        content = question.render(documents)
        if question.timings:
            total = time.perf_counter() - began
            seconds: Seconds = {}
            for batch in batches:
                for stage, spent in batch.items():
                    seconds[stage] = seconds.get(stage, 0.0) + spent
            wait = max(0.0, total - sum(seconds.values()))
            content["timings"] = {"wait": wait, **seconds, "total": total}
        return Reply(content)

    async def _soon(
        self, batcher: Batcher[Any, Any, Any], key: Hashable, items: Sequence[Any]
    ) -> tuple[Any, Any]:
        """What `batcher` makes of the items. Fault when it takes longer than a request may."""
        future = batcher.submit(key, items, asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(self.timeout):
                return await future  # type: ignore[no-any-return]
        except TimeoutError:
            raise Fault(DOWN, f"no answer within {self.timeout:g} s") from None

    def _loaded(self) -> Served:
        if self._served is None:
            raise Fault(LOADING, "the index is not loaded yet")
        return self._served

    def _search(self, key: Any, queries: list[str]) -> tuple[list[list[Document]], Seconds]:
        k, options = key
        answers = self._loaded().router.search(queries, k, CORPUS, options)
        self.metrics.batches.inc()
        self.metrics.cached.inc(answers.known)
        for stage, seconds in answers.seconds.items():
            self.metrics.stages.labels(stage).inc(seconds)
        return answers, answers.seconds

    def _access(self, key: Any, names: list[str]) -> tuple[list[Document | None], None]:
        access = self._loaded().access
        assert access is not None
        return access(names), None

    def _rerank(
        self, key: Any, pairs: list[tuple[str, list[Document]]]
    ) -> tuple[list[list[float]], None]:
        reranker = self._loaded().reranker
        assert reranker is not None
        began = time.perf_counter()
        queries = [query for query, _ in pairs]
        scores = reranker.scores(queries, [documents for _, documents in pairs])
        self.metrics.stages.labels("rerank").inc(time.perf_counter() - began)
        return scores, None

    async def _alive(self, request: Request) -> Response:
        return Reply({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:
        if self._served is None:
            return Reply({"status": "loading"}, 503, RETRY_AFTER)
        coverage = self._served.coverage
        if coverage < 1:
            return Reply({"status": "partial", "coverage": coverage}, 503, RETRY_AFTER)
        return Reply({"status": "ready", "coverage": coverage})

    async def _status(self, request: Request) -> Response:
        return Reply(self.status())

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

    async def _metrics(self, request: Request) -> Response:
        coverage = self._served.coverage if self._served else 0.0
        self.metrics.waiting.set(self._searches.waiting)
        self.metrics.coverage.set(coverage)
        self.metrics.ready.set(coverage >= 1)
        figures = generate_latest(self.metrics.registry)
        return Response(figures, headers={"content-type": "text/plain; version=0.0.4"})


async def _body(request: Request) -> bytes:
    """The whole body. RefusedRequest for one that is too long, late or cut off."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > forms.MAX_BODY:
                    raise RefusedRequest(413, f"the body is above {forms.MAX_BODY} bytes")
    except ClientDisconnect:
        raise RefusedRequest(400, "the body is incomplete") from None
    except TimeoutError:
        late = f"the body did not arrive within {BODY_SECONDS:g} s"
        raise RefusedRequest(REQUEST_TIMEOUT, late) from None
    return bytes(body)


async def _unknown(request: Request, error: Exception) -> Response:
    """The reply for a path, or a method of it, that nothing answers."""
    assert isinstance(error, HTTPException)
    return Reply({"detail": error.detail}, error.status_code, error.headers)


def _in_loop(outcomes: Sequence[Outcome]) -> None:
    """Settle all outcomes in their event loop, with one call into it."""
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        outcomes[0][0].get_loop().call_soon_threadsafe(settle, outcomes)
