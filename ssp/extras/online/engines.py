"""The table of web engines, after their own API references (Serper, SerpApi, Google Custom Search
JSON API v1). A reply of another form raises KeyError, TypeError, AttributeError or ValueError."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ssp.base.errors import hold
from ssp.base.words import count
from ssp.config.sources import RetrieverConfig

Reply = Mapping[str, Any]
PAGES_ASKED = 10
"""Pages that there are to ask each engine for."""
SEGMENT = 5
"""Google's snippets are segments between ellipses; those of more words than this are kept (as in
Search-R1)."""
_OPERATORS = re.compile(r"[^\w\s'’.,&-]|(?<!\w)[-'’.,&]+|[-'’.,&]+(?!\w)")


Result = tuple[str, str, str]
"""Title, snippet and link as the engine gives them; a link may be "" (an answer box that names no
page)."""


@dataclass(frozen=True)
class WebEngine:
    """One engine. `request`: (query, results wanted on a page, page from 0, site) → query
    parameters, or the JSON body of a POST. `results`: a reply and its page → results, best first.
    `more`: whether another page may hold more. The key goes into the header `header`, or the
    parameter `parameter`. `most`: results on one page. `site`: what stands behind its name and a
    colon, where it must be set."""

    url: str
    key_env: str
    request: Callable[[str, int, int, str], dict[str, Any]]
    results: Callable[[Reply, int], list[Result]]
    most: int
    more: Callable[[Reply], bool] = lambda reply: True
    method: str = "GET"
    header: str = ""
    parameter: str = ""
    site: str = ""
    clean: Callable[[str], str] = lambda query: query
    snippet: Callable[[str], str] = lambda snippet: snippet


def sanitised(query: str) -> str:
    """Words without what a search engine takes as an operator (quotes, a leading minus, a colon,
    brackets)."""
    return " ".join(_OPERATORS.sub(" ", query).split())


def long_segments(snippet: str) -> str:
    """The parts of a snippet between ellipses that have more than `SEGMENT` words, or what stands
    between blanks."""
    parts = snippet.replace("…", "...").split("...")
    return " ".join(part.strip() for part in parts if max(len(part.split()), count(part)) > SEGMENT)


def _all(items: Any) -> list[Result]:
    """A result must have a link; its title and its snippet may be missing."""
    if not isinstance(items, list):
        raise TypeError("results are a list")
    return [(item.get("title", ""), item.get("snippet", ""), item["link"]) for item in items]


_SERP = {
    "google": ("q", "start", 0),
    "google_light": ("q", "start", 0),
    "bing": ("q", "first", 1),
    "baidu": ("q", "pn", 0),
    "yahoo": ("p", "b", 1),
}
"""SerpApi's engines: parameter of the query, of the first result's place, and the first place. Ten
results a page."""


WAYS = PAGES, VARY = ("pages", "vary")
"""Read the pages that were found; keep a random number of the results."""


def engine(text: str) -> tuple[WebEngine, str, tuple[str, ...]]:
    """The engine of `name` or `name:site`, its site, and the WAYS that stand behind it. InputError
    for an unknown one, and where `site` is not what it needs."""
    text, *ways = text.split("+")
    rule = f"behind an engine's name, after a +, stands {' or '.join(WAYS)}"
    step = f"write for example {text}+{PAGES}"
    hold(set(ways) <= set(WAYS), rule, f"+{'+'.join(ways)}", step)
    name, _, site = text.partition(":")
    rule = f"retriever.online.engine is one of {', '.join(ENGINES)}"
    hold(name in ENGINES, rule, name, "use one of these")
    chosen = ENGINES[name]
    step = f"set retriever.online.engine={name}:ID"
    hold(site or not chosen.site, f"{name} needs {chosen.site}", text, step)
    known = name != "serpapi" or site in ("", *_SERP)
    rule = f"SerpApi's engine is one of {', '.join(_SERP)}"
    hold(known, rule, site, "write for example serpapi:bing")
    return chosen, site, tuple(ways)


def told(cfg: RetrieverConfig, seed: int) -> str:
    """What decides the answers of the configured engine, in a line."""
    _, site, ways = engine(cfg.online.engine)
    name = re.split("[:+]", cfg.online.engine)[0]
    varied = f"{seed}" if VARY in ways else ""
    return f"{name} {cfg.url} {site} pages={PAGES in ways} varied={varied}"


def _serper(query: str, count: int, page: int, site: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"q": query, "num": count}
    if page:
        fields["page"] = page + 1
    return fields


def _google(query: str, count: int, page: int, site: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"cx": site, "q": query, "num": count}
    if page:
        fields["start"] = 1 + count * page
    return fields


def _serpapi(query: str, count: int, page: int, site: str) -> dict[str, Any]:
    name = site or "google"
    words, place, first = _SERP[name]
    fields: dict[str, Any] = {"engine": name, words: query}
    if page:
        fields[place] = first + 10 * page
    return fields


def _serpapi_results(reply: Reply, page: int) -> list[Result]:
    """Answer box, organic results, related questions. The first and the last stand on the first
    page."""
    if reply["search_metadata"]["status"] != "Success":
        raise ValueError("the search did not succeed")
    organic = _all(reply.get("organic_results", []))
    if page:
        return organic
    boxes, answers = reply.get("answer_box", []), []
    for box in boxes if isinstance(boxes, list) else [boxes]:
        named = [box.get(name) for name in ("snippet", "answer", "result")]
        texts = [text for text in named if isinstance(text, str)]
        if texts:
            answers.append((box.get("title", ""), texts[0], box.get("link", "")))
    related = []
    for item in reply.get("related_questions", []):
        if item.get("snippet"):
            related.append((item.get("question", ""), item["snippet"], item.get("link", "")))
    return answers + organic + related


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
        method="POST",
        header="X-API-KEY",
    ),
    "serpapi": WebEngine(
        "https://serpapi.com/search.json",
        "SERPAPI_API_KEY",
        _serpapi,
        _serpapi_results,
        most=10,
        more=lambda reply: "next" in reply.get("serpapi_pagination", {}),
        parameter="api_key",
    ),
    "google_cse": WebEngine(
        "https://www.googleapis.com/customsearch/v1",
        "GOOGLE_API_KEY",
        _google,
        _google_results,
        most=10,
        more=lambda reply: "nextPage" in reply["queries"],
        parameter="key",
        site="the id of the search engine (cx)",
        clean=sanitised,
        snippet=long_segments,
    ),
}
"""By the name in `retriever.online.engine`."""
