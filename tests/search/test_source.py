"""A search server that misbehaves in every way, and several servers that hold one part of the corpus each."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import numpy as np
import pytest

from ssp.base import services
from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError
from ssp.base.services import Service, asked_pause
from ssp.search import HttpSearch, source
from ssp.search.router import DOWN
from ssp.search.source import SCHEMA, Elsewhere, RemoteShards, remote

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


def test_the_request_is_the_contract_and_large_batches_are_cut(monkeypatch):
    monkeypatch.setattr(source, "BATCH", 2)
    seen = []
    assert server(good, seen=seen).search(["a", "b", "c"], 4, "train") == [[Document("1", "x", 1.5)]] * 3
    assert seen[0] == {"queries": ["a", "b"], "topk": 4, "return_scores": True}
    assert len(seen) == 2


def test_a_server_stands_for_its_corpora_and_nobody_is_asked_in_none():
    there, here = [], []
    search = Elsewhere(server(good, seen=there), ("train", "file.jsonl"), server(good, seen=here))
    assert search.search(["a"], 1, "none") == server(good, seen=there).search(["a"], 1, "none") == [[]]
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
        {"result": [[{"document": 7, "score": 1.0}]]},
        {"result": [[{"document": {"contents": "y"}}, ITEM]]},
        {"result": [[{"text": "x"}]]},
        {"result": [[{**ITEM, "score": "high"}]]},
        {"result": [[{**ITEM, "score": None}]]},
        {"result": [[{**ITEM, "score": True}]]},
        httpx.Response(200, content=json.dumps({"result": [[{**ITEM, "score": float("nan")}]]}).encode()),
        {"result": [[{**ITEM, "score": 10**400}]]},
        {"result": [[ITEM]], "coverage": "all"},
        {"result": [[ITEM]], "coverage": 1.5},
        {"result": [[ITEM]], "coverage": True},
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


def test_servers_with_and_without_scores_are_no_parts_of_one_corpus():
    ranks, more = (Part({str(i): 0.0 for i in some}, ranked=True) for some in ((1, 2), (3, 4)))
    assert [d.id for d in shards([ranks, more]).search(["a"], 3, "train")[0]] == ["1", "3", "2"]
    with pytest.raises(Fault, match="retriever_schema.*without scores"):
        shards([ranks, Part({"5": 1.0})]).search(["a"], 3, "train")


def test_a_dripping_server_meets_the_deadline():
    def drip():
        while True:
            time.sleep(0.02)
            yield b" "

    search = server(lambda _: httpx.Response(200, content=drip()), tries=2, timeout=0.1)
    with pytest.raises(Fault, match="retriever_down"):
        search.search(["a"], 1, "train")


def test_addresses():
    assert HttpSearch("http://h:1/").url == HttpSearch("http://h:1/retrieve").url == "http://h:1/retrieve"
    for url in ("", "h:1", "ftp://h", "http://", "http://h:x", "\x00"):
        with pytest.raises(InputError):
            HttpSearch(url)
    search = HttpSearch("http://127.0.0.1:1", tries=1, timeout=2.0)
    with pytest.raises(Fault, match="retriever_down"):
        search.search(["a"], 1, "train")
    search.close()


def test_what_a_reply_says_of_itself():
    plain = server(good).search(["a"], 1, "train")
    assert (plain.coverage, plain.seconds) == (1.0, {})
    said = {"coverage": 0.75, "timings": {"search": 0.5, "note": "x"}}
    answers = server(lambda body: {**good(body), **said}).search(["a"], 1, "train")
    assert (answers.coverage, answers.seconds) == (0.75, {"search": 0.5})


def test_parts_of_a_long_request_add_up(monkeypatch):
    monkeypatch.setattr(source, "BATCH", 1)

    def said(body):
        whole = body["queries"] == ["a"]
        return {**good(body), "coverage": 1.0 if whole else 0.5, "timings": {"search": 1.0 if whole else 2.0}}

    answers = server(said).search(["a", "b"], 1, "train")
    assert (len(answers), answers.coverage, answers.seconds) == (2, 0.5, {"search": 3.0})


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3), ("0.25", 0.25), ("", 0), ("soon", 0), ("-4", 0), ("nan", 0), ("inf", 0), ("Wed, 99 Foo 2020", 0)],
)
def test_retry_after_in_seconds(header, seconds):
    assert asked_pause(header) == seconds


def test_retry_after_as_a_date():
    soon = datetime.now(UTC) + timedelta(seconds=90)
    assert 80 < asked_pause(format_datetime(soon, usegmt=True)) <= 90
    assert 80 < asked_pause(format_datetime(soon.replace(tzinfo=None))) <= 90
    assert asked_pause("Wed, 21 Oct 2015 07:28:00 GMT") == 0


@pytest.mark.parametrize(("header", "pause"), [("0.5", 0.5), ("1e9", 5.0), ("", 0.25)])
def test_pauses_are_those_asked_for_within_bounds(monkeypatch, header, pause):
    slept = []
    monkeypatch.setattr(services.time, "sleep", slept.append)
    busy = httpx.MockTransport(lambda request: httpx.Response(429, headers={"retry-after": header}))
    with pytest.raises(Fault, match="2 tries"):
        Service((DOWN, SCHEMA), 1.0, tries=2, backoff=0.25, transport=busy).ask("GET", "http://h")
    assert slept == [pause]


class Part:
    """A server with some documents: id -> score. `down`: it answers 503. `size`: what its /status says."""

    def __init__(self, scores, size=None, coverage=None, status=503, ranked=False):
        self.ranked = ranked  # it sends no scores
        self.scores, self.size, self.coverage, self.status = scores, size, coverage, status
        self.down, self.asked = False, 0
        self.search = HttpSearch("http://h/base", tries=3, backoff=0.0, transport=httpx.MockTransport(self.answer))

    def answer(self, request):
        if request.url.path == "/base/status":
            return httpx.Response(404) if self.size is None else httpx.Response(200, json={"documents": self.size})
        assert request.url.path == "/base/retrieve"
        self.asked += 1
        if self.down:
            return httpx.Response(self.status)
        body = json.loads(request.content)
        best = sorted(self.scores.items(), key=lambda item: (-item[1], int(item[0])))[: body["topk"]]
        found = [{"document": {"id": id, "contents": f"d{id}"}, "score": score} for id, score in best]
        if self.ranked:
            found = [{"document": item["document"]} for item in found]
        said = {} if self.coverage is None else {"coverage": self.coverage}
        return httpx.Response(200, json={"result": [found for _ in body["queries"]], **said})


def shards(parts, least=1.0, clock=time.monotonic):
    return RemoteShards([part.search for part in parts], least, clock)


def test_several_servers_answer_as_one_of_them_with_everything():
    scores = {str(i): float(value) for i, value in enumerate(np.random.default_rng(0).integers(0, 9, 60))}
    parts = [Part({id: score for id, score in scores.items() if int(id) % 3 == i}, size=20) for i in range(3)]
    for k in (1, 7, 60, 80):
        answers = shards(parts).search(["a", "b"], k, "train")
        assert answers == Part(scores).search.search(["a", "b"], k, "train")
        assert answers.coverage == 1.0
    assert shards(parts).search(["a"], 1, "none") == [[]] and shards(parts).search([], 1, "train") == []


def test_a_lost_server_is_left_out_honestly_or_is_a_fault():
    for status, cause in ((503, "retriever_down"), (404, "retriever_schema")):
        parts = [Part({"1": 1.0}, 10), Part({"2": 2.0}, 30), Part({"3": 3.0}, 60, status=status)]
        whole, some = shards(parts), shards(parts, 0.4)
        for search in (whole, some):
            assert [d.id for d in search.search(["a"], 3, "train")[0]] == ["3", "2", "1"]
        parts[2].down = True
        answers = some.search(["a"], 3, "train")
        assert ([d.id for d in answers[0]], answers.coverage) == (["2", "1"], 0.4)
        with pytest.raises(Fault, match=f"retriever_partial: 0.400 .*{cause}"):
            whole.search(["a"], 3, "train")
        parts[1].down = True
        with pytest.raises(Fault, match="retriever_partial: 0.100"):
            some.search(["a"], 3, "train")
        parts[0].down = True
        with pytest.raises(Fault) as caught:
            whole.search(["a"], 3, "train")
        assert caught.value.cause == "retriever_down"


def test_shares_where_a_server_does_not_say_its_size():
    parts = [Part({"1": 1.0}), Part({"2": 2.0}), Part({"3": 3.0})]
    parts[0].down = True
    assert shards(parts, 0.1).search(["a"], 1, "train").coverage == pytest.approx(2 / 3)
    parts = [Part({"1": 1.0}, 10), Part({"2": 2.0}, 30), Part({"3": 3.0})]
    parts[2].down = True
    assert shards(parts, 0.1).search(["a"], 1, "train").coverage == pytest.approx(40 / 60)


def test_a_servers_own_coverage_counts():
    parts = [Part({"1": 1.0}, 10, coverage=0.5), Part({"2": 2.0}, 30)]
    assert shards(parts, 0.8).search(["a"], 1, "train").coverage == pytest.approx(35 / 40)
    with pytest.raises(Fault, match="retriever_partial: 0.875"):
        shards(parts, 0.9).search(["a"], 1, "train")


def test_a_server_that_is_down_is_left_alone_for_a_while_and_comes_back():
    now = [100.0]
    parts = [Part({"1": 1.0}, 10), Part({"2": 2.0}, 30)]
    search = shards(parts, 0.25, lambda: now[0])
    search.search(["a"], 2, "train")
    parts[1].down, parts[1].asked = True, 0
    assert search.search(["a"], 2, "train").coverage == 0.25 and parts[1].asked == 3  # all tries
    assert search.search(["b"], 2, "train").coverage == 0.25 and parts[1].asked == 3  # left alone
    now[0] += source.REST
    assert search.search(["c"], 2, "train").coverage == 0.25 and parts[1].asked == 4  # one try
    assert search.search(["c"], 2, "train").coverage == 0.25 and parts[1].asked == 4
    parts[1].down = False
    now[0] += source.REST
    assert search.search(["d"], 2, "train").coverage == 1.0
    parts[0].down = parts[1].down = True
    with pytest.raises(Fault, match="retriever_down"):
        search.search(["e"], 2, "train")
    asked = parts[1].asked
    with pytest.raises(Fault, match="retriever_down"):  # nothing is left to answer without it
        search.search(["e"], 2, "train")
    assert parts[1].asked == asked + 3


def test_every_server_is_asked_each_time_when_all_of_the_corpus_must_be():
    parts = [Part({"1": 1.0}), Part({"2": 2.0})]
    parts[1].down = True
    search = shards(parts)
    for tries in (3, 6):
        with pytest.raises(Fault):
            search.search(["a"], 1, "train")
        assert parts[1].asked == tries


def test_addresses_with_blanks_between_are_parts():
    assert isinstance(remote("http://h:1", 1.0, 1.0), HttpSearch)
    assert isinstance(remote("http://h:1  http://h:2", 1.0, 1.0), RemoteShards)
    with pytest.raises(InputError):
        remote("http://h:1 ftp://h", 1.0, 1.0)
