"""The bodies that a search server takes, in the words of each client, and the replies in theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, Field, ValidationError, model_validator

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

Query = Annotated[str, Field(max_length=MAX_QUERY)]
Queries = Annotated[list[Query], Field(max_length=MAX_QUERIES, fail_fast=True)]
Text = Annotated[str, Field(max_length=MAX_BODY)]
"""With a bound, since what has none is not looked at: it may not be Unicode."""
Top = Annotated[int, Field(ge=1, le=MAX_TOPK)] | None
Knob = Annotated[int, Field(ge=1, le=MAX_KNOB)] | None


class RefusedRequest(Exception):
    """A request that is not answered: the HTTP status, and why."""

    def __init__(self, status: int, detail: str) -> None:
        self.status, self.detail = status, detail
        super().__init__(status, detail)


@dataclass(frozen=True)
class SearchQuestion:
    """What a body asks: at most `k` documents for each of `queries`, found as `options` say, in the
    form of `render`."""

    queries: list[str]
    k: int
    options: Options
    render: Callable[[Sequence[Sequence[Document]]], Any]
    timings: bool | None = False

    def __post_init__(self) -> None:
        k = max(self.k, self.options.rerank)
        if len(self.queries) * k > MAX_DOCUMENTS:
            raise RefusedRequest(
                422,
                f"topk: {len(self.queries)} queries times {k} are above {MAX_DOCUMENTS} documents",
            )


class Form(BaseModel, strict=True):
    """A body: what the type of a field does not take is refused, a field that is not known is left
    out."""


class Asking(Form):
    """A body that asks for documents, in a way that may differ from the server's."""

    kind: str | None = None
    ef_search: Knob = None
    nprobe: Knob = None

    def options(self, default: Options) -> Options:
        """How this request is searched. `RefusedRequest` for a kind that the server does not hold."""
        if self.kind is self.ef_search is self.nprobe is None:
            return default
        held = KINDS if default.kind == HYBRID else (default.kind,)
        if self.kind is not None and self.kind not in held:
            raise RefusedRequest(
                422, f"kind: Input should be {' or '.join(held)}, which this server holds"
            )
        knobs = Knobs(
            self.ef_search or default.knobs.ef_search, self.nprobe or default.knobs.nprobe
        )
        return replace(default, kind=self.kind or default.kind, knobs=knobs)


class Retrieve(Asking):
    """POST /retrieve: Search-R1's, and with `topk_retrieval` or `topk_rerank` that of its reranking
    server."""

    queries: Queries
    topk: Top = None
    topk_retrieval: Top = None
    topk_rerank: Top = None
    return_scores: bool | None = None
    timings: bool | None = None

    def question(self, topk: int, default: Options, reranks: bool) -> SearchQuestion:
        """`topk`: documents a query when the body names none. `reranks`: whether a cross-encoder is
        loaded."""
        k, options = self.topk or topk, self.options(default)
        if self.topk_retrieval or self.topk_rerank:
            candidates = self.topk_retrieval or RETRIEVED
            k = min(self.topk_rerank or RERANKED, candidates)
            needs(reranks)
            options = replace(options, rerank=candidates)

        def render(found: Sequence[Sequence[Document]]) -> Any:
            plain = without_scores(found)
            if not self.return_scores:
                return {"result": plain}
            pairs = [zip(*both, strict=True) for both in zip(plain, found, strict=True)]
            return {
                "result": [
                    [{"document": item, "score": d.score} for item, d in some] for some in pairs
                ]
            }

        return SearchQuestion(self.queries, k, options, render, self.timings)


class BatchSearch(Asking):
    """POST /batch_search: FlashRAG's; the reply is a list of documents a query, or a pair of it and
    their scores."""

    query: Queries
    top_n: Top = None
    return_score: bool | None = None

    def question(self, topk: int, default: Options, reranks: bool) -> SearchQuestion:
        """See `Retrieve.question`; FlashRAG's clients have a default of their own."""
        queries, scored = (
            self.query if isinstance(self.query, list) else [self.query],
            self.return_score,
        )

        def render(found: Sequence[Sequence[Document]]) -> Any:
            documents, scores = without_scores(found), [[d.score for d in some] for some in found]
            if queries is self.query:
                return [documents, scores] if scored else documents
            return [documents[0], scores[0]] if scored else documents[0]

        return SearchQuestion(queries, self.top_n or TOP_N, self.options(default), render)


class SearchRequest(BatchSearch):
    """POST /search: FlashRAG's for one query."""

    query: Query  # type: ignore[assignment]


class Given(Form):
    """A document of a client: {id, contents}, or one item of a reply with scores."""

    id: Text | int | None = None
    contents: Text

    @model_validator(mode="before")
    @classmethod
    def _inner(cls, item: Any) -> Any:
        return item.get("document", item) if isinstance(item, dict) else item

    def document(self) -> Document:
        """It, with the id "" where none came."""
        return Document("" if self.id is None else str(self.id), self.contents)

    def plain(self) -> dict[str, str]:
        """As it goes back: without an id that did not come."""
        return ({} if self.id is None else {"id": str(self.id)}) | {"contents": self.contents}


class Rerank(Form):
    """POST /rerank: Search-R1's. Order `documents[i]` by `queries[i]`, and keep the best."""

    queries: Queries
    documents: Annotated[list[Annotated[list[Given], Field(fail_fast=True)]], Field(fail_fast=True)]
    rerank_topk: Top = None
    return_scores: bool | None = None

    @model_validator(mode="after")
    def _documents(self) -> Rerank:
        if len(self.documents) != len(self.queries):
            raise ValueError("documents is a list of documents for each query")
        return self

    def pairs(self) -> list[tuple[str, list[Document]]]:
        """Each query with its documents."""
        return [
            (query, [d.document() for d in some])
            for query, some in zip(self.queries, self.documents, strict=True)
        ]

    def reply(self, scores: Sequence[Sequence[float]]) -> dict[str, Any]:
        """The body of the answer; ties stay in the order in which they came."""
        result: list[list[Any]] = []
        for documents, values in zip(self.documents, scores, strict=True):
            order = sorted(range(len(documents)), key=lambda i: -values[i])[
                : self.rerank_topk or RERANKED
            ]
            items = [(documents[i].plain(), values[i]) for i in order]
            result.append(
                [{"document": d, "score": s} if self.return_scores else d for d, s in items]
            )
        return {"result": result}


F = TypeVar("F", bound=Form)
FORMS: dict[str, type[Form]] = {
    "/retrieve": Retrieve,
    "/search": SearchRequest,
    "/batch_search": BatchSearch,
    "/rerank": Rerank,
}


def read(form: type[F], body: bytes) -> F:
    """What a body says. `RefusedRequest` 400 when it is not JSON, 422 when it is not of this form."""
    try:
        found = orjson.loads(body)
    except ValueError:
        # what the standard library takes beyond JSON (NaN, lone surrogates) is refused field by
        # field
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(400, "the body is not JSON") from error
    try:
        return form.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise RefusedRequest(
            422, f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"
        ) from error


def needs(reranks: bool) -> None:
    """`RefusedRequest` without a cross-encoder."""
    if not reranks:
        raise RefusedRequest(501, "no reranker is loaded: start the server with --reranker FOLDER")


def without_scores(found: Sequence[Sequence[Document]]) -> list[list[dict[str, Any]]]:
    """The documents alone: {id, contents}."""
    return [[{"id": d.id, "contents": d.contents} for d in some] for some in found]
