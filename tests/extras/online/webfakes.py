"""Engines of the web on loopback: each answers in the form of its own, with its own limits, over one small web."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpfakes

KEY = "SENTINEL-5f2c+/="
WEB = 27
"""Pages that match every query."""

Fields = dict[str, Any]
Answer = Callable[[Fields, int], tuple[int, Any]]
"""(what was asked, how many requests came until now) → status and body."""


def link(i: int) -> str:
    return f"https://r{i}.example/"


def snippet(i: int) -> str:
    """A snippet as Google cuts it: one long segment, one short."""
    return f"Jan 1 ... this is what page {i} says about it … end"


def serper(asked: Fields, count: int) -> tuple[int, Any]:
    first = (asked.get("page", 1) - 1) * asked["num"]
    found = range(first, min(first + asked["num"], WEB))
    items = [
        {"title": f"T{i}", "link": link(i), "snippet": snippet(i), "position": i - first + 1, "date": "1 day ago"}
        for i in found
    ]
    return 200, {"searchParameters": {**asked, "type": "search", "engine": "google"}, "organic": items, "credits": 1}


def serpapi(asked: Fields, count: int) -> tuple[int, Any]:
    words, place, base = {"yahoo": ("p", "b", 1), "bing": ("q", "first", 1), "baidu": ("q", "pn", 0)}.get(
        asked["engine"], ("q", "start", 0)
    )
    if words not in asked:
        return 400, {"error": f"Missing query `{words}` parameter."}
    first = int(asked.get(place, base)) - base
    found = range(first, min(first + 10, WEB))
    reply: Fields = {
        "search_metadata": {"id": "64c3", "status": "Success", "total_time_taken": 0.9},
        "search_parameters": {"engine": asked["engine"], words: asked[words], "device": "desktop"},
        "search_information": {"organic_results_state": "Results for exact spelling"},
    }
    if found:
        reply["organic_results"] = [
            {"position": i - first + 1, "title": f"T{i}", "link": link(i), "displayed_link": "r", "snippet": snippet(i)}
            for i in found
        ]
    else:
        reply["error"] = "Google hasn't returned any results for this query."
    if first + 10 < WEB:
        reply["serpapi_pagination"] = {"current": 1, "next": "https://serpapi.com/search.json?start=10"}
    return 200, reply


def google_cse(asked: Fields, count: int) -> tuple[int, Any]:
    number, start = int(asked["num"]), int(asked.get("start", 1))
    if not 1 <= number <= 10 or start + number > 101 or not asked["cx"]:
        return 400, {
            "error": {"code": 400, "message": "Request contains an invalid argument.", "status": "INVALID_ARGUMENT"}
        }
    found = range(start - 1, min(start - 1 + number, WEB))
    request = {
        "title": "Google Custom Search",
        "totalResults": str(WEB),
        "searchTerms": asked["q"],
        "count": len(found),
    }
    queries = {"request": [{**request, "startIndex": start}]}
    if start - 1 + number < WEB:
        queries["nextPage"] = [{**request, "startIndex": start + number}]
    items = [{"kind": "customsearch#result", "title": f"T{i}", "link": link(i), "snippet": snippet(i)} for i in found]
    head = {"kind": "customsearch#search", "queries": queries, "searchInformation": {"totalResults": str(WEB)}}
    return 200, {**head, "items": items} if items else head


ANSWERS: dict[str, Answer] = {"serper": serper, "serpapi": serpapi, "google_cse": google_cse}
VARIABLES = {"serper": "SERPER_API_KEY", "serpapi": "SERPAPI_API_KEY", "google_cse": "GOOGLE_API_KEY"}
_HEADERS = {"serper": "x-api-key"}
_PARAMETERS = {"serpapi": "api_key", "google_cse": "key"}


@dataclass
class Server:
    """One engine. `asked`: the fields of each request, without the key; a request without it is answered 401."""

    url: str = ""
    asked: list[Fields] = field(default_factory=list)


@contextmanager
def serving(name: str, answer: Answer | None = None) -> Iterator[Server]:
    made, lock = Server(), threading.Lock()

    def reply(asked: httpfakes.Asked) -> tuple[int, dict[str, str], bytes]:
        place = urlsplit(asked.path)
        assert (asked.method == "POST") == (name == "serper") and place.path == "/search"
        posted = asked.method == "POST"
        fields = json.loads(asked.body) if posted else dict(parse_qsl(place.query, keep_blank_values=True))
        key = fields.pop(_PARAMETERS[name], "") if name in _PARAMETERS else asked.headers.get(_HEADERS[name], "")
        with lock:
            made.asked.append(fields)
            count = len(made.asked)
        status, said = (answer or ANSWERS[name])(fields, count) if key == KEY else (401, {"message": "Unauthorized."})
        return status, {}, said if isinstance(said, bytes) else json.dumps(said).encode()

    with httpfakes.server(reply) as base:
        made.url = f"{base}/search"
        yield made
