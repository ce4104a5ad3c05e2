"""A search server that misbehaves in every way, and several servers that hold one part of the corpus each."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from ssp.base import services
from ssp.base.episode import Document
from ssp.base.errors import Fault
from ssp.base.services import Service
from ssp.search import source
from ssp.search.router import DOWN
from ssp.search.source import SCHEMA, Elsewhere, HttpSearch

DOC, OTHER = {"id": "1", "contents": "x"}, {"id": "2", "contents": "y"}
ITEM = {"document": DOC, "score": 1.5}


def server(*replies, seen=None, url="http://h:1", **options):
    """HttpSearch whose server gives these replies in turn (the last one for ever): a Response, an exception or a dict."""
    seen = [] if seen is None else seen

    def answer(request):
        reply = replies[min(len(seen), len(replies) - 1)]
        seen.append(json.loads(request.content))
        if callable(reply):
            reply = reply(seen[-1])
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, httpx.Response) else httpx.Response(200, content=json.dumps(reply))

    search = HttpSearch(url, transport=httpx.MockTransport(answer), **options)
    search._service._backoff = 0.0
    return search


def good(body):
    return {"result": [[ITEM] for _ in body["queries"]]}


def test_the_request_is_the_contract_and_large_batches_are_cut(monkeypatch):
    monkeypatch.setattr(source, "BATCH", 2)
    seen = []
    assert server(good, seen=seen).search(["a", "b", "c"], 4, "train") == [[Document("1", "x", 1.5)]] * 3
    assert seen[0] == {"queries": ["a", "b"], "topk": 4, "return_scores": True}
    assert len(seen) == 2


def test_a_server_stands_for_its_corpora_and_nobody_is_asked_in_none():
    there, here = [], []
    search = Elsewhere(server(good, seen=there), ("train", "file.jsonl"), server(good, seen=here))
    assert search.search(["a"], 1, "none") == [[]]
    assert (there, here) == ([], [])
    search.search(["a"], 1, "train"), search.search(["b"], 1, "file.jsonl"), search.search(["c"], 1, "heldout")
    assert ([body["queries"] for body in there], [body["queries"] for body in here]) == ([["a"], ["b"]], [["c"]])


TROUBLE = [
    httpx.Response(500),
    httpx.Response(429),
    httpx.ConnectError("no"),
    httpx.ReadTimeout("slow"),
    httpx.Response(503, headers={"retry-after": "0"}),
]


@pytest.mark.parametrize("trouble", TROUBLE)
def test_trouble_is_retried_and_then_a_fault(trouble):
    assert server(trouble, trouble, good).search(["a"], 1, "train") == [[Document("1", "x", 1.5)]]
    seen = []
    with pytest.raises(Fault) as caught:
        server(trouble, seen=seen).search(["a"], 1, "train")
    assert (caught.value.cause, len(seen)) == ("retriever_down", services.TRIES)


@pytest.mark.parametrize(
    "reply",
    [
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, content=b"[" * 100_000),
        httpx.Response(200, content=b"\xff\xfe\xfd"),
        httpx.Response(302, headers={"location": "/other"}),
        httpx.Response(401),
        httpx.Response(404),
        httpx.Response(422),
        [],
        {},
        {"result": []},
        {"result": [[], []]},
        {"result": [{}]},
        {"result": [[{"id": "1", "contents": "x"}]]},
        {"result": [[{"document": {"id": "1"}, "score": 1.0}]]},
        {"result": [[{"document": 7, "score": 1.0}]]},
        {"result": [[{"document": {"contents": "y"}}, ITEM]]},
        {"result": [[{"text": "x"}]]},
        {"result": [[{**ITEM, "score": "high"}]]},
        {"result": [[{**ITEM, "score": None}]]},
        {"result": [[{**ITEM, "score": True}]]},
        httpx.Response(200, content=json.dumps({"result": [[{**ITEM, "score": float("nan")}]]}).encode()),
        {"result": [[{**ITEM, "score": 10**400}]]},
        {"result": [[{"document": {"id": ["1"], "contents": "x"}, "score": 1.0}]]},
        {"result": [[{"document": {"id": "1", "contents": "\ud800"}, "score": 1.0}]]},
    ],
)
def test_anything_but_the_contract_is_a_schema_fault_at_once(reply):
    seen = []
    with pytest.raises(Fault) as caught:
        server(reply, seen=seen).search(["a"], 1, "train")
    assert caught.value.cause == "retriever_schema"
    assert len(seen) <= 2  # the query, and the probe after a 422


def test_a_refused_query_finds_nothing_and_spares_its_neighbours():
    def picky(body):
        return httpx.Response(422) if "bad" in body["queries"] else good(body)

    for asked in (["a", "bad", "b"], ["bad"]):
        found = server(picky).search(asked, 1, "train")
        assert [len(documents) for documents in found] == [0 if query == "bad" else 1 for query in asked]


def test_documents_that_are_plain_text():
    """As Search-R1's reranking server gives them."""
    items = [{"document": '"T"\ntext', "score": 2.0}, {"document": "other", "score": -1.0}]
    first, second = server({"result": [items]}).search(["a"], 2, "train")[0]
    assert (first.contents, first.score, second.contents, second.score) == ('"T"\ntext', 2.0, "other", -1.0)
    assert len(first.id) == 16 and first.id != second.id


def test_documents_without_scores_count_in_their_order():
    """As Search-R1's servers over engines of the web give them: more than asked for, and no ids."""
    items = [{"document": {"contents": f"d{i}"}} for i in range(4)]
    found = server({"result": [items, [], [{"document": "text"}]]}).search(["a", "b", "c"], 3, "train")
    assert [[(d.contents, d.score) for d in some] for some in found] == [
        [("d0", 1.0), ("d1", 1 / 2), ("d2", 1 / 3)],
        [],
        [("text", 1.0)],
    ]


@pytest.mark.parametrize(
    ("path", "body", "reply"),
    [
        ("batch_search", {"query": ["a", "b"], "top_n": 2, "return_score": True}, [[[DOC, OTHER], [DOC]], [[2.0, 1.0], [3.0]]]),
        ("queries", {"queries": ["a", "b"], "k": 2}, {"queries": ["a", "b"], "answers": [["x", "y"], ["x"]]}),
        ("retrieve", {"queries": ["a", "b"], "topk": 2, "return_scores": True}, {"result": [[DOC, OTHER], [DOC]]}),
    ],
)  # fmt: skip
def test_the_path_of_an_address_says_the_form(path, body, reply):
    seen = []
    if path == "retrieve":
        reply = {"result": [[{"document": document} for document in one] for one in reply["result"]]}
    found = server(reply, seen=seen, url=f"http://h:1/{path}").search(["a", "b"], 2, "train")
    assert seen == [body]
    assert [[document.contents for document in one] for one in found] == [["x", "y"], ["x"]]
    assert [document.score for document in found[0]] == ([2.0, 1.0] if path == "batch_search" else [1.0, 0.5])


@pytest.mark.parametrize("scored", [True, False])
def test_a_server_of_one_query_is_asked_one_by_one(scored):
    """FlashRAG's /search, and ReCall's, which gives no scores."""
    seen = []

    def reply(body):
        documents = [] if body["query"] == "b" else [DOC, OTHER]
        return [documents, [2.0, 1.0][: len(documents)]] if scored else documents

    found = server(reply, seen=seen, url="http://h:1/search").search(["a", "b"], 2, "train")
    assert [body["query"] for body in seen] == ["a", "b"] and seen[0]["top_n"] == 2
    assert [[(document.id, document.score) for document in one] for one in found] == [
        [("1", 2.0 if scored else 1.0), ("2", 1.0 if scored else 0.5)],
        [],
    ]


@pytest.mark.parametrize("path", ["search", "batch_search", "queries"])
@pytest.mark.parametrize("reply", [{}, [], [1], [[1], [2]], [[[DOC]], [[]]], {"answers": [1]}, {"answers": []}, "x"])
def test_a_reply_of_another_form_is_a_schema_fault(path, reply):
    if (path, reply) == ("search", []):
        return
    with pytest.raises(Fault, match="retriever_schema"):
        server(reply, url=f"http://h:1/{path}").search(["a"], 1, "train")


def test_a_dripping_server_meets_the_deadline():
    def drip():
        while True:
            time.sleep(0.02)
            yield b" "

    search = server(lambda _: httpx.Response(200, content=drip()), timeout=0.1)
    with pytest.raises(Fault, match="retriever_down"):
        search.search(["a"], 1, "train")


def test_addresses():
    assert HttpSearch("http://h:1/").url == HttpSearch("http://h:1/retrieve").url == "http://h:1/retrieve"
    search = HttpSearch("http://127.0.0.1:1", timeout=2.0)
    with pytest.raises(Fault, match="retriever_down"):
        search.search(["a"], 1, "train")
    search.close()


def test_an_answer_of_a_part_of_the_corpus_is_void():
    with pytest.raises(Fault, match="retriever_partial"):
        server(lambda body: {**good(body), "coverage": 0.5}).search(["a"], 1, "train")


@pytest.mark.parametrize(("header", "pause"), [("0.5", 0.5), ("1e9", 5.0), ("", 0.25)])
def test_pauses_are_those_asked_for_within_bounds(monkeypatch, header, pause):
    slept = []
    monkeypatch.setattr(services.time, "sleep", slept.append)
    busy = httpx.MockTransport(lambda request: httpx.Response(429, headers={"retry-after": header}))
    with pytest.raises(Fault, match="2 tries"):
        Service((DOWN, SCHEMA), 1.0, tries=2, backoff=0.25, transport=busy).ask("GET", "http://h")
    assert slept == [pause]
