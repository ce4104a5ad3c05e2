"""Search engines of the web, against replies in their own forms, on loopback."""

from __future__ import annotations

import gc
import json
import logging
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from webfakes import ANSWERS, KEY, VARIABLES, WEB, Answer, Server, link, serpapi, serving

from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError
from ssp.config.schema import Config
from ssp.config.sources import OnlineConfig, RetrieverConfig
from ssp.extras.online.engines import ENGINES, long_segments, sanitised
from ssp.extras.online.search import AT_ONCE, OnlineSearch, _transport
from ssp.game import corpora
from ssp.selfplay.settings import load
from tests.refusing import refused

ALL = sorted(ENGINES)
each = pytest.mark.parametrize("name", ALL)
TEXT = {name: "Jan 1 this is what page {} says about it end" for name in ALL}
TEXT["google_cse"] = "this is what page {} says about it"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSP_CACHE", str(tmp_path / "cache"))
    for variable in VARIABLES.values():
        monkeypatch.setenv(variable, KEY)


def block(name: str, url: str = "", site: str = "", ways: str = "") -> RetrieverConfig:
    site = site or ("cx-1" if name == "google_cse" else "")
    return RetrieverConfig(url=url, online=OnlineConfig(f"{name}:{site}{ways}"))


@contextmanager
def engine(
    name: str, answer: Answer | None = None, seed: int = 0, **options: Any
) -> Iterator[tuple[OnlineSearch, Server]]:
    with serving(name, answer) as server:
        search = OnlineSearch(block(name, server.url, **options), seed)
        search._service._tries, search._service._backoff = 3, 0.001
        try:
            yield search, server
        finally:
            search.close()


def documents(name: str, k: int) -> list[Document]:
    return [Document(link(i), f'"T{i}"\n{TEXT[name].format(i)}', 1.0 / (i + 1)) for i in range(min(k, WEB))]


@pytest.mark.parametrize("proxy", ["127.0.0.1:9", "http://127.0.0.1:9", "gopher://secret@127.0.0.1:9"])
def test_a_proxy_without_a_scheme_is_one_of_http(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    if proxy.startswith("gopher"):
        with pytest.raises(InputError, match="environment's proxy") as caught:
            _transport("https://example.org")
        assert "secret" not in str(caught.value)
    else:
        _transport("https://example.org").close()


@pytest.mark.covers("SR-47", "SR-48", "SR-49", "SS-08")
@each
@pytest.mark.parametrize("k", [1, 3, 10, 11, 25, 60])
def test_exactly_as_many_documents_as_asked_for(name: str, k: int) -> None:
    """In the engine's order, over as many pages as it takes; all there are when they are fewer."""
    with engine(name) as (search, _):
        answers = search.search(["emma", "woodhouse"], k, "train")
    assert answers == [documents(name, k)] * 2


@pytest.mark.covers("SR-49")
@pytest.mark.parametrize("site", ["bing", "baidu", "yahoo", "google_light"])
def test_other_engines_through_serpapi(site: str) -> None:
    with engine("serpapi", site=site) as (search, server):
        assert search.search(["emma"], 25, "train") == [documents("serpapi", 25)]
    assert {asked["engine"] for asked in server.asked} == {site} and len(server.asked) == 3


@pytest.mark.covers("SR-47")
def test_serpapi_puts_answer_box_organic_results_and_questions_in_a_row() -> None:
    box: dict[str, Any] = {
        "type": "organic_result",
        "title": "Who?",
        "answer": "Jane Austen",
        "link": "https://box.example",
    }
    related = [
        {"question": "When?", "snippet": "In 1815.", "title": "t", "link": "https://q.example"},
        {"question": "No answer?", "type": "ai_overview", "text_blocks": []},
    ]

    def answer(asked: dict[str, Any], count: int) -> tuple[int, Any]:
        status, reply = serpapi(asked, count)
        short = {"organic_results": reply["organic_results"][:2], "answer_box": box, "related_questions": related}
        return status, {**reply, **short, "serpapi_pagination": {}}

    first = Document("https://box.example", '"Who?"\nJane Austen', 1.0)
    with engine("serpapi", answer) as (search, server):
        found = search.search(["emma"], 9, "train")[0]
        assert [d.id for d in found] == ["https://box.example", link(0), link(1), "https://q.example"]
        assert (found[0], found[3].contents) == (first, '"When?"\nIn 1815.')
        assert len(search.search(["emma"], 2, "train")[0]) == 2  # never more than asked for
        box.clear(), box.update(type="calculator_result", result="3.14")
        odd = search.search(["pi"], 1, "train")[0][0]
        assert odd.contents == '""\n3.14' and len(odd.id) == 16


def test_an_engine_that_needs_more_than_a_key_says_so() -> None:
    with pytest.raises(InputError, match="set retriever.online.engine=google_cse:ID"):
        OnlineSearch(RetrieverConfig(online=OnlineConfig("google_cse")))
    with pytest.raises(InputError, match="google, google_light, bing, baidu, yahoo"):
        OnlineSearch(block("serpapi", site="altavista"))


@pytest.mark.covers("SR-48")
def test_google_gets_words_and_gives_long_segments() -> None:
    assert sanitised('who "wrote" -emma site:a.org, (1815) | emma\'s U.S. e-book?') == (
        "who wrote emma site a.org 1815 emma's U.S e-book"
    )
    assert sanitised("?!") == "" and sanitised("Straße 東京") == "Straße 東京"
    assert long_segments("one two three ... a b c d e f … g h i j k l m") == "a b c d e f g h i j k l m"
    with engine("google_cse") as (search, server):
        assert search.search(['"emma"?', "?"], 1, "train") == [documents("google_cse", 1), []]
    assert [asked["q"] for asked in server.asked] == ["emma"]


@pytest.mark.covers("SS-08")
@each
@pytest.mark.parametrize("status", [429, 500, 503])
def test_trouble_is_waited_for_and_then_a_fault(name: str, status: int) -> None:
    with engine(name, lambda asked, n: ANSWERS[name](asked, n) if n == 3 else (status, {})) as (search, _):
        assert search.search(["emma"], 3, "train") == [documents(name, 3)]
    with engine(name, lambda asked, n: (status, {})) as (search, server):
        with pytest.raises(Fault) as caught:
            search.search(["emma"], 3, "train")
    assert caught.value.cause == "retriever_down" and len(server.asked) == 3


GOOGLE_KEY = {"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}]}}
GOOGLE_DAY = {"error": {"errors": [{"domain": "usageLimits", "reason": "dailyLimitExceeded"}], "code": 403}}


@pytest.mark.parametrize(
    ("name", "status", "reply"),
    [(name, status, {"message": "no"}) for name in ALL for status in (401, 403)] + [("google_cse", 400, GOOGLE_KEY)],
)
def test_a_key_that_is_not_taken_is_bad_input(name: str, status: int, reply: Any) -> None:
    with engine(name, lambda asked, n: (status, reply)) as (search, server):
        with pytest.raises(InputError, match=VARIABLES[name]):
            search.search(["emma"], 3, "train")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("name", "status", "reply"),
    [
        ("serper", 400, {"message": "Not enough credits", "statusCode": 400}),
        ("serper", 402, {}),
        ("google_cse", 403, GOOGLE_DAY),
    ],
)
def test_an_account_that_is_used_up_is_a_fault(name: str, status: int, reply: Any) -> None:
    with engine(name, lambda asked, n: (status, reply)) as (search, server), pytest.raises(Fault) as caught:
        search.search(["emma"], 3, "train")
    assert caught.value.cause == "quota" and len(server.asked) == 1


ECHO = json.dumps({"echo": KEY}).encode()
TROUBLE: dict[str, tuple[int, bytes]] = {
    **{str(status): (status, ECHO) for status in (302, 400, 401, 402, 403, 404, 422, 429, 500)},
    "form": (200, ECHO),
    "html": (200, b"<html>" + KEY.encode()),
    "cut": (200, b'{"organic": ["' + KEY.encode()),
    "protocol": (0, b"HTTP/9 " + KEY.encode() + b"\r\n\r\n"),
    "chunk": (0, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + KEY.encode() + b"\r\n\r\n"),
    "nothing": (0, b""),
}


@each
@pytest.mark.parametrize("trouble", TROUBLE)
def test_the_key_is_in_no_message_log_or_error(name: str, trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with engine(name, lambda asked, n: TROUBLE[trouble]) as (search, server):
        with pytest.raises((Fault, InputError)) as caught:
            search.search(["emma"], 3, "train")
        shown = repr(search) + str(search) + repr(vars(search)) + repr(ENGINES[name])
    assert server.asked
    error: BaseException | None = caught.value
    while error is not None:
        shown += "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(error.args)
        error = error.__cause__ or error.__context__
    assert "SENTINEL" not in shown


@each
def test_a_key_that_is_not_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLES[name])
    with pytest.raises(InputError, match=f"{VARIABLES[name]} is not set"):
        OnlineSearch(block(name))


@each
def test_a_refused_query_finds_nothing_unless_every_query_is_refused(name: str) -> None:
    """A 400 may be about the query, or about the account."""

    def picky(asked: dict[str, Any], n: int) -> tuple[int, Any]:
        return (400, {}) if asked.get("q") == "bad" else ANSWERS[name](asked, n)

    with engine(name, picky) as (search, _):
        assert search.search(["bad", "emma"], 3, "train") == [[], documents(name, 3)]
    with engine(name, lambda asked, n: (400, {})) as (search, _), pytest.raises(Fault, match="retriever_schema"):
        search.search(["emma"], 3, "train")


ITEM = {"title": "x", "link": "l", "snippet": "s"}
BAD: list[Any] = [
    b"<html>", b"[" * 100_000, b"\xff\xfe", [], {}, None, {"organic": {}}, {"organic": ["text"]}, {"organic": [{"title": "x"}]},
    {"organic": [{**ITEM, "title": 5}]}, {"organic": [{**ITEM, "title": None}]}, {"organic": [{**ITEM, "link": 7}]},
    {"search_metadata": {"status": "Error"}, "error": "try again later"}, {"search_metadata": {"status": "Success"}, "organic_results": 3},
    {"queries": {"request": []}, "items": "none"}, {"type": "ErrorResponse"},
]  # fmt: skip


@each
def test_anything_else_is_a_schema_fault(name: str) -> None:
    replies = iter(BAD)
    with engine(name, lambda asked, n: (200, next(replies))) as (search, _):
        for _ in BAD:
            with pytest.raises(Fault) as caught:
                search.search(["emma"], 3, "train")
            assert caught.value.cause == "retriever_schema"


@pytest.mark.covers("SS-09", "SR-51")
def test_what_is_in_the_file_needs_no_network(tmp_path: Path) -> None:
    with engine("serper") as (search, server):
        online = search.search(["emma", "woodhouse"], 3, "train")
    offline = OnlineSearch(block("serper", server.url))
    assert offline.search(["woodhouse", "emma"], 3, "other") == online
    with pytest.raises(Fault, match="retriever_down"):
        offline.search(["knightley"], 3, "train")
    offline.close()
    assert KEY.encode() not in b"".join(path.read_bytes() for path in (tmp_path / "cache").iterdir())


def test_a_fault_loses_no_answer_that_was_paid_for() -> None:
    def flaky(asked: dict[str, Any], n: int) -> tuple[int, Any]:
        return (200, b"") if asked["q"] == "bad" else ANSWERS["serper"](asked, n)

    with engine("serper", flaky) as (search, server):
        with pytest.raises(Fault, match="retriever_schema"):
            search.search(["a", "bad"], 3, "train")
        before = len(server.asked)
        search.search(["a"], 3, "train")
        assert len(server.asked) == before == 2


@pytest.mark.covers("SS-08")
def test_ten_requests_are_under_way_at_once_and_no_more() -> None:
    together, lock, running = threading.Barrier(AT_ONCE, timeout=30), threading.Lock(), [0, 0]

    def answer(asked: dict[str, Any], n: int) -> tuple[int, Any]:
        with lock:
            running[0] += 1
            running[1] = max(running)
        together.wait()
        with lock:
            running[0] -= 1
        return ANSWERS["serper"](asked, n)

    with engine("serper", answer) as (search, _):
        assert search.search([f"q{i}" for i in range(3 * AT_ONCE)], 3, "train") == [documents("serper", 3)] * 30
    assert running == [0, AT_ONCE]


@pytest.mark.covers("SS-08")
def test_a_random_number_of_results_is_the_same_each_time() -> None:
    queries = [f"q{i}" for i in range(40)]
    with (
        engine("serper", seed=7, ways="+vary") as (search, server),
        engine("serper", seed=8, ways="+vary") as (other, _),
    ):
        kept = [len(found) for found in search.search(queries, 3, "train")]
        assert kept == [len(search.search([query], 3, "train")[0]) for query in queries]
        assert set(kept) == {1, 2, 3} and kept != [len(found) for found in other.search(queries, 3, "train")]
    assert len(server.asked) == 40


def test_the_configuration_puts_the_engine_in_place_of_data_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.jsonl").write_text(json.dumps({"id": "o", "contents": '"Other"\nemma at home'}) + "\n")
    cfg = Config()
    cfg.retriever.online.engine = "google_cse:cx-1"
    other = str(tmp_path / "other.jsonl")
    with serving("google_cse") as server:
        cfg.retriever.url = server.url
        search = corpora.search(cfg, ["train", other])
        assert server.asked == []  # the check at the start costs nothing
        assert search.search(["emma"], 3, "train") == [documents("google_cse", 3)]
        assert [d.id for d in search.search(["emma"], 3, other)[0]] == ["o"] and search.search(["e"], 3, "none") == [[]]
        assert len(server.asked) == 1
        recorded = corpora.recorded(cfg, ["train"], tmp_path / "r.db", 0.0, replay=False)
        online = recorded.search(["emma"], 3, "train")
    monkeypatch.delenv("GOOGLE_API_KEY")
    replay = corpora.recorded(cfg, ["train"], tmp_path / "r.db", 0.0, replay=True)
    assert replay.search(["emma"], 3, "train") == online
    with pytest.raises(InputError, match="GOOGLE_API_KEY is not set"):
        corpora.check_remote(cfg)
    del search, recorded, replay
    gc.collect()
    cfg.retriever.url, cfg.retriever.online.engine = "", ""
    corpus = tmp_path / "corpus.jsonl"
    cfg.data.corpus = str(corpus)
    names = []
    for city in ("Paris", "Lyon!"):  # as many bytes
        corpus.write_text(json.dumps({"id": "1", "contents": f'"France"\n{city}'}) + "\n")
        names.append(corpora.recorded(cfg, ["train"], tmp_path / "r.db", 0.0, replay=True)._retrievers["train"])
    assert names[0] != names[1], "another corpus, another record"


def test_an_engine_is_known_and_has_what_it_needs() -> None:
    said = refused("retriever.online.engine=altavista")
    assert said.rule.startswith("retriever.online.engine is one of serper, serpapi")
    load("quickstart", ["retriever.online.engine=serpapi:bing", "retriever.url=http://127.0.0.1:8000"])
