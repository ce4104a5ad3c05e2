"""The table of web engines: how each is asked, and where its reply keeps the results.

Owns one entry a engine: address, key, request form, pages, result form. Promises that a reply of another form raises
KeyError, TypeError, AttributeError or ValueError, and that nothing here sees the key's value. Refuses to send anything.
Forms: the engines' own API references (Serper, SerpApi, Google Custom Search JSON API v1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ssp.base.errors import InputError

Reply = Mapping[str, Any]
SEGMENT = 5
"""Google's snippets are segments between ellipses; those of more words than this are kept (as in Search-R1)."""
_OPERATORS = re.compile(r"[^\w\s'’.,&-]|(?<!\w)[-'’.,&]+|[-'’.,&]+(?!\w)")


@dataclass(frozen=True)
class Result:
    """One result as the engine gives it; `link` may be "" (an answer box that names no page)."""

    title: str
    snippet: str
    link: str


@dataclass(frozen=True)
class WebEngine:
    """One engine. `request`: (query, results wanted on a page, page from 0, site) → query parameters, or the JSON body of a
    POST. `results`: a reply and its page → results, best first. `more`: whether the reply says that another page may hold
    more. The key goes into the header `header`, or the parameter `parameter`. `most`: results on one page; `pages`: how
    many pages there are to ask for."""

    url: str
    key_env: str
    request: Callable[[str, int, int, str], dict[str, Any]]
    results: Callable[[Reply, int], list[Result]]
    most: int
    pages: int
    more: Callable[[Reply], bool] = lambda reply: True
    method: str = "GET"
    header: str = ""
    parameter: str = ""
    site: str = ""
    """What `retriever.online.site` is for this engine, where it must be set."""
    clean: Callable[[str], str] = lambda query: query
    snippet: Callable[[str], str] = lambda snippet: snippet

    def check(self, site: str) -> None:
        """InputError where `site` is not what this engine needs."""
        if self.site and not site:
            found, step = f"{self.key_env} alone", "set retriever.online.site"
            raise InputError(f"this engine needs {self.site} in retriever.online.site", found, step)
        self.request("a", 1, 0, site)


def sanitised(query: str) -> str:
    """Words without what a search engine takes as an operator (quotes, a leading minus, a colon, brackets)."""
    return " ".join(_OPERATORS.sub(" ", query).split())


def long_segments(snippet: str) -> str:
    """The parts of a snippet between ellipses that have more than `SEGMENT` words."""
    parts = snippet.replace("…", "...").split("...")
    return " ".join(part.strip() for part in parts if len(part.split()) > SEGMENT)


def _all(items: Any) -> list[Result]:
    """A result must have a link; its title and its snippet may be missing."""
    if not isinstance(items, list):
        raise TypeError("results are a list")
    return [Result(item.get("title", ""), item.get("snippet", ""), item["link"]) for item in items]


def _serper(query: str, count: int, page: int, site: str) -> dict[str, Any]:
    return {"q": query, "num": count, **({"page": page + 1} if page else {})}


_SERP = {
    "google": ("q", "start", 0),
    "google_light": ("q", "start", 0),
    "bing": ("q", "first", 1),
    "baidu": ("q", "pn", 0),
    "yahoo": ("p", "b", 1),
}
"""SerpApi's engines: parameter of the query, of the first result's place, and the first place. Ten results a page."""


def _serpapi(query: str, count: int, page: int, site: str) -> dict[str, Any]:
    name = site or "google"
    if name not in _SERP:
        rule = f"SerpApi's engine (retriever.online.site) is one of {', '.join(_SERP)}"
        raise InputError(rule, name, "use one of these")
    words, place, first = _SERP[name]
    return {"engine": name, words: query, **({place: first + 10 * page} if page else {})}


def _serpapi_results(reply: Reply, page: int) -> list[Result]:
    """Answer box, organic results, related questions. The first and the last stand on the first page."""
    if reply["search_metadata"]["status"] != "Success":
        raise ValueError("the search did not succeed")
    found = _all(reply.get("organic_results", []))
    if page:
        return found
    boxes = reply.get("answer_box", [])
    answers = [_answer(box) for box in (boxes if isinstance(boxes, list) else [boxes])]
    related = [
        Result(item.get("question", ""), item["snippet"], item.get("link", ""))
        for item in reply.get("related_questions", [])
        if item.get("snippet")
    ]
    return [answer for answer in answers if answer.snippet] + found + related


def _answer(box: Reply) -> Result:
    texts = [box[name] for name in ("snippet", "answer", "result") if isinstance(box.get(name), str)]
    return Result(box.get("title", ""), texts[0] if texts else "", box.get("link", ""))


def _google(query: str, count: int, page: int, site: str) -> dict[str, Any]:
    return {"cx": site, "q": query, "num": count, **({"start": 1 + count * page} if page else {})}


def _google_results(reply: Reply, page: int) -> list[Result]:
    reply["queries"]["request"]  # always there, while a search that finds nothing has no items
    return _all(reply.get("items", []))


ENGINES = {
    "serper": WebEngine(
        "https://google.serper.dev/search",
        "SERPER_API_KEY",
        _serper,
        lambda reply, page: _all(reply["organic"]),
        most=100,
        pages=10,
        method="POST",
        header="X-API-KEY",
    ),
    "serpapi": WebEngine(
        "https://serpapi.com/search.json",
        "SERPAPI_API_KEY",
        _serpapi,
        _serpapi_results,
        most=10,
        pages=10,
        more=lambda reply: "next" in reply.get("serpapi_pagination", {}),
        parameter="api_key",
    ),
    "google_cse": WebEngine(
        "https://www.googleapis.com/customsearch/v1",
        "GOOGLE_API_KEY",
        _google,
        _google_results,
        most=10,
        pages=10,
        more=lambda reply: "nextPage" in reply["queries"],
        parameter="key",
        site="the id of the search engine (cx)",
        clean=sanitised,
        snippet=long_segments,
    ),
}
"""By the name in `retriever.online.engine`."""
