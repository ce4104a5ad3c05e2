"""`ssp serve`: a search server that speaks Search-R1's `/retrieve` and ReSearch's `/search`, `/batch_search`, `/health`.

Owns the HTTP contract and its limits. Promises that a bad body is a 400, 413 or 422 with its reason, that a fault of
the search is a 503 and never an empty answer, and that a taken port is InputError.
Refuses to know how documents are ranked: it asks a `Search`.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, ValidationError
from starlette.requests import ClientDisconnect

from launch.cli import Parser, whole
from ssp.data.readers import read_corpus
from ssp.episode import Document
from ssp.errors import Fault, InputError
from ssp.rollout import Search
from ssp.search import Bm25Index, LocalSearch, build, load

CORPUS = "served"
MAX_BODY = 8 * 2**20
MAX_QUERIES = 4096
MAX_QUERY = 8192
MAX_TOPK = 1000
MAX_CONNECTIONS = 512


Body = TypeVar("Body", bound=BaseModel)


class RetrieveRequest(BaseModel):
    """Body of POST /retrieve. `topk` null = the server's default."""

    queries: Annotated[list[Annotated[StrictStr, Field(max_length=MAX_QUERY)]], Field(max_length=MAX_QUERIES)]
    topk: Annotated[StrictInt, Field(ge=1, le=MAX_TOPK)] | None = None
    return_scores: StrictBool | None = None


class SearchRequest(BaseModel):
    """Body of POST /search (FlashRAG's server, which ReSearch uses): one query."""

    query: Annotated[StrictStr, Field(max_length=MAX_QUERY)]
    top_n: Annotated[StrictInt, Field(ge=1, le=MAX_TOPK)] = 10
    return_score: StrictBool = False

    @property
    def queries(self) -> list[str]:
        """The query as a batch of one."""
        return [self.query]


class BatchSearchRequest(SearchRequest):
    """Body of POST /batch_search: many queries."""

    query: Annotated[list[Annotated[StrictStr, Field(max_length=MAX_QUERY)]], Field(max_length=MAX_QUERIES)]  # type: ignore[assignment]

    @property
    def queries(self) -> list[str]:
        """The queries."""
        return list(self.query)


def create_app(search: Search, topk: int, about: Mapping[str, Any] | None = None, corpus: str = CORPUS) -> FastAPI:
    """The server as an ASGI app over `corpus` of `search`; `about` is shown by /status beside its counters."""
    app = FastAPI(title="ssp serve", docs_url=None, redoc_url=None)
    counts = {"requests": 0, "queries": 0, "refused": 0, "faults": 0}
    started = time.monotonic()

    async def asked(request: Request, kind: type[Body]) -> Body:
        counts["requests"] += 1
        try:
            return _validated(await _body(request), kind)
        except HTTPException:
            counts["refused"] += 1
            raise

    async def answered(queries: list[str], k: int) -> list[list[Document]]:
        counts["queries"] += len(queries)
        try:
            return await run_in_threadpool(search.search, queries, k, corpus)
        except Fault as fault:
            counts["faults"] += 1
            raise HTTPException(503, str(fault)) from fault

    @app.post("/retrieve")
    async def retrieve(request: Request) -> JSONResponse:
        ask = await asked(request, RetrieveRequest)
        found = await answered(ask.queries, ask.topk or topk)
        return JSONResponse({"result": [_answer(documents, bool(ask.return_scores)) for documents in found]})

    @app.post("/search")
    async def search_one(request: Request) -> JSONResponse:
        ask = await asked(request, SearchRequest)
        (found,) = await answered(ask.queries, ask.top_n)
        scores = [document.score for document in found]
        return JSONResponse([_answer(found, False), scores] if ask.return_score else _answer(found, False))

    @app.post("/batch_search")
    async def batch_search(request: Request) -> JSONResponse:
        ask = await asked(request, BatchSearchRequest)
        found = await answered(ask.queries, ask.top_n)
        documents = [_answer(each, False) for each in found]
        scores = [[document.score for document in each] for each in found]
        return JSONResponse([documents, scores] if ask.return_score else documents)

    @app.get("/health")
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/status")
    async def status() -> dict[str, Any]:
        return {**(about or {}), "topk": topk, **counts, "uptime_seconds": round(time.monotonic() - started, 3)}

    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted. Raises InputError for a bad index, corpus or address, a taken port included."""
    argv = sys.argv[1:] if argv is None else argv
    if any(word == "--judge" or word.startswith("--judge=") for word in argv):
        from launch import judgeserver

        return judgeserver.main(argv)
    args = _parser().parse_args(argv)
    with bind(args.host, args.port) as listener:
        index = load(args.index) if args.index else build(read_corpus(args.corpus))
        app = create_app(LocalSearch({CORPUS: [index]}), args.topk, describe(index))
        config = uvicorn.Config(
            app, log_level="warning", limit_concurrency=MAX_CONNECTIONS, timeout_graceful_shutdown=5
        )
        host = f"[{args.host}]" if ":" in args.host else args.host
        print(f"serving {index.total:,} documents on http://{host}:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. InputError when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        found = f"{host}:{port}: {error.strerror or error}"
        raise InputError(
            "the server's port must be free", found, "choose another --port, or 0 for a free one"
        ) from error
    # asyncio does not set this on sockets made elsewhere; without it a reply of two packets waits 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def describe(index: Bm25Index) -> dict[str, Any]:
    """What /status says about an index."""
    return {"documents": index.total, "corpus_sha256": index.corpus_sha256, "k1": index.k1, "b": index.b}


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise HTTPException(413, f"the body is above {MAX_BODY} bytes")
    except ClientDisconnect as error:
        raise HTTPException(400, "the body is incomplete") from error
    return bytes(body)


def _validated(body: bytes, kind: type[Body]) -> Body:
    try:
        return kind.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise HTTPException(422, f"{where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is not JSON") from error


def _answer(documents: list[Document], scores: bool) -> list[dict[str, Any]]:
    plain = [{"id": document.id, "contents": document.contents} for document in documents]
    if not scores:
        return plain
    return [{"document": item, "score": document.score} for item, document in zip(plain, documents, strict=True)]


def _parser() -> Parser:
    parser = Parser("serve", "Serve a corpus: POST /retrieve.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--index", type=Path, help="index folder made by ssp index")
    source.add_argument("--corpus", type=Path, help="corpus file (jsonl, also .gz), indexed in memory")
    source.add_argument("--judge", metavar="MODEL", help="a judge model instead; see ssp serve --judge MODEL --help")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=whole(0, 65535), default=8000, help="0 takes a free port (default 8000)")
    parser.add_argument("--topk", type=whole(1, MAX_TOPK), default=3, help="documents a query by default (3)")
    return parser


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
