"""Connections that hold the search server without asking it anything, on real sockets of the loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from searchserver import create_app, get, post, running, tiny

from ssp.search.hits import Answers
from ssp.search.router import Options
from ssp.search.serving import api

HEAD = b"POST /retrieve HTTP/1.1\r\nHost: h\r\n"
BODY = b'{"queries": ["vure"]}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(api, "BODY_SECONDS", 0.3)
    with running(create_app(tiny(), 1)) as base:
        yield base


def opened(base: str, sent: bytes = b"") -> socket.socket:
    host, port = base.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=20)
    client.sendall(sent)
    return client


def until_the_end(client: socket.socket) -> bytes:
    """All that comes until the server closes; TimeoutError when it does not."""
    received = b""
    while some := client.recv(65536):
        received += some
    return received


def test_a_body_that_stops_half_way_is_a_408_and_the_end(address: str) -> None:
    with opened(address, WHOLE[:-5]) as client:
        reply = until_the_end(client)
    assert reply.startswith(b"HTTP/1.1 408") and b'{"detail":' in reply


def test_idle_connections_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_REQUESTS", 4)
    with running(create_app(tiny(), 1)) as base, ExitStack() as held:
        for sent in (b"", HEAD, WHOLE) * 10:
            held.enter_context(opened(base, sent))
        for _ in range(10):
            assert post(base, json={"queries": ["vure"]}).status_code in (200, 503)
        assert post(base, json={"queries": ["vure"]}).status_code == 200


def test_too_many_requests_are_told_when_to_come_back_and_health_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_REQUESTS", 2)
    gate = threading.Event()

    class Slow:
        def search(self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None) -> Answers:
            assert gate.wait(20)
            return Answers([[] for _ in queries])

    app = create_app(Slow(), 1)
    with running(app) as base, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(post, base, json={"queries": [str(i)]}) for i in range(2)]
        while app._busy < 2:
            assert not any(one.done() for one in waiting)
        late = post(base, json={"queries": ["late"]})
        assert (late.status_code, late.json()["cause"]) == (503, "retriever_busy")
        assert late.headers["content-type"] == "application/json" and int(late.headers["retry-after"]) > 0
        assert get(base, "/health").status_code == 200
        gate.set()
        assert [one.result(20).status_code for one in waiting] == [200, 200]
        assert post(base, json={"queries": ["then"]}).status_code == 200
