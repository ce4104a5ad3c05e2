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
RETRIEVED, RERANKED = 10, 3
"""Candidates and documents of a reranked search whose client names no number."""
TOP_N = 10
"""Documents that FlashRAG's clients get when they name no number."""

Query = Annotated[str, Field(max_length=MAX_QUERY)]
Queries = Annotated[list[Query], Field(max_length=MAX_QUERIES, fail_fast=True)]
Text = Annotated[str, Field(max_length=MAX_BODY)]
"""It has a bound because pydantic looks only at what has one: it may not be Unicode."""
Top = Annotated[int, Field(ge=1, le=MAX_TOPK)] | None
Knob = Annotated[int, Field(ge=1, le=MAX_KNOB)] | None

Answered = Sequence[Sequence[Document]]
"""Documents of each query, best first."""


class RefusedRequest(Exception):
    """A request that is not answered, with the HTTP status and the reason."""

    def __init__(self, status: int, detail: str) -> None:
        self.status, self.detail = status, detail
        super().__init__(status, detail)


@dataclass(frozen=True)
class SearchQuestion:
    """What a body asks: at most `k` documents for each of `queries`, searched as `options` say.
    `render` makes the reply's form of the answers."""

    queries: list[str]
    k: int
    options: Options
    render: Callable[[Answered], Any]
    timings: bool | None = False

    def __post_init__(self) -> None:
        k = max(self.k, self.options.rerank)
        count = len(self.queries)
        if count * k > MAX_DOCUMENTS:
            many = f"{count} queries times {k} are above {MAX_DOCUMENTS} documents"
            raise RefusedRequest(422, f"topk: {many}")


class Form(BaseModel, strict=True):
    """A body. What the type of a field does not take is refused; a field that is not known is left
    out."""


class Asking(Form):
    """A body that asks for documents, perhaps in another way than the server's default."""

    kind: str | None = None
    ef_search: Knob = None
    nprobe: Knob = None

    def options(self, default: Options) -> Options:
        """How this request is searched. `RefusedRequest` for a kind that the server does not hold."""
        if self.kind is self.ef_search is self.nprobe is None:
            return default
        held = KINDS if default.kind == HYBRID else (default.kind,)
        if self.kind is not None and self.kind not in held:
            allowed = " or ".join(held)
            raise RefusedRequest(422, f"kind: Input should be {allowed}, which this server holds")
        ef_search = self.ef_search or default.knobs.ef_search
        nprobe = self.nprobe or default.knobs.nprobe
        return replace(default, kind=self.kind or default.kind, knobs=Knobs(ef_search, nprobe))


class Retrieve(Asking):
    """POST /retrieve as Search-R1 sends it; with `topk_retrieval` or `topk_rerank` as its reranking
    server takes it."""

    queries: Queries
    topk: Top = None
    topk_retrieval: Top = None
    topk_rerank: Top = None
    return_scores: bool | None = None
    timings: bool | None = None

    def question(self, topk: int, default: Options, reranks: bool) -> SearchQuestion:
        """What is asked. `topk`: documents a query when the body names no number. `reranks`:
        whether a cross-encoder is loaded."""
        k = self.topk or topk
        options = self.options(default)
        if self.topk_retrieval or self.topk_rerank:
            candidates = self.topk_retrieval or RETRIEVED
            k = min(self.topk_rerank or RERANKED, candidates)
            needs(reranks)
            options = replace(options, rerank=candidates)

        def render(answers: Answered) -> Any:
            result: list[Any] = []
            for documents in answers:
                plain = _plain(documents)
                if self.return_scores:
                    scored = zip(plain, documents, strict=True)
                    plain = [{"document": item, "score": d.score} for item, d in scored]
                result.append(plain)
            return {"result": result}

        return SearchQuestion(self.queries, k, options, render, self.timings)


class BatchSearch(Asking):
    """POST /batch_search as FlashRAG sends it. The reply is a list of documents a query; with
    scores a pair: these lists, and the lists of their scores."""

    query: Queries
    top_n: Top = None
    return_score: bool | None = None

    def question(self, topk: int, default: Options, reranks: bool) -> SearchQuestion:
        """See `Retrieve.question`; FlashRAG's clients have a default of their own."""
        queries = self.query if isinstance(self.query, list) else [self.query]
        single = queries is not self.query

        def render(answers: Answered) -> Any:
            documents: list[Any] = [_plain(answer) for answer in answers]
            scores: list[Any] = [[d.score for d in answer] for answer in answers]
            if single:
                documents, scores = documents[0], scores[0]
            return [documents, scores] if self.return_score else documents

        return SearchQuestion(queries, self.top_n or TOP_N, self.options(default), render)


class SearchRequest(BatchSearch):
    """POST /search as FlashRAG sends it, for one query."""

    query: Query  # type: ignore[assignment]


class Given(Form):
    """A document that a client sends: {id, contents}, or one item of a reply with scores."""

    id: Text | int | None = None
    contents: Text

    @model_validator(mode="before")
    @classmethod
    def _inner(cls, item: Any) -> Any:
        return item.get("document", item) if isinstance(item, dict) else item

    def document(self) -> Document:
        """The document, with the id "" where none came."""
        return Document("" if self.id is None else str(self.id), self.contents)

    def plain(self) -> dict[str, str]:
        """The document as it goes back: without an id where none came."""
        if self.id is None:
            return {"contents": self.contents}
        return {"id": str(self.id), "contents": self.contents}


class Rerank(Form):
    """POST /rerank as Search-R1 sends it: order `documents[i]` by `queries[i]`, and keep the
    best."""

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
        pairs = []
        for query, documents in zip(self.queries, self.documents, strict=True):
            pairs.append((query, [document.document() for document in documents]))
        return pairs

    def reply(self, scores: Sequence[Sequence[float]]) -> dict[str, Any]:
        """The body of the answer; ties stay in the order in which they came."""
        most = self.rerank_topk or RERANKED
        result: list[list[Any]] = []
        for documents, values in zip(self.documents, scores, strict=True):
            scored = sorted(zip(documents, values, strict=True), key=lambda pair: -pair[1])
            items: list[Any] = []
            for document, score in scored[:most]:
                plain = document.plain()
                items.append({"document": plain, "score": score} if self.return_scores else plain)
            result.append(items)
        return {"result": result}


class Access(Form):
    """POST /access as ASearcher sends it: documents by their URLs, or their ids."""

    urls: Queries

    def reply(self, documents: Sequence[Document | None]) -> dict[str, Any]:
        """The body of the answer: each document, or null."""
        return {"result": [document and _item(document) for document in documents]}


F = TypeVar("F", bound=Form)
FORMS: dict[str, type[Form]] = {
    "/retrieve": Retrieve,
    "/search": SearchRequest,
    "/batch_search": BatchSearch,
    "/rerank": Rerank,
    "/access": Access,
}


def read(form: type[F], body: bytes) -> F:
    """What a body says. `RefusedRequest` 400 when it is not JSON, 422 when it is not of this form."""
    try:
        content = orjson.loads(body)
    except ValueError:
        # what the standard library takes beyond JSON (NaN, lone surrogates) is refused field by
        # field
        try:
            content = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(400, "the body is not JSON") from error
    try:
        return form.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        raise RefusedRequest(422, f"{place}: {first['msg']}") from error


def needs(reranks: bool) -> None:
    """`RefusedRequest` without a cross-encoder."""
    if not reranks:
        raise RefusedRequest(501, "no reranker is loaded: start the server with --reranker FOLDER")


def names(named: bool) -> None:
    """`RefusedRequest` where documents are not `named`."""
    if not named:
        told = "this index does not name its documents: build it again with ssp index"
        raise RefusedRequest(501, told)


def _plain(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """The documents without their scores."""
    return [_item(document) for document in documents]


def _item(document: Document) -> dict[str, Any]:
    item = {"id": document.id, "contents": document.contents}
    if document.url:
        item["url"] = document.url
    if document.heading:
        item["title"] = document.heading
    return item
