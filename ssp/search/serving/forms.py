"""The bodies that a search server takes, in the words of each client, and the replies in theirs.

Owns the wire forms: Search-R1's `/retrieve` and `/rerank`, FlashRAG's `/search` and `/batch_search`, and their limits.
Promises that a body is either a question that can be searched or `Refused` with its reason and status.
Refuses to know connections and how documents are ranked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from ssp.base.episode import Document
from ssp.search.hits import Knobs
from ssp.search.router import Options
from ssp.search.shard import HYBRID, KINDS

MAX_BODY = 8 * 2**20
MAX_QUERIES = 4096
MAX_QUERY = 8192
MAX_TOPK = 1000
MAX_KNOB = 1_000_000
MAX_DOCUMENTS = 2**18
"""Documents that one reply may hold: queries times topk."""
RETRIEVED, RERANKED, TOP_N = 10, 3, 10
"""What clients of the reranking and of FlashRAG's server get when they name no number."""

_ABSENT = object()
Rendered = Callable[[Sequence[Sequence[Document]]], Any]


class Refused(Exception):
    """A request that is not answered: the HTTP status, and why."""

    def __init__(self, status: int, detail: str) -> None:
        self.status, self.detail = status, detail
        super().__init__(status, detail)


@dataclass(frozen=True)
class Question:
    """What a body asks: at most `k` documents for each of `queries`, found as `options` say, in the form of `render`."""

    queries: list[str]
    k: int
    options: Options
    render: Rendered
    timings: bool = False


@dataclass(frozen=True)
class Reranking:
    """Order `documents[i]` (as they came, with their texts in `texts`) by `queries[i]`, and keep the best `k`."""

    queries: list[str]
    documents: list[list[dict[str, Any]]]
    texts: list[list[Document]]
    k: int
    scores: bool

    def reply(self, scores: Sequence[Sequence[float]]) -> dict[str, Any]:
        """The body of the answer; ties stay in the order in which they came."""
        result = []
        for documents, values in zip(self.documents, scores, strict=True):
            order = sorted(range(len(documents)), key=lambda i: -values[i])[: self.k]
            if self.scores:
                result.append([{"document": documents[i], "score": values[i]} for i in order])
            else:
                result.append([documents[i] for i in order])
        return {"result": result}


def read(body: bytes) -> dict[str, Any]:
    """The object in a body. `Refused` 400 when it is not JSON, 422 when it is no object."""
    try:
        found = orjson.loads(body)
    except ValueError:
        try:  # what the standard library takes beyond JSON (NaN, lone surrogates) is refused field by field
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Refused(400, "the body is not JSON") from error
    if not isinstance(found, dict):
        raise Refused(422, "body: Input should be an object")
    return found


def retrieve(body: dict[str, Any], topk: int, default: Options, reranks: bool) -> Question:
    """POST /retrieve: Search-R1's, and with `topk_retrieval` or `topk_rerank` that of its reranking server.

    `topk`: documents a query when the body names none. `reranks`: whether a cross-encoder is loaded.
    """
    queries = _texts(body, "queries")
    options, k = _options(body, default), _number(body, "topk", 1, MAX_TOPK) or topk
    shape = with_scores if _flag(body, "return_scores") else without_scores
    if body.get("topk_retrieval") is not None or body.get("topk_rerank") is not None:
        candidates = _number(body, "topk_retrieval", 1, MAX_TOPK) or RETRIEVED
        k = min(_number(body, "topk_rerank", 1, MAX_TOPK) or RERANKED, candidates)
        _needs(reranks)
        options = replace(options, rerank=candidates)
    _bounded(queries, max(k, options.rerank))
    return Question(queries, k, options, lambda found: {"result": shape(found)}, bool(_flag(body, "timings")))


def search(body: dict[str, Any], default: Options) -> Question:
    """POST /search: FlashRAG's for one query; the reply is a list of documents, or a pair of it and their scores."""
    return _flashrag(body, [_text(body.get("query", _ABSENT), "query")], default, lambda found: found[0])


def batch_search(body: dict[str, Any], default: Options) -> Question:
    """POST /batch_search: FlashRAG's for many queries."""
    return _flashrag(body, _texts(body, "query"), default, lambda found: found)


def rerank(body: dict[str, Any], reranks: bool) -> Reranking:
    """POST /rerank: Search-R1's. A document is {id, contents}, or one item of a reply with scores."""
    _needs(reranks)
    queries, given = _texts(body, "queries"), body.get("documents", _ABSENT)
    if not isinstance(given, list) or len(given) != len(queries) or not all(isinstance(some, list) for some in given):
        raise Refused(422, "documents: Input should be a list of documents for each query")
    documents = [[_document(d, f"documents.{i}.{j}") for j, d in enumerate(some)] for i, some in enumerate(given)]
    k = _number(body, "rerank_topk", 1, MAX_TOPK) or RERANKED
    texts = [[Document(d.get("id", ""), d["contents"]) for d in some] for some in documents]
    return Reranking(queries, documents, texts, k, bool(_flag(body, "return_scores")))


def with_scores(found: Sequence[Sequence[Document]]) -> list[list[dict[str, Any]]]:
    """Search-R1's items: {document: {id, contents}, score}."""
    return [[{"document": {"id": d.id, "contents": d.contents}, "score": d.score} for d in some] for some in found]


def without_scores(found: Sequence[Sequence[Document]]) -> list[list[dict[str, Any]]]:
    """The documents alone: {id, contents}."""
    return [[{"id": d.id, "contents": d.contents} for d in some] for some in found]


def description() -> dict[str, Any]:
    """The forms as an OpenAPI document."""
    query, flag = {"type": "string", "maxLength": MAX_QUERY}, {"type": "boolean", "nullable": True}
    queries = {"type": "array", "maxItems": MAX_QUERIES, "items": query}
    topk, knob = ({"type": "integer", "minimum": 1, "maximum": most, "nullable": True} for most in (MAX_TOPK, MAX_KNOB))
    way = {"kind": {"type": "string", "enum": list(KINDS)}, "ef_search": knob, "nprobe": knob}
    document = {"type": "object", "required": ["contents"], "properties": {"contents": {"type": "string"}}}
    documents = {"type": "array", "items": {"type": "array", "items": document}}
    reranked = {"topk_retrieval": topk, "topk_rerank": topk, "return_scores": flag, "timings": flag}
    bodies: dict[str, tuple[list[str], dict[str, Any]]] = {
        "/retrieve": (["queries"], {"queries": queries, "topk": topk, **reranked, **way}),
        "/search": (["query"], {"query": query, "top_n": topk, "return_score": flag, **way}),
        "/batch_search": (["query"], {"query": queries, "top_n": topk, "return_score": flag, **way}),
        "/rerank": (
            ["queries", "documents"],
            {"queries": queries, "documents": documents, "rerank_topk": topk, "return_scores": flag},
        ),
    }
    codes = {
        200: "answered",
        400: "not JSON",
        408: "too slow",
        413: "too large",
        422: "refused",
        501: "not loaded",
        503: "try again",
    }
    replies = {str(code): {"description": words} for code, words in codes.items()}
    paths: dict[str, Any] = {}
    for path, (required, properties) in bodies.items():
        schema = {"type": "object", "required": required, "properties": properties}
        content = {"application/json": {"schema": schema}}
        paths[path] = {"post": {"requestBody": {"required": True, "content": content}, "responses": replies}}
    return {"openapi": "3.0.3", "info": {"title": "ssp serve", "version": "1"}, "paths": paths}


def _flashrag(body: dict[str, Any], queries: list[str], default: Options, shape: Callable[[Any], Any]) -> Question:
    k = _number(body, "top_n", 1, MAX_TOPK) or TOP_N
    options = _options(body, default)
    _bounded(queries, max(k, options.rerank))

    def both(found: Sequence[Sequence[Document]]) -> list[Any]:
        return [shape(without_scores(found)), shape([[d.score for d in some] for some in found])]

    scores = _flag(body, "return_score")
    return Question(queries, k, options, both if scores else lambda found: shape(without_scores(found)))


def _options(body: dict[str, Any], default: Options) -> Options:
    """How this request is searched: as the server's default but for `kind`, `ef_search` and `nprobe`."""
    kind, ef_search, nprobe = (
        body.get("kind"),
        _number(body, "ef_search", 1, MAX_KNOB),
        _number(body, "nprobe", 1, MAX_KNOB),
    )
    if kind is ef_search is nprobe is None:
        return default
    held = KINDS if default.kind == HYBRID else (default.kind,)
    if kind is not None and kind not in held:
        raise Refused(422, f"kind: Input should be {' or '.join(held)}, which this server holds")
    knobs = Knobs(ef_search or default.knobs.ef_search, nprobe or default.knobs.nprobe)
    return replace(default, kind=kind or default.kind, knobs=knobs)


def _needs(reranks: bool) -> None:
    if not reranks:
        raise Refused(501, "no reranker is loaded: start the server with --reranker FOLDER")


def _bounded(queries: list[str], k: int) -> None:
    if len(queries) * k > MAX_DOCUMENTS:
        raise Refused(422, f"topk: {len(queries)} queries times {k} are above {MAX_DOCUMENTS} documents")


def _texts(body: dict[str, Any], name: str) -> list[str]:
    found = body.get(name, _ABSENT)
    if not isinstance(found, list):
        raise Refused(422, f"{name}: {_trouble(found, 'a list')}")
    if len(found) > MAX_QUERIES:
        raise Refused(422, f"{name}: List should have at most {MAX_QUERIES} items")
    for i, text in enumerate(found):
        if type(text) is not str or len(text) > MAX_QUERY or not text.isascii():
            _text(text, f"{name}.{i}")
    return found


def _text(found: Any, name: str) -> str:
    if not isinstance(found, str):
        raise Refused(422, f"{name}: {_trouble(found, 'a string')}")
    if len(found) > MAX_QUERY:
        raise Refused(422, f"{name}: String should have at most {MAX_QUERY} characters")
    return _unicode(found, name)


def _unicode(found: str, name: str) -> str:
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise Refused(422, f"{name}: Input should be valid Unicode") from error
    return found


def _number(body: dict[str, Any], name: str, least: int, most: int) -> int | None:
    found = body.get(name)
    if found is None:
        return None
    if type(found) is not int or not least <= found <= most:
        raise Refused(422, f"{name}: Input should be a whole number from {least} to {most}")
    return found


def _flag(body: dict[str, Any], name: str) -> bool | None:
    found = body.get(name)
    if found is not None and not isinstance(found, bool):
        raise Refused(422, f"{name}: Input should be true or false")
    return found


def _document(found: Any, name: str) -> dict[str, Any]:
    inner = found.get("document", found) if isinstance(found, dict) else None
    contents = inner.get("contents") if isinstance(inner, dict) else None
    if not isinstance(contents, str) or not isinstance(inner, dict):
        raise Refused(422, f"{name}: Input should be {{id, contents}}, or an item with such a document")
    number = inner.get("id")
    if number is not None and (isinstance(number, bool) or not isinstance(number, str | int)):
        raise Refused(422, f"{name}.id: Input should be a string")
    known = {} if number is None else {"id": _unicode(str(number), f"{name}.id")}
    return {**known, "contents": _unicode(contents, f"{name}.contents")}


def _trouble(found: Any, wanted: str) -> str:
    return "Field required" if found is _ABSENT else f"Input should be {wanted}"
