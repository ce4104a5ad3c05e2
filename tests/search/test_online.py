"""Search engines of the web, against replies recorded in their form, on loopback."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ssp.episode import Document
from ssp.errors import Fault, InputError
from ssp.search.online import ENGINES, OnlineSearch

KEY = "SENTINEL-5f2c"
REPLY = {
    "searchParameters": {"q": "emma", "type": "search", "num": 3},
    "knowledgeGraph": {"title": "Emma"},
    "organic": [
        {"title": "Emma (novel) - Wikipedia", "link": "https://a.example/emma", "snippet": "Emma is ... a novel\nby", "position": 1},
        {"title": "Emma — …", "link": "https://b.example/", "snippet": "", "position": 2},
        {"title": "No snippet", "link": "https://c.example/", "position": 3},
        {"title": "A fourth", "link": "https://d.example/", "snippet": "surplus", "position": 4},
    ],
    "credits": 1,
}  # fmt: skip
"""In the form of Serper's replies; it may send more than it was asked for."""
DOCUMENTS = [
    Document("https://a.example/emma", '"Emma (novel) - Wikipedia"\nEmma is a novel by', 1.0),
    Document("https://b.example/", '"Emma —"\n', 0.5),
    Document("https://c.example/", '"No snippet"\n', 1.0 / 3.0),
]

Answer = Callable[[dict[str, Any], int], tuple[int, Any]]


class Engine(ThreadingHTTPServer):
    """Answers as told and keeps what it was asked: path, key, body."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked, self.lock = answer, [], threading.Lock()  # type: ignore[var-annotated]
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.asked.append((self.path, self.headers["x-api-key"], body))
            status, reply = self.server.answer(body, len(self.server.asked))
        content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def engine(answer: Answer) -> Iterator[tuple[OnlineSearch, Engine]]:
    server = Engine(answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    search = OnlineSearch("serper", f"http://127.0.0.1:{server.server_port}/search", tries=3, backoff=0.001)
    try:
        yield search, server
    finally:
        search.close()
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERPER_API_KEY", KEY)


@pytest.mark.covers("SS-08")
def test_results_become_documents() -> None:
    """Never more than asked for; titles in quotes, ellipses gone, the link as id."""
    with engine(lambda body, n: (200, REPLY)) as (search, server):
        assert search.search(["emma", "woodhouse \ud800"], 3, "train") == [DOCUMENTS, DOCUMENTS]
        assert search.search(["emma"], 1, "anything") == [DOCUMENTS[:1]]
        assert search.search(["emma"], 3, "none") == [[]] and search.search([], 3, "train") == []
    assert sorted(body["q"] for _, _, body in server.asked) == ["emma", "emma", "woodhouse ?"]
    assert {(path, key) for path, key, _ in server.asked} == {("/search", KEY)}
    assert server.asked[0][2]["num"] == 3


@pytest.mark.covers("SS-08")
@pytest.mark.parametrize("status", [429, 500, 503])
def test_trouble_is_waited_for_and_then_a_fault(status: int) -> None:
    with engine(lambda body, n: (200, REPLY) if n == 3 else (status, {})) as (search, _):
        assert search.search(["emma"], 3, "train") == [DOCUMENTS]
    with engine(lambda body, n: (status, {})) as (search, server):
        with pytest.raises(Fault) as caught:
            search.search(["emma"], 3, "train")
    assert caught.value.cause == "retriever_down" and len(server.asked) == 3


@pytest.mark.covers("SS-08")
@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_taken_is_bad_input_and_never_shown(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with engine(lambda body, n: (status, {"message": f"{KEY} is unknown"})) as (search, server):
        with pytest.raises(InputError, match="SERPER_API_KEY") as caught:
            search.search(["emma"], 3, "train")
    assert len(server.asked) == 1
    assert (
        KEY not in str(caught.value)
        and KEY not in caplog.text
        and KEY not in repr(search) + str(vars(ENGINES["serper"]))
    )


def test_a_key_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERPER_API_KEY")
    with pytest.raises(InputError, match="SERPER_API_KEY is not set"):
        OnlineSearch("serper")
    with pytest.raises(InputError, match="serper"):
        OnlineSearch("altavista")


def test_a_refused_query_finds_nothing_unless_every_query_is_refused() -> None:
    """A 400 may be about the query, or about the account."""
    with engine(lambda body, n: (400, {}) if body["q"] == "bad" else (200, REPLY)) as (search, _):
        assert search.search(["bad", "emma"], 3, "train") == [[], DOCUMENTS]
    with engine(lambda body, n: (400, {"message": "Not enough credits"})) as (search, _):
        with pytest.raises(Fault, match="retriever_schema"):
            search.search(["emma"], 3, "train")


@pytest.mark.parametrize(
    "reply",
    [
        b"<html>", b"[" * 100_000, b"\xff\xfe", [], {}, {"organic": {}}, {"organic": ["text"]}, {"organic": [{"title": "x"}]},
        {"organic": [{"title": 5, "link": "l"}]}, {"organic": [{"title": None, "link": "l"}]}, {"organic": [{"link": 7}]},
    ],
)  # fmt: skip
def test_anything_else_is_a_schema_fault(reply: Any) -> None:
    with engine(lambda body, n: (200, reply)) as (search, _), pytest.raises(Fault) as caught:
        search.search(["emma"], 3, "train")
    assert caught.value.cause == "retriever_schema"


def test_nothing_found_is_nothing() -> None:
    with engine(lambda body, n: (200, {"organic": []})) as (search, _):
        assert search.search(["emma"], 3, "train") == [[]]
