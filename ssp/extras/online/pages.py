"""Pages of the web: their text, and the paragraph that a search engine's snippet was cut from. Only
public addresses are asked (the loopback too, for an engine on it). The time that reading takes grows
no faster than the page."""

import html
import re
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

import httpx

from ssp.base.episode import Document
from ssp.search.postings import tokenise

AT_ONCE = 8
"""Pages that are read at once, as in Search-R1."""
TIMEOUT = 5.0
"""Seconds for one page, redirects included, as in Search-R1."""
LONGEST = 2 * 2**20
"""Bytes that are read of a page."""
REDIRECTS = 3
PARAGRAPH = 3000
"""Characters kept of a longer paragraph."""
SHARE = 0.5
"""Share of the snippet's words that a paragraph must hold."""
_TROUBLE = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError)
_TYPES = ("text/html", "application/xhtml+xml")
_HEADERS = {
    "accept": "text/html",
    "accept-encoding": "identity",
    "user-agent": "Mozilla/5.0 (compatible; ssp)",
}

# Each pattern looks no further than the next "<": linear for any page. html.parser is not (a page
# of 80 kB can take minutes), hence none of it here.
_HIDDEN = re.compile(r"<!--|<(script|style|noscript|template|title|svg)\b[^<>]*>", re.IGNORECASE)
_BLOCK = re.compile(
    r"</?(?:address|article|aside|blockquote|body|br|caption|dd|details|div|dl|dt|fieldset|figcaption|figure|footer|form|h\d"
    r"|head|header|hr|html|li|main|nav|ol|option|p|pre|section|select|table|tbody|td|tfoot|th|thead|tr|ul)\b[^<>]*>",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?[a-zA-Z!?][^<>]*>")


class Pages:
    """Reads pages, `AT_ONCE` at a time. `loopback`: addresses of this machine may be asked too.
    Safe in several threads."""

    def __init__(self, loopback: bool = False) -> None:
        self._loopback = loopback
        # No connection is used twice: they are told apart by address, and one address may serve
        # several names.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(trust_env=False, headers=_HEADERS, limits=limits)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="pages")

    def around(self, results: Sequence[tuple[Document, str]]) -> list[tuple[Document, str]]:
        """Documents and their snippets; the text of a document is its page's paragraph where there
        is one."""
        return list(self._pool.map(self._around, results))

    def text(self, link: str) -> str:
        """The visible text of a page, a line for each paragraph; "" where there is none to read."""
        try:
            return "\n".join(paragraphs(self._fetch(link)))
        except _TROUBLE:
            return ""

    def close(self) -> None:
        """End the threads and close the connections."""
        self._pool.shutdown()
        self._client.close()

    def _around(self, result: tuple[Document, str]) -> tuple[Document, str]:
        document, snippet = result
        try:
            text = paragraph(self._fetch(document.id), snippet)
        except _TROUBLE:
            text = ""
        if text:
            title = document.contents.split("\n", 1)[0]
            document = replace(document, contents=f"{title}\n{text}")
        return document, snippet

    def _fetch(self, link: str) -> str:
        """The first `LONGEST` bytes of the page; "" when it is no HTML. ValueError for an address
        that must not be asked."""
        url, deadline = httpx.URL(link), time.monotonic() + TIMEOUT
        for _ in range(REDIRECTS + 1):
            # A name may have another address a moment later: the one that was checked is asked.
            pinned = url.copy_with(host=public_address(url, self._loopback), fragment=None)
            headers, names = {"host": url.netloc.decode()}, {"sni_hostname": url.host}
            left = max(deadline - time.monotonic(), 0.01)
            with self._client.stream(
                "GET", pinned, headers=headers, extensions=names, timeout=left
            ) as reply:
                if not (reply.is_redirect and "location" in reply.headers):
                    return _text(reply, deadline)
                url = url.join(reply.headers["location"])
        return ""


def _text(reply: httpx.Response, deadline: float) -> str:
    """The first `LONGEST` bytes of a page, decoded; "" where it is no HTML. ReadTimeout when these
    are not there by the deadline."""
    kind = reply.headers.get("content-type", "").split(";")[0].strip().lower()
    encoding = reply.headers.get("content-encoding", "identity").lower()
    if reply.status_code != 200 or kind not in _TYPES or encoding != "identity":
        return ""
    content = bytearray()
    for chunk in reply.iter_raw():
        content += chunk
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("page not complete in time")
        if len(content) > LONGEST:
            break
    page = bytes(content[:LONGEST])
    try:
        return page.decode(reply.charset_encoding or "utf-8", "replace")
    except LookupError:
        return page.decode("utf-8", "replace")


def public_address(url: httpx.URL, loopback: bool = False) -> str:
    """An address of the URL's host. ValueError when the protocol is not http(s), and when any of
    the host's addresses is not of the public internet (or, with `loopback`, of this machine).
    OSError when the name has none."""
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"not an http(s) address: {url.scheme}")
    listed = socket.getaddrinfo(url.host, url.port or url.scheme, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in listed]
    for address in addresses:
        if not _is_public(ip_address(address.split("%")[0]), loopback):
            raise ValueError("not a public address")
    return addresses[0]


def _is_public(address: IPv4Address | IPv6Address, loopback: bool) -> bool:
    if isinstance(address, IPv6Address):
        nat64 = int(address) >> 32 == 0x64FF9B << 64
        last = IPv4Address(int(address) & 0xFFFFFFFF) if nat64 else None
        inner = address.ipv4_mapped or address.sixtofour or last
        if inner:
            return _is_public(inner, loopback)
    if address.is_loopback:
        return loopback
    return address.is_global and not address.is_multicast


def paragraphs(page: str) -> list[str]:
    """The visible text of an HTML page, split where a browser would begin a new line."""
    visible, at = [], 0
    hidden = _HIDDEN.search(page)
    while hidden:
        visible.append(page[at : hidden.start()])
        end = rf"</{hidden[1]}[^<>]*>" if hidden[1] else "-->"
        closed = re.compile(end, re.IGNORECASE).search(page, hidden.end())
        at = closed.end() if closed else len(page)
        hidden = _HIDDEN.search(page, at)
    visible.append(page[at:])

    texts = []
    for piece in _BLOCK.split(" ".join(visible)):
        text = " ".join(html.unescape(_TAG.sub("", piece)).split())
        if text:
            texts.append(text)
    return texts


def paragraph(page: str, snippet: str) -> str:
    """The paragraph that holds the most of the snippet's words, the first of several; "" when none
    holds half of them. Of a long one PARAGRAPH characters around the snippet."""
    wanted = set(tokenise(snippet))
    best, most = "", max(1.0, SHARE * len(wanted))
    for text in paragraphs(page):
        shared = len(wanted.intersection(tokenise(text)))
        if shared > most or (not best and shared == most):
            best, most = text, shared
    if len(best) <= PARAGRAPH:
        return best
    longest = max(re.split(r"\.\.\.|…", snippet), key=len).strip()
    at = max(best.casefold().find(longest.casefold()), 0)
    middle = at + len(longest) // 2
    start = max(0, min(middle - PARAGRAPH // 2, len(best) - PARAGRAPH))
    return best[start : start + PARAGRAPH]
