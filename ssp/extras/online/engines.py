"""The web engines, after their own API references (Serper, SerpApi, Google Custom Search JSON API
v1)."""

import re
from collections.abc import Mapping
from typing import Any

from ssp.base.errors import hold
from ssp.base.words import count
from ssp.config.sources import RetrieverConfig

Reply = Mapping[str, Any]
Result = tuple[str, str, str]
"""Title, snippet and link as the engine gives them; a link may be "" (an answer box that names no
page)."""
PAGES_ASKED = 10
"""Pages that each engine is asked for at most."""
SEGMENT = 5
"""Google's snippets are segments between ellipses; those of more words than this are kept (as in
Search-R1)."""
WAYS = PAGES, VARY = ("pages", "vary")
"""Read the pages of the results; keep a random number of the results."""
_OPERATORS = re.compile(r"[^\w\s'’.,&-]|(?<!\w)[-'’.,&]+|[-'’.,&]+(?!\w)")


class WebEngine:
    """One engine.

    `key_env`: the variable with its key, which goes into the header `header` or the parameter
    `parameter`. `most`: results on one page. `site`: what stands behind its name and a colon, where
    it must be set."""

    url: str
    key_env: str
    most: int
    method = "GET"
    header = parameter = ""
    site = ""

    def request(self, query: str, count: int, page: int, site: str) -> dict[str, Any]:
        """Query parameters, or the JSON body of a POST, for `count` results on the page `page`
        (from 0)."""
        raise NotImplementedError

    def results(self, reply: Reply, page: int) -> list[Result]:
        """The results of a reply, best first. KeyError, TypeError, AttributeError or ValueError for
        a reply of another form."""
        raise NotImplementedError

    def more(self, reply: Reply) -> bool:
        """Whether another page may hold more."""
        return True

    def clean(self, query: str) -> str:
        """The query as it is sent."""
        return query

    def snippet(self, snippet: str) -> str:
        """The snippet as a policy reads it."""
        return snippet


class Serper(WebEngine):
    """Serper's search."""

    url = "https://google.serper.dev/search"
    key_env = "SERPER_API_KEY"
    most = 100
    method = "POST"
    header = "X-API-KEY"

    def request(self, query: str, count: int, page: int, site: str) -> dict[str, Any]:
        """See `WebEngine`."""
        fields: dict[str, Any] = {"q": query, "num": count}
        if page:
            fields["page"] = page + 1
        return fields

    def results(self, reply: Reply, page: int) -> list[Result]:
        """See `WebEngine`."""
        return _listed(reply["organic"])


class SerpApi(WebEngine):
    """SerpApi, which asks one of several engines; results come by ten on a page."""

    url = "https://serpapi.com/search.json"
    key_env = "SERPAPI_API_KEY"
    most = 10
    parameter = "api_key"
    sites = {
        "google": ("q", "start", 0),
        "google_light": ("q", "start", 0),
        "bing": ("q", "first", 1),
        "baidu": ("q", "pn", 0),
        "yahoo": ("p", "b", 1),
    }
    """Engine → parameter of the query, parameter of the first result's place, and the first
    place."""

    def request(self, query: str, count: int, page: int, site: str) -> dict[str, Any]:
        """See `WebEngine`."""
        name = site or "google"
        words, place, first = self.sites[name]
        fields: dict[str, Any] = {"engine": name, words: query}
        if page:
            fields[place] = first + 10 * page
        return fields

    def results(self, reply: Reply, page: int) -> list[Result]:
        """Answer box, organic results, related questions. The first and the last stand on the first
        page."""
        if reply["search_metadata"]["status"] != "Success":
            raise ValueError("the search did not succeed")
        organic = _listed(reply.get("organic_results", []))
        if page:
            return organic

        boxes, answers = reply.get("answer_box", []), []
        for box in boxes if isinstance(boxes, list) else [boxes]:
            fields = [box.get(name) for name in ("snippet", "answer", "result")]
            texts = [text for text in fields if isinstance(text, str)]
            if texts:
                answers.append((box.get("title", ""), texts[0], box.get("link", "")))
        related = []
        for item in reply.get("related_questions", []):
            if item.get("snippet"):
                related.append((item.get("question", ""), item["snippet"], item.get("link", "")))
        return answers + organic + related

    def more(self, reply: Reply) -> bool:
        """See `WebEngine`."""
        return "next" in reply.get("serpapi_pagination", {})


class GoogleSearch(WebEngine):
    """Google's own search engine for one's own choice of sites."""

    url = "https://www.googleapis.com/customsearch/v1"
    key_env = "GOOGLE_API_KEY"
    most = 10
    parameter = "key"
    site = "the id of the search engine (cx)"

    def request(self, query: str, count: int, page: int, site: str) -> dict[str, Any]:
        """See `WebEngine`."""
        fields: dict[str, Any] = {"cx": site, "q": query, "num": count}
        if page:
            fields["start"] = 1 + count * page
        return fields

    def results(self, reply: Reply, page: int) -> list[Result]:
        """See `WebEngine`."""
        reply["queries"]["request"]  # always there, while a search without results has no items
        return _listed(reply.get("items", []))

    def more(self, reply: Reply) -> bool:
        """See `WebEngine`."""
        return "nextPage" in reply["queries"]

    def clean(self, query: str) -> str:
        """See `sanitised`."""
        return sanitised(query)

    def snippet(self, snippet: str) -> str:
        """See `long_segments`."""
        return long_segments(snippet)


ENGINES = {"serper": Serper(), "serpapi": SerpApi(), "google_cse": GoogleSearch()}
"""By the name in `retriever.online.engine`."""


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
    known = name != "serpapi" or site in ("", *SerpApi.sites)
    rule = f"SerpApi's engine is one of {', '.join(SerpApi.sites)}"
    hold(known, rule, site, "write for example serpapi:bing")
    return chosen, site, tuple(ways)


def told(cfg: RetrieverConfig, seed: int) -> str:
    """What decides the answers of the configured engine, in a line."""
    _, site, ways = engine(cfg.online.engine)
    name = re.split("[:+]", cfg.online.engine)[0]
    varied = f"{seed}" if VARY in ways else ""
    return f"{name} {cfg.url} {site} pages={PAGES in ways} varied={varied}"


def sanitised(query: str) -> str:
    """Words without what a search engine takes as an operator (quotes, a leading minus, a colon,
    brackets)."""
    return " ".join(_OPERATORS.sub(" ", query).split())


def long_segments(snippet: str) -> str:
    """The parts of a snippet between ellipses that have more than `SEGMENT` words. In a script
    without spaces a character is a word."""
    kept = []
    for part in snippet.replace("…", "...").split("..."):
        if max(len(part.split()), count(part)) > SEGMENT:
            kept.append(part.strip())
    return " ".join(kept)


def _listed(items: Any) -> list[Result]:
    """A result must have a link; its title and its snippet may be missing."""
    if not isinstance(items, list):
        raise TypeError("results are a list")
    return [(item.get("title", ""), item.get("snippet", ""), item["link"]) for item in items]
