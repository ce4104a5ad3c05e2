"""Search sources: named corpora in this process, and a server that misbehaves in every way."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from ssp.episode import Document
from ssp.errors import Fault, InputError, InvariantError
from ssp.search import HttpSearch, LocalSearch, build, source

CORPUS = [Document(str(i), f'"e{i}"\ne{i} a city . e{i} near e{(i + 1) % 7} .') for i in range(7)]
ITEM = {"document": {"id": "1", "contents": "x"}, "score": 1.5}


def server(*replies, seen=None, tries=3, **options):
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

    return HttpSearch("http://h:1", tries=tries, backoff=0.0, transport=httpx.MockTransport(answer), **options)


def good(body):
    return {"result": [[ITEM] for _ in body["queries"]]}


def test_local_search_names_corpora():
    whole = build(CORPUS)
    search = LocalSearch({"train": [whole.shard(i, 3) for i in (2, 0, 1)], "other": [build(CORPUS[:2])]})
    assert search.search(["e3", "e0"], 2, "train") == LocalSearch({"x": [whole]}).search(["e3", "e0"], 2, "x")
    assert search.search(["e3", "e0"], 2, "train")[0][0].score > 0
    assert [d.id for d in search.search(["e1"], 3, "other")[0]] == ["1", "0"]
    assert search.search(["e3", "e0"], 2, "none") == [[], []]
    assert search.search([], 2, "train") == []
    with pytest.raises(InputError, match="train"):
        search.search(["a"], 1, "heldout")
    with pytest.raises(InputError):
        LocalSearch({"none": [whole]})


def test_incomplete_shards_are_refused():
    whole = build(CORPUS)
    cut = [whole.shard(i, 3) for i in range(3)]
    for shards in ([], cut[:2], cut[1:], [cut[0], cut[0], *cut], [whole, build(CORPUS[:1])], [cut[0], cut[2]]):
        with pytest.raises(InvariantError):
            LocalSearch({"c": shards})
    many = [whole.shard(i, 20) for i in range(20)]
    assert LocalSearch({"c": many}).search(["e2"], 2, "c") == LocalSearch({"c": cut}).search(["e2"], 2, "c")


def test_the_request_is_the_contract_and_large_batches_are_cut(monkeypatch):
    monkeypatch.setattr(source, "BATCH", 2)
    seen = []
    assert server(good, seen=seen).search(["a", "b", "c"], 4, "train") == [[Document("1", "x", 1.5)]] * 3
    assert seen[0] == {"queries": ["a", "b"], "topk": 4, "return_scores": True}
    assert len(seen) == 2


def test_none_and_unknown_corpora_ask_nobody():
    seen = []
    search = server(good, seen=seen, corpora=["train"])
    assert search.search(["a"], 1, "none") == [[]]
    with pytest.raises(InputError):
        search.search(["a"], 1, "heldout")
    assert seen == []


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
    assert (caught.value.cause, len(seen)) == ("retriever_down", 3)


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


def test_documents_without_id_and_surplus_documents():
    bare = {"document": {"contents": "x", "title": "t"}, "score": 2}
    first, second = server({"result": [[bare, bare, bare]]}).search(["a"], 2, "train")[0]
    assert first == second and len(first.id) == 16 and first.score == 2.0


def test_a_dripping_server_meets_the_deadline():
    def drip():
        while True:
            time.sleep(0.02)
            yield b" "

    search = server(lambda _: httpx.Response(200, content=drip()), tries=2, timeout=0.1)
    started = time.monotonic()
    with pytest.raises(Fault, match="retriever_down"):
        search.search(["a"], 1, "train")
    assert time.monotonic() - started < 2


def test_addresses():
    assert HttpSearch("http://h:1/").url == HttpSearch("http://h:1/retrieve").url == "http://h:1/retrieve"
    for url in ("", "h:1", "ftp://h", "http://", "http://h:x", "\x00"):
        with pytest.raises(InputError):
            HttpSearch(url)
    search = HttpSearch("http://127.0.0.1:1", tries=1, timeout=2.0)
    with pytest.raises(Fault, match="retriever_down"):
        search.search(["a"], 1, "train")
    search.close()
