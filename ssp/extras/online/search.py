"""`Search` over an engine of the web. Trouble of the service, and an account that is used up, are
Faults (law 2); the key comes from the environment and is in no message, log or repr."""

import hashlib
import json
import logging
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx

from ssp.base import cache
from ssp.base.episode import Document
from ssp.base.errors import Fault, hold, holding
from ssp.base.seeds import derive
from ssp.base.services import Service, is_loopback, key_from
from ssp.config.sources import RetrieverConfig
from ssp.extras.online.engines import PAGES, PAGES_ASKED, VARY, engine
from ssp.extras.online.pages import Pages
from ssp.search.hits import Answers
from ssp.search.known import Book, sendable
from ssp.search.router import DOWN
from ssp.search.source import ABOUT_THE_QUERY, PROBE, SCHEMA

# its debug lines show broken replies, which may repeat the key
logging.getLogger("httpcore").setLevel(logging.INFO)
AT_ONCE = 10
"""Requests under way, as in SSRL."""
KEPT = 100_000
"""Answers in the file of a machine."""
QUOTA = "quota"
Shown = tuple[Document, str]
"""A document, and the snippet that it was made of."""
_KEY = (401, 403)
_KEY_WORDS = (b"API_KEY_INVALID", b"keyInvalid")
"""A key that is not taken is a 400 at Google."""
_SPENT = 402
_SPENT_WORDS = (b"Not enough credits", b"LimitExceeded", b"quotaExceeded")
"""An account that is used up is a 400 at Serper and a 403 at Google: nobody's key is wrong then."""


class OnlineSearch:
    """`Search` over the engine that `cfg.online` names; whatever the corpus, it is the web. Safe in
    several threads. `seed`: of the draws of +vary. InputError for an unknown engine, and for a key
    that is not set or, when searching, not taken."""

    def __init__(self, cfg: RetrieverConfig, seed: int = 0) -> None:
        block = cfg.online
        self._engine, self._site, ways = engine(block.engine)
        self._url, self._seed, self._varies = cfg.url or self._engine.url, seed, VARY in ways
        key = key_from(self._engine.key_env, cfg.url, needed=True)
        headers = {self._engine.header: key} if self._engine.header else {}
        params = {self._engine.parameter: key} if self._engine.parameter else {}
        transport = _Keyed(_transport(self._url), headers, params)
        self._service = Service((DOWN, SCHEMA), cfg.timeout, transport=transport, secret=key)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="online")
        self._pages = Pages(loopback=is_loopback(self._url)) if PAGES in ways else None
        self._what = f"{block.engine.partition('+')[0]} {self._url} pages={PAGES in ways}"
        cache.root().mkdir(parents=True, exist_ok=True)
        # A machine's own file: several that share a home folder could not lock one.
        path = cache.root() / f"web-{platform.node()}.db"
        self._memory = Book(path, block.ttl, keep=KEPT)

    def search(self, queries: list[str], k: int, corpus: str) -> Answers:
        """For each query at most `k` documents, as the engine ranked them (score 1 / rank). Raises
        Fault. A query without a word, or one refused by an engine that takes another, finds
        nothing: the policy's doing (law 2)."""
        began = time.perf_counter()
        # One at a time through the memory, so that a fault loses no answer that was paid for.
        answers = list(self._pool.map(partial(self._remembered, k), queries))
        return Answers(answers, {"search": time.perf_counter() - began})

    def close(self) -> None:
        """End the threads, close the connections and the file."""
        self._pool.shutdown()
        if self._pages:
            self._pages.close()
        self._service.close()
        self._memory.close()

    def _remembered(self, k: int, query: str) -> list[Document]:
        """What was found before, or is now; of +vary a number of these that is drawn."""
        kept, _ = self._memory.ask([(self._what, k, query)], lambda _: [self._asked(query, k)])
        (documents,) = kept.values()
        if self._varies:
            return documents[: 1 + derive(self._seed, "results", query, k) % k]
        return documents[:k]

    def _asked(self, query: str, k: int) -> list[Document]:
        """At most `k` documents, from as many of the engine's pages as it takes."""
        words = self._engine.clean(sendable(query)).strip()
        count = min(k, self._engine.most)
        best: dict[str, Shown] = {}
        for page in range(PAGES_ASKED if words else 0):
            status, content = self._send(words, count, page)
            if status in ABOUT_THE_QUERY:
                if not page:
                    self._results(*self._send(PROBE, count, 0), 0)
                break  # on a later page: there is none
            results, more = self._results(status, content, page)
            before = len(best)
            for document, snippet in results:
                best.setdefault(document.id, (document, snippet))
            if len(best) >= k or len(best) == before or not more:
                break
        shown = list(best.values())[:k]
        if self._pages:
            shown = self._pages.around(shown)
        ranked = enumerate(shown, start=1)
        return [replace(document, score=1.0 / rank) for rank, (document, _) in ranked]

    def _send(self, words: str, count: int, page: int) -> tuple[int, bytes]:
        """Status and content of a page. Fault `quota` when the account is used up, InputError when
        the key is not taken."""
        fields = self._engine.request(words, count, page, self._site)
        form: Any = {"json": fields} if self._engine.method == "POST" else {"params": fields}
        status, content = self._service.ask(self._engine.method, self._url, **form)
        if 200 <= status < 300:
            return status, content
        if status == _SPENT or any(word in content for word in _SPENT_WORDS):
            raise Fault(QUOTA, f"{self._url}: the account is used up (status {status})")
        wrong = status in _KEY or any(word in content for word in _KEY_WORDS)
        variable = self._engine.key_env
        rule, step = f"the engine takes the key in {variable}", f"export {variable}=..."
        hold(not wrong, rule, f"status {status}", step)
        return status, content

    def _results(self, status: int, content: bytes, page: int) -> tuple[list[Shown], bool]:
        """Documents with their snippets, and whether another page may hold more."""
        if not 200 <= status < 300:
            raise Fault(SCHEMA, f"{self._url}: status {status}")
        try:
            reply, shown = json.loads(content), []
            for title, snippet, link in self._engine.results(reply, page):
                contents = f'"{_plain(title)}"\n{_plain(self._engine.snippet(snippet))}'
                name = _whole(link) or hashlib.sha256(contents.encode()).hexdigest()[:16]
                shown.append((Document(name, contents), snippet))
            return shown, self._engine.more(reply)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            kind = type(error).__name__
        # Outside of the handler: a decoder's error holds the reply, and a reply may hold the key.
        raise Fault(SCHEMA, f"{self._url}: the answer is not this engine's ({kind})")


class _Keyed(httpx.BaseTransport):
    """Adds the key where a request leaves: what httpx logs, and keeps in its errors, is the request
    without it."""

    def __init__(
        self, inner: httpx.BaseTransport, headers: dict[str, str], params: dict[str, str]
    ) -> None:
        self._inner, self._headers, self._params = inner, headers, params

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        sent = httpx.Request(
            request.method,
            request.url.copy_merge_params(self._params) if self._params else request.url,
            headers=[*request.headers.multi_items(), *self._headers.items()],
            stream=request.stream,
            extensions=request.extensions,
        )
        return self._inner.handle_request(sent)

    def close(self) -> None:
        self._inner.close()


def _transport(url: str) -> httpx.BaseTransport:
    """Through the environment's proxy, where it has one for this address."""
    address = httpx.URL(url)
    direct = is_loopback(url) or proxy_bypass(address.host)
    proxy = None if direct else getproxies().get(address.scheme)
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"  # as curl takes it
    rule, variable = "the environment's proxy is of HTTP", f"{address.scheme}_proxy"
    # its value may hold a password
    with holding((ValueError, ImportError), rule, lambda error: variable, "correct it"):
        # plain http: no certificates to load
        return httpx.HTTPTransport(verify=address.scheme == "https", proxy=proxy)


def _whole(text: str) -> str:
    """The text without halves of surrogate pairs."""
    return text.encode("utf-8", "ignore").decode()


def _plain(text: str) -> str:
    """One line without ellipses, with which engines mark where they cut."""
    joined = text.replace("...", " ").replace("…", " ")
    return " ".join(_whole(joined).split())
