"""`ssp serve` as FlashRAG's server, which ReSearch's clients speak to; in process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from launch.serve import CORPUS, create_app
from ssp.episode import Document
from ssp.errors import Fault
from ssp.search import LocalSearch, build

CLIENT = TestClient(
    create_app(
        LocalSearch({CORPUS: [build([Document(f"d{i}", f'"T{i}"\nword{i} common é') for i in range(20)])]}), topk=3
    )
)


@pytest.mark.covers("RS-07", "SR-40")
def test_search_and_batch_search_answer_as_flashrag_does() -> None:
    one = CLIENT.post("/search", json={"query": "word7", "top_n": 2}).json()
    assert one[0] == {"id": "d7", "contents": '"T7"\nword7 common é'} and len(one) <= 2
    documents, scores = CLIENT.post("/search", json={"query": "word7", "top_n": 2, "return_score": True}).json()
    assert documents == one and scores == sorted(scores, reverse=True)
    many = CLIENT.post("/batch_search", json={"query": ["word3", "word4 é"], "top_n": 1}).json()
    assert [[d["id"] for d in found] for found in many] == [["d3"], ["d4"]]
    documents, scores = CLIENT.post("/batch_search", json={"query": ["word3"], "top_n": 1, "return_score": True}).json()
    assert documents == [many[0]] and len(scores[0]) == 1
    assert CLIENT.post("/batch_search", json={"query": []}).json() == []
    assert len(CLIENT.post("/search", json={"query": "common"}).json()) == 10, "top_n is 10 unless said"
    assert CLIENT.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("body", [{"query": 3}, {"query": ["a", 3]}, {"query": "a", "top_n": 0}, {}])
def test_a_bad_body_is_refused_with_its_field(body: object) -> None:
    for path in ("/search", "/batch_search"):
        reply = CLIENT.post(path, json=body)
        assert reply.status_code == 422 and ("query" in reply.text or "top_n" in reply.text)
    assert CLIENT.post("/batch_search", content=b"{").status_code == 400


@pytest.mark.covers("RS-07")
def test_two_hundred_clients_get_their_own_answers_in_order() -> None:
    def ask(i: int) -> list[str]:
        queries = [f"word{i % 20}", f"word{(i + 1) % 20}"]
        return [found[0]["id"] for found in CLIENT.post("/batch_search", json={"query": queries, "top_n": 1}).json()]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(200)))
    assert answers == [[f"d{i % 20}", f"d{(i + 1) % 20}"] for i in range(200)]


def test_a_fault_is_a_503() -> None:
    class Broken:
        def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
            raise Fault("retriever_down", "test")

    client = TestClient(create_app(Broken(), topk=3))
    assert client.post("/search", json={"query": "a"}).status_code == 503
