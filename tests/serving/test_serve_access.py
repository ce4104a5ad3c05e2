"""`ssp serve` as ASearcher's server: `/access`, and the address and the title of what a search finds."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from localsearch import local
from searchserver import create_app, post, running

from launch import serve
from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.data.readers import read_corpus
from ssp.game import corpora
from ssp.record.manifest import own_digest
from ssp.search.index.builder import IndexPlan, build_index
from ssp.search.index.store import MANIFEST, NAMES
from ssp.search.router import LocalFleet
from ssp.search.serving.api import CORPUS, SearchApi
from ssp.search.shard import in_memory
from ssp.search.source import HttpSearch

URL = "http://pota.example/wiki?curid=1"
ROWS: list[dict[str, Any]] = [
    {"id": "p", "title": "Pota", "text": "pota a company . seat vure .", "url": URL},
    {"id": "q", "contents": '"Pota"\npota , second part .', "url": URL, "title": None},
    {"id": "v", "contents": '"Vure"\nvure a city . é', "url": 7},
    {"id": URL + "#", "title": " The town Vure ", "contents": "vure again .", "url": "v"},
]
FIRST = {"id": "p", "contents": '"Pota"\npota a company . seat vure .', "url": URL, "title": "Pota"}
SECOND = {"id": "q", "contents": '"Pota"\npota , second part .', "url": URL}
PLAIN = {"id": "v", "contents": '"Vure"\nvure a city . é'}
LAST = {"id": URL + "#", "contents": "vure again .", "url": "v", "title": "The town Vure"}
MADE = ("file", "index", "index.gz", "index.json")


@pytest.fixture(scope="module", params=MADE)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over the rows: of a file in memory, of an index, of one whose rows are written anew."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = "\n".join(map(json.dumps, ROWS)).encode()
    written = {"index.json": json.dumps(ROWS).encode(), "index.gz": gzip.compress(lines)}
    corpus = folder / {"index.json": "c.json", "index.gz": "c.jsonl.gz"}.get(request.param, "c.jsonl")
    corpus.write_bytes(written.get(request.param, lines))
    cfg = Config()
    cfg.data.corpus, cfg.retriever.shards = str(corpus), 1
    if request.param != "file":
        build_index(corpus, folder / "index", IndexPlan())
        cfg.data.corpus = str(folder / "index")
    app = SearchApi(4)
    app.open(serve.loaded(cfg, SimpleNamespace()))  # type: ignore[arg-type]
    with running(app) as base:
        yield base


def test_a_document_is_fetched_by_its_url_or_its_id(address: str) -> None:
    """As ASearcher's client asks, which looks for null and for `contents`. An id goes before a URL, and of several
    passages with one URL the first comes."""
    asked = [URL, "q", "nowhere", "v", URL + "#", "", "v", " v"]
    reply = post(address, "/access", json={"urls": asked})
    assert reply.status_code == 200
    assert reply.json() == {"result": [FIRST, SECOND, None, PLAIN, LAST, None, PLAIN, None]}
    assert post(address, "/access", json={"urls": []}).json() == {"result": []}


def test_replies_have_url_and_title_where_a_row_has_them(address: str) -> None:
    reply = post(address, "/retrieve", json={"queries": ["company", "city"], "topk": 1}).json()
    assert reply == {"result": [[FIRST], [PLAIN]]}
    scored = post(address, "/retrieve", json={"queries": ["company"], "topk": 1, "return_scores": True}).json()
    assert scored["result"][0][0]["document"] == FIRST
    assert post(address, "/search", json={"query": "second", "top_n": 1}).json() == [SECOND]
    assert post(address, "/batch_search", json={"query": ["again"], "top_n": 1}).json() == [[LAST]]
    (documents,) = HttpSearch(address).search(["company"], 1, "train")
    assert [(d.id, d.contents) for d in documents] == [("p", FIRST["contents"])], "our own client reads on"


@pytest.mark.parametrize("body", [{"urls": URL}, {"urls": [3]}, {}])
def test_a_bad_request_for_documents_is_refused_with_its_field(body: object, address: str) -> None:
    reply = post(address, "/access", json=body)
    assert reply.status_code == 422 and "urls" in reply.text


def test_clients_that_ask_at_once_get_their_own_documents(address: str) -> None:
    got: dict[int, Any] = {}

    def ask(number: int) -> None:
        body = {"urls": [ROWS[(number + i) % 4]["id"] for i in range(3)]}
        got[number] = httpx.post(f"{address}/access", json=body, trust_env=False).json()["result"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    items = [FIRST, SECOND, PLAIN, LAST]
    assert got == {number: [items[(number + i) % 4] for i in range(3)] for number in range(16)}


def test_an_index_of_before_is_served_and_names_nothing(tmp_path: Path) -> None:
    """A server that holds no names says so, and searches as ever."""
    with running(create_app(_searching(tmp_path), 1)) as base:
        reply = post(base, "/access", json={"urls": ["p"]})
        assert reply.status_code == 501 and "ssp index" in reply.text
        assert post(base, "/retrieve", json={"queries": ["company"]}).json() == {"result": [[FIRST]]}
    build_index(tmp_path / "c.jsonl", tmp_path / "index", IndexPlan())
    whole = corpora.documents(
        tmp_path / "index", LocalFleet([corpora.shard(tmp_path / "index", Config().retriever, 0, 1)])
    )
    again = corpora.documents(tmp_path / "index", SimpleNamespace())  # type: ignore[arg-type]
    held = corpora.documents(tmp_path / "c.jsonl", SimpleNamespace())  # type: ignore[arg-type]
    assert whole and again and held
    asked = [row["id"] for row in ROWS]
    assert whole.named(asked) == again.named(asked) == held.named(asked) == read_corpus(tmp_path / "c.jsonl")
    flipped = bytearray((tmp_path / "index" / NAMES).read_bytes())
    flipped[-1] ^= 1
    (tmp_path / "index" / NAMES).write_bytes(flipped)
    with pytest.raises(InputError, match="names.npy differs from its checksum"):
        corpora.documents(tmp_path / "index", SimpleNamespace())  # type: ignore[arg-type]
    body = json.loads((tmp_path / "index" / MANIFEST).read_text())
    del body["files"][NAMES]
    body["sha256"] = own_digest(body)
    (tmp_path / "index" / MANIFEST).write_text(json.dumps(body))
    assert corpora.documents(tmp_path / "index", SimpleNamespace()) is None  # type: ignore[arg-type]


def _searching(folder: Path) -> Any:
    (folder / "c.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return local(CORPUS, in_memory(read_corpus(folder / "c.jsonl")))
