"""Connections that hold the search server without asking it anything, on real sockets of the loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from searchserver import create_app, get, post, running, tiny

from ssp.search import Answers
from ssp.search.router import Options
from ssp.search.serving import api, connection

HEAD = b"POST /retrieve HTTP/1.1\r\nHost: h\r\n"
BODY = b'{"queries": ["vure"]}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with little patience."""
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
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


@pytest.mark.parametrize("sent", [b"", HEAD, b"\r\n", b"POST /retr"])
def test_a_connection_without_a_whole_head_is_closed(address: str, sent: bytes) -> None:
    with opened(address, sent) as client:
        assert until_the_end(client) == b""


def test_a_second_head_that_stops_half_way_is_closed_after_the_first_reply(address: str) -> None:
    with opened(address, WHOLE + HEAD) as client:
        assert until_the_end(client).startswith(b"HTTP/1.1 200")
    with opened(address, WHOLE) as client:
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(b"\r\n")
        until_the_end(client)


def test_a_body_that_stops_half_way_is_a_408_and_the_end(address: str) -> None:
    with opened(address, WHOLE[:-5]) as client:
        reply = until_the_end(client)
    assert reply.startswith(b"HTTP/1.1 408") and b'{"detail":' in reply


def test_a_slow_but_whole_request_is_answered_and_the_connection_stays(address: str) -> None:
    with opened(address) as client:
        for _ in range(3):
            for part in (WHOLE[:20], WHOLE[20:60], WHOLE[60:]):
                client.sendall(part)
            assert client.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "head",
    [b"".join(b"X-%d: %s\r\n" % (i, b"a" * 1000) for i in range(100)), b"X: " + b"a" * 2**20, b"A: b\r\n" * 20_000],
)
def test_a_head_without_end_is_refused(address: str, head: bytes) -> None:
    """Whether its lines end or not, before or after the server has closed."""
    with opened(address) as client:
        try:
            client.sendall(HEAD + head)
            reply = until_the_end(client)
        except ConnectionError:
            return
    assert reply.startswith(b"HTTP/1.1 400")


def test_a_large_body_beside_a_small_head_is_no_large_head(address: str) -> None:
    body = BODY[:-1] + b" " * 2**20 + b"}"
    assert post(address, content=body).status_code == 200


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
        def ask(self, queries: Sequence[str], k: int, corpus: str, options: Options | None = None) -> Answers:
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
