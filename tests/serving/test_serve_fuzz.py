"""Bodies that nobody should send: every one is answered in time, and never with a 5xx."""

from __future__ import annotations

import json
import socket
import string
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from searchserver import LongestFirst, create_app, get, running, tiny

PATIENCE = 20
PATHS = ("/retrieve", "/search", "/batch_search", "/rerank")
NAMES = (
    "queries query topk top_n return_scores return_score kind ef_search nprobe timings topk_retrieval topk_rerank "
    "rerank_topk documents document contents id"
).split()

text = st.one_of(st.text(max_size=30), st.sampled_from(["pota", "\ud800", "\x00", "東京", "a" * 9000, "﻿", "bm25"]))
number = st.one_of(
    st.integers(-5, 2000), st.integers(), st.floats(), st.sampled_from([2**31, 2**63, 2**64, 10**400, -0.0, 1e999])
)
leaf = st.one_of(st.none(), st.booleans(), number, text)
value = st.recursive(
    leaf,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=12,
)
document = st.one_of(st.fixed_dictionaries({"contents": text}, optional={"id": leaf, "document": value}), value)
good = st.fixed_dictionaries(
    {"queries": st.lists(text, max_size=4)},
    optional={
        "query": st.one_of(text, st.lists(text, max_size=4)),
        "documents": st.lists(st.lists(document, max_size=3), max_size=4),
        **{name: st.one_of(st.integers(1, 1000), leaf) for name in NAMES[2:13]},
    },
)
form = st.one_of(good, st.dictionaries(st.one_of(st.sampled_from(NAMES), text), value, max_size=6), value)


@st.composite
def bodies(draw: Any) -> bytes:
    """JSON of the right and of wrong forms, cut short, spliced, or no JSON at all."""
    shape = draw(st.sampled_from(("json", "json", "json", "cut", "splice", "bytes", "deep", "utf16", "repeat")))
    if shape == "bytes":
        return bytes(draw(st.binary(max_size=300)))
    if shape == "deep":
        opener = draw(st.sampled_from(("[", '{"queries":', '{"a":[')))
        return str(opener * draw(st.integers(1, 30_000))).encode()
    ascii_ = draw(st.booleans())
    body = json.dumps(draw(form), ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    if shape == "utf16":
        return body.decode("utf-8", "replace").encode("utf-16")
    if shape == "cut":
        return body[: draw(st.integers(0, len(body)))]
    if shape == "splice":
        at = draw(st.integers(0, len(body)))
        return body[:at] + bytes(draw(st.binary(max_size=8))) + body[at:]
    if shape == "repeat":
        return body * draw(st.integers(2, 3))
    return body


@st.composite
def requests(draw: Any) -> tuple[bytes, bool]:
    """The bytes of a request, and whether it is whole."""
    body = draw(bodies())
    path, method = draw(st.sampled_from(PATHS)), draw(st.sampled_from(("POST",) * 6 + ("GET", "PUT", "DELETE", "HEAD")))
    kind = draw(
        st.sampled_from(
            ("application/json", "text/plain", "application/json; charset=utf-16", "", "multipart/form-data")
        )
    )
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    head += [f"Content-Type: {kind}"] if kind else []
    head += [f"X-{name}: {name}" for name in draw(st.lists(st.sampled_from(string.ascii_letters), max_size=3))]
    whole = draw(st.integers(0, 9)) > 0
    if draw(st.booleans()):
        head.append(f"Content-Length: {len(body) if whole else len(body) + draw(st.integers(1, 99))}")
    else:
        head.append("Transfer-Encoding: chunked")
        size = draw(st.integers(1, 4096))
        pieces = [body[i : i + size] for i in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if whole else b"")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body, whole


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(create_app(tiny(reranker=LongestFirst()), 3, timeout=PATIENCE)) as base:
        yield base
        assert get(base, "/readyz").status_code == 200
        status = get(base, "/status").json()
        assert (status["faults"], status["waiting"]) == (0, 0)


def sent(base: str, request: bytes, whole: bool) -> bytes:
    """All that comes back until the server closes. A request that is not whole ends with the client's half closed."""
    place = urlsplit(base)
    with socket.create_connection((str(place.hostname), int(place.port or 0)), timeout=PATIENCE) as connection:
        try:
            connection.sendall(request)
            if not whole:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was refused before its end
        reply = bytearray()
        try:
            while chunk := connection.recv(65536):
                reply += chunk
        except ConnectionResetError:
            assert reply or not whole
        return bytes(reply)


def check(base: str, request: tuple[bytes, bool]) -> None:
    reply = sent(base, *request)
    if not request[1] and not reply:
        return
    line = reply.split(b"\r\n", 1)[0].split(b" ")
    assert line[0] == b"HTTP/1.1" and int(line[1]) in (200, 400, 405, 413, 422), reply[:500]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(request=requests())
def test_any_request_is_answered(address: str, request: tuple[bytes, bool]) -> None:
    check(address, request)


@pytest.mark.long
@settings(max_examples=6000, deadline=None, suppress_health_check=list(HealthCheck))
@given(request=requests())
def test_thousands_of_requests_are_answered(address: str, request: tuple[bytes, bool]) -> None:
    check(address, request)
