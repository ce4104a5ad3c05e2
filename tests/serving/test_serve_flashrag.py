"""`ssp serve` as FlashRAG's server, which ReSearch's clients speak to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from localsearch import local
from searchserver import create_app, get, post, running

from ssp.base.episode import Document
from ssp.search.serving.api import CORPUS
from ssp.search.shard import in_memory

DOCUMENTS = [Document(f"d{i}", f'"T{i}"\nword{i} common é') for i in range(20)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(create_app(local(CORPUS, in_memory(DOCUMENTS, shards=4)), topk=3, workers=4)) as base:
        yield base


@pytest.mark.covers("RS-07", "SR-40")
def test_search_and_batch_search_answer_as_flashrag_does(address: str) -> None:
    one = post(address, "/search", json={"query": "word7", "top_n": 2}).json()
    assert one[0] == {"id": "d7", "contents": '"T7"\nword7 common é'} and len(one) <= 2
    documents, scores = post(address, "/search", json={"query": "word7", "top_n": 2, "return_score": True}).json()
    assert documents == one and scores == sorted(scores, reverse=True)
    many = post(address, "/batch_search", json={"query": ["word3", "word4 é"], "top_n": 1}).json()
    assert [[d["id"] for d in found] for found in many] == [["d3"], ["d4"]]
    body = {"query": ["word3", "word5"], "top_n": 1, "return_score": True}
    documents, scores = post(address, "/batch_search", json=body).json()
    assert [found[0]["id"] for found in documents] == ["d3", "d5"] and [len(s) for s in scores] == [1, 1]
    assert post(address, "/batch_search", json={"query": []}).json() == []
    assert len(post(address, "/search", json={"query": "common"}).json()) == 10, "top_n is 10 unless said"
    assert get(address, "/health").json() == {"status": "ok"}


@pytest.mark.covers("RS-07")
def test_research_clients_read_the_reply_as_they_do(address: str) -> None:
    """Its tool sends query and top_n alone and reads `contents` of each item; its retriever sends all three fields."""
    reply = httpx.post(f"{address}/search", json={"query": "word1", "top_n": 5}, trust_env=False)
    lines = "".join(f"{line['contents']}\n\n" for line in reply.json())
    assert lines.startswith('"T1"\nword1 common')
    plain = post(address, "/search", json={"query": "word1", "top_n": 5, "return_score": False}).json()
    assert plain == reply.json()
    batch = {"query": ["word1", "none"], "top_n": 5, "return_score": False}
    assert post(address, "/batch_search", json=batch).json() == [plain, []]


@pytest.mark.parametrize("body", [{"query": 3}, {"query": ["a", 3]}, {"query": "a", "top_n": 0}, {}])
def test_a_bad_body_is_refused_with_its_field(body: object, address: str) -> None:
    for path in ("/search", "/batch_search"):
        reply = post(address, path, json=body)
        assert reply.status_code == 422 and ("query" in reply.text or "top_n" in reply.text)
    assert post(address, "/batch_search", content=b"{").status_code == 400


@pytest.mark.covers("RS-07")
def test_two_hundred_clients_get_their_own_answers_in_order(address: str) -> None:
    """All of them connected at once."""
    bodies = [{"query": [f"word{i % 20}", f"word{(i + 1) % 20}"], "top_n": 1} for i in range(200)]
    with ThreadPoolExecutor(200) as pool:
        replies = list(pool.map(lambda body: post(address, "/batch_search", content=json.dumps(body)).json(), bodies))
    found = [[documents[0]["id"] for documents in reply] for reply in replies]
    assert found == [[f"d{i % 20}", f"d{(i + 1) % 20}"] for i in range(200)]
