"""Pages around snippets: what is read of a page, and which addresses are never asked."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpfakes
import httpx
import pytest
from webfakes import KEY, serving

from ssp.base.episode import Document
from ssp.config.sources import OnlineConfig, RetrieverConfig
from ssp.extras.online import pages
from ssp.extras.online.engines import long_segments
from ssp.extras.online.pages import Pages, paragraph, paragraphs, public_address
from ssp.extras.online.search import OnlineSearch

PAGE = """<!doctype html><html><head><title>Emma</title><style>p { color: red }</style>
<script>document.write("<p>written by a script about the novel Emma</p>")</script></head><body><nav><a href=x>Home</a></nav>
<h1>Emma</h1><!-- <p>hidden</p> --><p class="a">Emma is a <b>novel</b> by&nbsp;Jane Austen,<sup>1</sup> first published on
23&nbsp;December 1815 &amp; set in Highbury. 1 < 2.</p><div>It was her fourth.<br>Sir Walter Scott wrote a review.
<ul><li>One<li>Two</ul></div></body></html>"""
SNIPPET = "Emma is a novel by Jane Austen ... published on 23 December 1815"
AROUND = "Emma is a novel by Jane Austen,1 first published on 23 December 1815 & set in Highbury. 1 < 2."

Answer = Callable[[str], tuple[int, dict[str, str], bytes]]
"""Path → status, headers, body."""


@contextmanager
def site(answer: Answer) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A site on loopback: its base address, and the paths and Host headers it was asked for."""
    asked: list[tuple[str, str]] = []

    def reply(request: httpfakes.Asked) -> tuple[int, dict[str, str], bytes]:
        asked.append((request.path, request.headers["host"]))
        return answer(request.path)

    with httpfakes.server(reply) as base:
        yield base, asked


HTML = {"content-type": "text/html; charset=utf-8"}


def read(link: str, loopback: bool = True, snippet: str = SNIPPET) -> str:
    reader = Pages(loopback)
    ((document, _),) = reader.around([(Document(link, '"Emma"\nsnippet'), snippet)])
    reader.close()
    assert document.title == "Emma"
    return document.text


def test_the_visible_text_of_a_page_by_paragraph() -> None:
    assert paragraphs(PAGE) == [
        "Home", "Emma", AROUND, "It was her fourth.", "Sir Walter Scott wrote a review.", "One", "Two",
    ]  # fmt: skip
    assert paragraphs("<p>a<script>never closed") == ["a"] and paragraphs("") == []
    assert paragraphs("x<!-- no end <p>y") == ["x"] and paragraphs("<p>a <!-- c --> b</P >c") == ["a b", "c"]


@pytest.mark.covers("SR-48")
def test_the_paragraph_with_most_of_the_snippet() -> None:
    assert paragraph(PAGE, SNIPPET) == AROUND
    assert paragraph(PAGE, "wholly different words that the page has not") == ""
    assert paragraph(PAGE, "") == ""
    long = "<p>" + "so it goes on " * 1000 + "until the red door opens at noon " + "and on " * 1000
    found = paragraph(long, "... until the red door opens at noon ...")
    assert len(found) == pages.PARAGRAPH and "until the red door opens at noon" in found[1000:2000]


@pytest.mark.parametrize(
    "piece", ["<!--", "<a ", "<", '<a b="', "</", "<script ", "<script></scr", "<p>", "&#x", "<svg>"]
)
def test_reading_takes_time_in_proportion_to_the_page(piece: str) -> None:
    """html.parser takes minutes for a fifth of this (the suite's time-out would end it)."""
    paragraph(piece * (pages.LONGEST // 4 // len(piece)), SNIPPET)


@pytest.mark.covers("SR-48")
def test_pages_in_place_of_snippets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    with site(lambda path: (200, HTML, PAGE.encode()) if path == "/emma" else (404, HTML, b"")) as (base, asked):
        items = [{"title": t, "link": f"{base}/{t}", "snippet": SNIPPET} for t in ("emma", "gone")]
        reply = {"queries": {"request": [{}]}, "items": items}
        with serving("google_cse", lambda fields, n: (200, reply)) as server:
            search = OnlineSearch(RetrieverConfig(url=server.url, online=OnlineConfig("google_cse:cx+pages")))
            found = search.search(["emma"], 2, "train")[0]
            again = search.search(["emma"], 2, "train")[0]
            search.close()
    assert again == found and sorted(path for path, _ in asked) == ["/emma", "/gone"]
    assert [document.score for document in found] == [1.0, 0.5]
    # A page that does not come leaves its snippet: "... published on 23 December 1815" has no more than five words.
    assert [document.text for document in found] == [AROUND, "Emma is a novel by Jane Austen"]


def test_redirects_are_followed_a_few_times_and_the_host_is_named() -> None:
    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        hops = int(path[1:])
        return (302, {"location": f"/{hops - 1}"}, b"") if hops else (200, HTML, PAGE.encode())

    with site(answer) as (base, asked):
        name = base.replace("127.0.0.1", "localhost")
        assert read(f"{name}/{pages.REDIRECTS}") == AROUND
        assert {host for _, host in asked} == {name.removeprefix("http://")}
        assert read(f"{base}/{pages.REDIRECTS + 1}") == "snippet"


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [(404, HTML, PAGE.encode()), (200, {"content-type": "application/pdf"}, PAGE.encode()), (200, {}, PAGE.encode()),
     (200, {**HTML, "content-encoding": "gzip"}, PAGE.encode()), (302, {"location": "file:///etc/passwd"}, b""),
     (302, {"location": "http://10.0.0.1/"}, b""), (302, {"location": "http://[fe80::1]/"}, b""), (302, {"location": "http://h:x"}, b""),
     (500, HTML, b"")],
)  # fmt: skip
def test_what_is_no_page_leaves_the_snippet(status: int, headers: dict[str, str], body: bytes) -> None:
    with site(lambda path: (status, headers, body)) as (base, _):
        assert read(base) == "snippet"


def test_bytes_that_are_no_text_and_pages_without_end() -> None:
    cafe = "<p>" + SNIPPET + " café"
    encodings = {"iso-8859-1": "latin-1", "utf-8": "utf-8", "no-such": "utf-8"}

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        return 200, {"content-type": f"text/html; charset={path[1:]}"}, cafe.encode(encodings[path[1:]])

    with site(answer) as (base, _):
        assert [read(f"{base}/{charset}")[-9:] for charset in encodings] == ["1815 café"] * 3
    with site(lambda path: (200, HTML, PAGE.encode() + b"<p>x" * 2**21 + b"<p>late")) as (base, _):
        assert read(base) == AROUND


PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255",
    "2130706433", "0x7f000001", "[::1]", "[::]", "[fe80::1]", "[fc00::1]", "[ff0e::1]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]",
    "[2002:7f00:1::]", "[2002:a00:1::]", "[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "localhost",
]  # fmt: skip


@pytest.mark.parametrize("host", PRIVATE)
def test_addresses_that_are_not_public_are_never_asked(host: str) -> None:
    with pytest.raises((ValueError, OSError, httpx.InvalidURL)):
        public_address(httpx.URL(f"http://{host}/x"))
    with site(lambda path: (200, HTML, PAGE.encode())) as (base, asked):
        port = base.rsplit(":", 1)[1]
        assert read(f"http://{host}:{port}/", loopback=False) == "snippet" and asked == []


def test_a_name_with_one_private_address_is_refused_and_the_checked_address_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = socket.getaddrinfo

    def resolver(*addresses: str) -> None:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in addresses]
        monkeypatch.setattr(
            pages.socket,
            "getaddrinfo",
            lambda host, *rest, **more: real(host, *rest, **more) if host[0].isdecimal() else found,
        )

    resolver("8.8.8.8", "10.0.0.1")
    with pytest.raises(ValueError, match="not a public address"):
        public_address(httpx.URL("http://two.example/"))
    resolver("8.8.8.8", "8.8.4.4")
    assert public_address(httpx.URL("http://two.example/")) == "8.8.8.8"
    with site(lambda path: (200, HTML, PAGE.encode())) as (base, asked):
        resolver("127.0.0.1")
        assert read(base.replace("127.0.0.1", "rebound.example")) == AROUND
    assert asked[0][1].startswith("rebound.example:")


def test_the_text_of_a_page() -> None:
    with site(lambda path: (200, HTML, PAGE.encode()) if path == "/emma" else (404, HTML, b"<p>gone</p>")) as (base, _):
        reader = Pages(loopback=True)
        found = [reader.text(link) for link in (f"{base}/emma", f"{base}/other", "ftp://x", "no address")]
        reader.close()
    assert found[0].splitlines()[2:4] == [AROUND, "It was her fourth."] and found[1:] == ["", "", ""]
    private = Pages()
    assert private.text(f"{base}/emma") == ""
    private.close()


def test_the_snippet_of_a_page_is_found_without_spaces() -> None:
    page = "<p>泽尔是一种奶酪。</p><p>奥鲁河流经塔尔维克镇,然后入海。</p>"
    assert paragraph(page, "……流经塔尔维克镇") == "奥鲁河流经塔尔维克镇,然后入海。"
    assert long_segments("泽尔 ... 奥鲁河流经塔尔维克镇") == "奥鲁河流经塔尔维克镇"
