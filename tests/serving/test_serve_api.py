"""The HTTP contract of `ssp serve`, over a real loopback socket: what stock clients send, and what they get."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from searchserver import DOCUMENTS, Down, LongestFirst, create_app, get, post, running, tiny

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError
from ssp.search.hits import Answers, Hits, Knobs
from ssp.search.router import Corpus, LocalFleet, Options, Router
from ssp.search.serving.api import CORPUS, LOADING, SearchApi, Served
from ssp.search.serving.forms import MAX_BODY, MAX_DOCUMENTS, MAX_QUERIES, MAX_QUERY
from ssp.search.shard import in_memory
from ssp.search.source import HttpSearch


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(create_app(tiny(), 2, {"documents": 3})) as base:
        yield base


@pytest.fixture(scope="module")
def reranking() -> Iterator[str]:
    with running(create_app(tiny(reranker=LongestFirst()), 3)) as base:
        yield base


def plain(i: int) -> dict[str, str]:
    return {"id": DOCUMENTS[i].id, "contents": DOCUMENTS[i].contents}


@pytest.mark.covers("SR-40")
def test_the_stock_request(address: str) -> None:
    """Search-R1's trainer and its infer script, and SSP's search tool, send these three fields and read the result so."""
    reply = post(address, json={"queries": ["pota", "東京", "unknown"], "topk": 3, "return_scores": True})
    assert reply.status_code == 200 and reply.headers["content-type"] == "application/json"
    result = reply.json()["result"]
    assert [[item["document"]["id"] for item in found] for found in result] == [["pota", "bino"], ["bino"], []]
    assert result[0][0]["document"]["contents"].split("\n")[0] == '"pota"'
    assert result[0][0]["document"] == plain(0) and set(result[0][0]) == {"document", "score"}
    assert result[0][0]["score"] > result[0][1]["score"] > 0
    assert set(reply.json()) == {"result"} and "x-coverage" not in reply.headers, "nothing else when all was searched"
    timed = post(address, json={"queries": ["pota"], "timings": True}).json()
    assert {"wait", "search", "total"} <= set(timed["timings"]) and timed["timings"]["total"] > 0


@pytest.mark.covers("SR-40")
def test_without_scores_the_items_are_the_documents(address: str) -> None:
    for body in ({"queries": ["a"]}, {"queries": ["a"], "topk": None, "return_scores": False, "other": 1}):
        assert post(address, json=body).json() == {"result": [[plain(0), plain(1)]]}, "topk is the server's: 2"
    reply = post(address, json={"queries": []})
    assert (reply.status_code, reply.json()) == (200, {"result": []})


@pytest.mark.parametrize(
    ("content", "status", "word"),
    [
        (b"", 400, "JSON"),
        (b"{", 400, "JSON"),
        (b'{"queries": ["\xff"]}', 400, "JSON"),
        (b"[" * 100_000, 400, "JSON"),
        (b'{"queries": [' + b"1" * 5000 + b"]}", 400, "JSON"),
        (b"[]", 422, "body"),
        (b"null", 422, "body"),
        (b"{}", 422, "queries"),
        (b'{"queries": null}', 422, "queries"),
        (b'{"queries": "pota"}', 422, "queries"),
        (b'{"queries": [3]}', 422, "queries.0"),
        (b'{"queries": ["a", null]}', 422, "queries.1"),
        (b'{"queries": ["\\ud800"]}', 422, "queries.0"),
        (b'{"queries": ["a"], "topk": 0}', 422, "topk"),
        (b'{"queries": ["a"], "topk": true}', 422, "topk"),
        (b'{"queries": ["a"], "topk": 1000000}', 422, "topk"),
        (b'{"queries": ["a"], "topk": 99999999999999999999999}', 422, "topk"),
        (b'{"queries": ["a"], "topk": "3"}', 422, "topk"),
        (b'{"queries": ["a"], "topk": NaN}', 422, "topk"),
        (b'{"queries": ["a"], "return_scores": "yes"}', 422, "return_scores"),
        (b'{"queries": ["a"], "kind": "dense"}', 422, "kind"),
        (b'{"queries": ["a"], "kind": 3}', 422, "kind"),
        (b'{"queries": ["a"], "kind": []}', 422, "kind"),
        (b'{"queries": ["a"], "ef_search": -1}', 422, "ef_search"),
        (b'{"queries": ["a"], "nprobe": 1.5}', 422, "nprobe"),
        (b'{"queries": ["a"], "timings": 1}', 422, "timings"),
        (json.dumps({"queries": ["a" * (MAX_QUERY + 1)]}).encode(), 422, "queries.0"),
        (json.dumps({"queries": ["a"] * (MAX_QUERIES + 1)}).encode(), 422, "queries"),
        (json.dumps({"queries": ["a"] * (MAX_DOCUMENTS // 500), "topk": 501}).encode(), 422, "topk"),
        (b" " * (MAX_BODY + 1), 413, "bytes"),
    ],
)
def test_a_bad_body_is_told_why(address: str, content: bytes, status: int, word: str) -> None:
    reply = post(address, content=content)
    assert (reply.status_code, word in reply.json()["detail"]) == (status, True), reply.text


def test_http_search_equals_local_search_over_a_real_server(address: str) -> None:
    here, remote = tiny(shards=1), HttpSearch(address)
    asked = ["pota", "city person", "unknown", "", "\ud800", "x" * (MAX_QUERY + 1), "東京"]
    assert remote.search(asked, 2, "train") == here.search(asked, 2, "train")
    remote.close()


def test_knobs_and_kind_reach_the_index_and_other_requests_do_not_get_them() -> None:
    seen: list[Options | None] = []

    class Watched:
        corpora = {CORPUS: Corpus("x", LocalFleet(in_memory(DOCUMENTS)), Options("hybrid", Knobs(64, 2)))}

        def search(self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None) -> Answers:
            seen.append(options)
            return Answers([[] for _ in queries])

    with running(create_app(Watched(), 3)) as base:
        for extra in ({}, {"kind": "dense", "ef_search": 300}, {"kind": "bm25", "nprobe": 9}):
            assert post(base, json={"queries": ["a"], **extra}).status_code == 200
    wanted = [Options("hybrid", Knobs(64, 2)), Options("dense", Knobs(300, 2)), Options("bm25", Knobs(64, 9))]
    assert seen == wanted


def test_a_knob_that_the_index_has_not_is_refused() -> None:
    class Flat:
        def search(self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None) -> Answers:
            if (options or Options()).knobs.ef_search:
                raise InputError("a request sets knobs that the index has", "ef_search=9", "leave it at 0")
            return Answers([[] for _ in queries])

    with running(create_app(Flat(), 3)) as base:
        reply = post(base, json={"queries": ["a"], "ef_search": 9})
        assert reply.status_code == 422 and "ef_search=9" in reply.json()["detail"]
        assert post(base, json={"queries": ["a"]}).status_code == 200


@pytest.mark.covers("SR-46")
def test_rerank_orders_each_querys_own_documents(reranking: str) -> None:
    documents = [[plain(0), {"document": plain(2), "score": 0.25}], [{"contents": "short"}, {"id": 7, "contents": "s"}]]
    body = {"queries": ["q", "r"], "documents": documents, "rerank_topk": 3, "return_scores": True}
    result = post(reranking, "/rerank", json=body).json()["result"]
    assert [item["document"] for item in result[0]] == [plain(2), plain(0)]
    assert [item["document"] for item in result[1]] == [{"contents": "short"}, {"id": "7", "contents": "s"}]
    assert result[0][0]["score"] == float(len(DOCUMENTS[2].contents)) and set(result[0][0]) == {"document", "score"}
    best = post(reranking, "/rerank", json={**body, "rerank_topk": 1, "return_scores": False}).json()["result"]
    assert best == [[plain(2)], [{"contents": "short"}]]
    alone = [
        post(reranking, "/rerank", json={**body, "queries": [q], "documents": [d]}).json()["result"][0]
        for q, d in zip(body["queries"], documents, strict=True)
    ]
    assert alone == result, "in one batch as each alone"
    assert post(reranking, "/rerank", json={"queries": [], "documents": []}).json() == {"result": []}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"documents": []}, "documents"),
        ({"documents": [3]}, "documents"),
        ({"documents": [[3]]}, "documents.0.0"),
        ({"documents": [[{"id": "a"}]]}, "documents.0.0"),
        ({"documents": [[{"document": "text"}]]}, "documents.0.0"),
        ({"documents": [[{"id": [], "contents": "a"}]]}, "documents.0.0.id"),
        ({"documents": [[{"contents": "\ud800"}]]}, "documents.0.0.contents"),
        ({"documents": [[{"id": "\ud800", "contents": "a"}]]}, "documents.0.0.id"),
        ({"rerank_topk": 0}, "rerank_topk"),
        ({"queries": "q"}, "queries"),
    ],
)
def test_a_bad_rerank_body_is_told_why(reranking: str, change: dict[str, Any], word: str) -> None:
    body = {"queries": ["q"], "documents": [[{"contents": "a"}]], **change}
    reply = post(reranking, "/rerank", content=json.dumps(body).encode())
    assert reply.status_code == 422 and word in reply.json()["detail"], reply.text


@pytest.mark.covers("SR-46")
def test_search_r1s_reranking_server_is_spoken_too(reranking: str) -> None:
    """Its body; documents are those of /retrieve, where the original sends the bare text."""
    body = {"queries": ["pota", "mayor"], "topk_retrieval": 10, "topk_rerank": 1, "return_scores": True}
    result = post(reranking, json=body).json()["result"]
    assert [[item["document"]["id"] for item in found] for found in result] == [["bino"], ["vure"]]
    few = post(reranking, json={**body, "topk_retrieval": 1, "topk_rerank": 3}).json()["result"]
    assert [item["document"]["id"] for item in few[0]] == ["pota"], "only what was retrieved is reranked"


def test_without_a_reranker_it_says_so(address: str) -> None:
    for path, body in (
        ("/rerank", {"queries": [], "documents": []}),
        ("/retrieve", {"queries": ["a"], "topk_retrieval": 10, "topk_rerank": 3}),
    ):
        reply = post(address, path, json=body)
        assert (reply.status_code, "--reranker" in reply.json()["detail"]) == (501, True)


def test_a_fault_is_a_503_and_a_fault_again_at_the_client() -> None:
    with running(create_app(Down(), 3)) as base:
        reply = post(base, json={"queries": ["a"]})
        assert (reply.status_code, reply.json()["detail"]) == (503, "retriever_down: shard 1")
        assert (reply.json()["cause"], int(reply.headers["retry-after"]) > 0) == ("retriever_down", True)
        assert post(base, "/search", json={"query": "a"}).status_code == 503
        client = HttpSearch(base)
        client._service._tries = 1
        with pytest.raises(Fault, match="retriever_down"):
            client.search(["a"], 3, "train")
        client.close()
        assert get(base, "/status").json()["faults"] == 3
        assert 'ssp_faults_total{cause="retriever_down"} 3.0' in get(base, "/metrics").text


class Half(LocalFleet):
    def search(self, *args: Any) -> tuple[dict[int, list[Hits]], dict[int, Document]]:
        replies, documents = super().search(*args)
        return {0: replies[0]}, documents


def half() -> SearchApi:
    corpus = Corpus("x", Half(in_memory(DOCUMENTS, shards=2)))
    states = [{"first": 0, "rows": 1, "state": "up"}, {"first": 1, "rows": 2, "state": "down"}]
    app = SearchApi(3)
    app.open(Served(Router({CORPUS: corpus}), shards=lambda: states))
    return app


@pytest.mark.covers("SR-40")
def test_an_answer_is_of_the_whole_corpus() -> None:
    with running(half()) as base:
        reply = post(base, json={"queries": ["pota"]})
        assert (reply.status_code, reply.json()["cause"]) == (503, "retriever_partial")
        assert get(base, "/readyz").status_code == 503
        assert "ssp_coverage 0.333" in get(base, "/metrics").text
        assert get(base, "/status").json()["shards"][1]["state"] == "down"


@pytest.mark.covers("U12")
def test_it_is_live_before_it_is_ready() -> None:
    app = SearchApi(3)
    with running(app) as base:
        assert get(base, "/health").json() == get(base, "/healthz").json() == {"status": "ok"}
        assert (get(base, "/readyz").status_code, get(base, "/status").json()["state"]) == (503, "loading")
        assert post(base, json={"queries": ["a"]}).json()["cause"] == LOADING
        app.open(Served(tiny()))
        assert (get(base, "/readyz").status_code, get(base, "/status").json()["state"]) == (200, "serving")
        assert post(base, json={"queries": ["a"]}).status_code == 200


def test_a_late_answer_is_a_fault_and_others_go_on() -> None:
    gate = threading.Event()

    class Slow:
        def search(self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None) -> Answers:
            assert "slow" not in queries or gate.wait(20)
            return Answers([[] for _ in queries])

    with running(create_app(Slow(), 3, timeout=1.0, workers=2)) as base:
        late = post(base, json={"queries": ["slow"]})
        assert (late.status_code, late.json()["cause"]) == (503, "retriever_down")
        assert post(base, json={"queries": ["fast"]}).status_code == 200
        gate.set()


def test_concurrent_requests_are_merged_and_their_ways_never_mixed() -> None:
    calls: list[tuple[int, list[str]]] = []
    gate, entered = threading.Event(), threading.Event()

    class Watched:
        def search(self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None) -> Answers:
            calls.append((k, list(queries)))
            entered.set()
            assert gate.wait(20)
            return tiny().search(queries, k, corpus, options)

    app = create_app(Watched(), 3)
    with running(app) as base, ThreadPoolExecutor(40) as pool:
        first = pool.submit(post, base, json={"queries": ["first"]})
        assert entered.wait(20)
        words = [d.id for d in DOCUMENTS] * 12
        replies = [pool.submit(post, base, json={"queries": [w], "topk": 1 + i % 2}) for i, w in enumerate(words)]
        while app.status()["waiting"] < len(words):
            assert not any(reply.done() for reply in replies)
        gate.set()
        for i, (word, reply) in enumerate(zip(words, replies, strict=True)):
            found = reply.result(20).json()["result"][0]
            assert found[0]["id"] == word and len(found) == 1 + i % 2
        assert first.result(20).status_code == 200
    assert sorted((k, len(queries)) for k, queries in calls) == [(1, 18), (2, 18), (3, 1)]


def test_status_and_metrics_count(address: str) -> None:
    def total(text: str, name: str) -> float:
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.M))

    before, metrics = get(address, "/status").json(), get(address, "/metrics").text
    post(address, json={"queries": ["a", "metrics"]})
    post(address, json={"queries": ["a", "metrics"]})
    post(address, content=b"{")
    after, later = get(address, "/status").json(), get(address, "/metrics")
    assert (after["documents"], after["topk"], after["state"]) == (3, 2, "serving")
    assert [after[n] - before[n] for n in ("requests", "queries", "refused", "faults")] == [3, 4, 1, 0]
    assert later.headers["content-type"].startswith("text/plain")
    grown = {
        name: total(later.text, name) - total(metrics, name)
        for name in ("ssp_requests_total", "ssp_queries_total", "ssp_cache_hits_total", "ssp_request_seconds_count")
    }
    hits = grown.pop("ssp_cache_hits_total")
    assert grown == {"ssp_requests_total": 3, "ssp_queries_total": 4, "ssp_request_seconds_count": 3} and hits >= 2
    assert total(later.text, 'ssp_stage_seconds_total{stage="search"}') > 0 and "ssp_waiting_queries 0.0" in later.text
