"""`ssp index` and `ssp serve`, over a real loopback socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from launch import index, serve
from ssp.episode import Document
from ssp.errors import Fault, InputError
from ssp.search import LocalSearch, build, load
from ssp.search.source import HttpSearch

CORPUS = [
    Document("pota", '"pota"\npota a company . pota seat vure .'),
    Document("vure", '"vure"\nvure a city . vure mayor bino .'),
    Document("bino", '"bino"\nbino a person . bino employer pota . 東京'),
]
ROOT = Path(__file__).parents[2]


class Down:
    def search(self, queries, k, corpus):
        raise Fault("retriever_down", "shard 1")


@contextmanager
def running(app):
    """The app under uvicorn in a thread; gives the base address."""
    with serve.bind("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            deadline = time.monotonic() + 20
            while not server.started and time.monotonic() < deadline:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def address():
    whole = build(CORPUS)
    search = LocalSearch({serve.CORPUS: [whole.shard(i, 2) for i in range(2)]})
    with running(serve.create_app(search, 2, serve.describe(whole))) as base:
        yield base


@pytest.fixture
def corpus_file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": d.id, "contents": d.contents}) + "\n" for d in CORPUS))
    return path


def post(base, **kwargs):
    return httpx.post(f"{base}/retrieve", trust_env=False, timeout=10, **kwargs)


@pytest.mark.covers("SR-40")
def test_the_stock_request(address):
    reply = post(address, json={"queries": ["pota", "東京", "unknown"], "topk": 3, "return_scores": True})
    assert reply.status_code == 200
    result = reply.json()["result"]
    assert [[item["document"]["id"] for item in found] for found in result] == [["pota", "bino"], ["bino"], []]
    assert result[0][0]["document"] == {"id": "pota", "contents": CORPUS[0].contents}
    assert result[0][0]["score"] > result[0][1]["score"] > 0
    assert set(result[0][0]) == {"document", "score"}


@pytest.mark.covers("SR-40")
def test_without_scores_the_items_are_the_documents(address):
    for body in ({"queries": ["a"]}, {"queries": ["a"], "topk": None, "return_scores": False, "other": 1}):
        assert post(address, json=body).json() == {"result": [[vars_of(CORPUS[0]), vars_of(CORPUS[1])]]}
    assert post(address, json={"queries": []}).json() == {"result": []}


def vars_of(document):
    return {"id": document.id, "contents": document.contents}


def test_health_and_status(address):
    before = httpx.get(f"{address}/status", trust_env=False).json()
    post(address, json={"queries": ["a", "b"]})
    post(address, content=b"{")
    after = httpx.get(f"{address}/status", trust_env=False).json()
    assert (after["documents"], after["topk"], after["corpus_sha256"]) == (3, 2, build(CORPUS).corpus_sha256)
    assert [after[n] - before[n] for n in ("requests", "queries", "refused", "faults")] == [2, 2, 1, 0]
    assert httpx.get(f"{address}/healthz", trust_env=False).json() == {"status": "ok"}


@pytest.mark.parametrize(
    "content, status, word",
    [
        (b"", 400, "JSON"),
        (b"{", 400, "JSON"),
        (b'{"queries": ["\xff"]}', 400, "JSON"),
        (b"[" * 100_000, 400, "JSON"),
        (b'{"queries": [' + b"1" * 5000 + b"]}", 400, "JSON"),
        (b"[]", 422, "body"),
        (b"{}", 422, "queries"),
        (b'{"queries": "pota"}', 422, "queries"),
        (b'{"queries": [3]}', 422, "queries.0"),
        (b'{"queries": ["\\ud800"]}', 422, "queries.0"),
        (b'{"queries": ["a"], "topk": 0}', 422, "topk"),
        (b'{"queries": ["a"], "topk": 1000000}', 422, "topk"),
        (b'{"queries": ["a"], "topk": "3"}', 422, "topk"),
        (b'{"queries": ["a"], "topk": NaN}', 422, "topk"),
        (b'{"queries": ["a"], "return_scores": "yes"}', 422, "return_scores"),
        (json.dumps({"queries": ["a" * (serve.MAX_QUERY + 1)]}).encode(), 422, "queries.0"),
        (json.dumps({"queries": ["a"] * (serve.MAX_QUERIES + 1)}).encode(), 422, "queries"),
        (b" " * (serve.MAX_BODY + 1), 413, "bytes"),
    ],
)
def test_a_bad_body_is_told_why(address, content, status, word):
    reply = post(address, content=content)
    assert (reply.status_code, word in reply.json()["detail"]) == (status, True), reply.text


def test_replies_do_not_wait_for_an_acknowledgement():
    """40 ms a request without it: asyncio leaves a socket made elsewhere as it is."""
    with serve.bind("127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_wrong_paths_and_methods(address):
    assert httpx.get(f"{address}/retrieve", trust_env=False).status_code == 405
    assert httpx.post(f"{address}/nothing", trust_env=False).status_code == 404


def test_http_search_equals_local_search_over_a_real_server(address):
    local, remote = LocalSearch({"train": [build(CORPUS)]}), HttpSearch(address)
    asked = ["pota", "city person", "unknown", "", "\ud800", "x" * (serve.MAX_QUERY + 1), "東京"]
    assert remote.search(asked, 2, "train") == local.search(asked, 2, "train")
    remote.close()


def test_a_fault_is_a_503_and_a_fault_again_at_the_client():
    with running(serve.create_app(Down(), 3)) as base:
        reply = post(base, json={"queries": ["a"]})
        assert (reply.status_code, reply.json()["detail"]) == (503, "retriever_down: shard 1")
        with pytest.raises(Fault, match="retriever_down"):
            HttpSearch(base, tries=2, backoff=0.01).search(["a"], 3, "train")
        assert httpx.get(f"{base}/status", trust_env=False).json()["faults"] == 3


def test_a_taken_port_and_a_foreign_address_are_refused(corpus_file):
    with serve.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"{port}.*in use"):
            serve.main(["--corpus", str(corpus_file), "--port", str(port)])
    serve.bind("127.0.0.1", port).close()
    with pytest.raises(InputError):
        serve.bind("203.0.113.7", 0)


@pytest.mark.parametrize("arguments", [[], ["--port", "x"], ["--port", "70000"], ["--topk", "0"], ["--index", "i"]])
def test_bad_arguments_are_refused(arguments, corpus_file):
    given = ["--corpus", str(corpus_file), *arguments] if arguments else []
    with pytest.raises(InputError):
        serve.main(given)


def test_index_then_load(corpus_file, tmp_path, capsys):
    out = tmp_path / "made" / "index"
    assert index.main(["--corpus", str(corpus_file), "--out", str(out), "--k1", "0.9", "--b", "0.4"]) == 0
    assert "3 documents" in capsys.readouterr().out
    assert load(out).retrieve(["pota a"], 3) == build(CORPUS, 0.9, 0.4).retrieve(["pota a"], 3)
    with pytest.raises(InputError, match="does not exist yet"):
        index.main(["--corpus", str(corpus_file), "--out", str(out)])


@pytest.mark.parametrize("line, word", [("{", "line 4"), (json.dumps({"id": "pota", "contents": "x"}), "unique")])
def test_index_of_a_bad_corpus_leaves_nothing(corpus_file, tmp_path, line, word):
    corpus_file.write_text(corpus_file.read_text() + line)
    with pytest.raises(InputError, match=word):
        index.main(["--corpus", str(corpus_file), "--out", str(tmp_path / "out")])
    with pytest.raises(InputError, match="must exist"):
        index.main(["--corpus", str(tmp_path / "gone"), "--out", str(tmp_path / "out")])
    with pytest.raises(InputError, match="k1"):
        corpus_file.write_text(json.dumps({"id": 1, "contents": "x"}))
        index.main(["--corpus", str(corpus_file), "--out", str(tmp_path / "out"), "--b", "7"])
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_the_command_prints_its_port_answers_and_stops_on_interrupt(corpus_file, tmp_path):
    out = tmp_path / "index"
    index.main(["--corpus", str(corpus_file), "--out", str(out)])
    command = [sys.executable, "-m", "launch.serve", "--index", str(out), "--port", "0", "--topk", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=environment, **pipes)
    try:
        line = process.stdout.readline()
        assert line.startswith("serving 3 documents on http://127.0.0.1:"), process.stderr.read()
        base = line.split()[-1]
        assert [d.id for d in HttpSearch(base).search(["vure"], 3, "train")[0]] == ["vure", "pota"]
        assert len(post(base, json={"queries": ["vure"]}).json()["result"][0]) == 1
        again = subprocess.run([*command[:-3], base.rsplit(":", 1)[1]], env=environment, capture_output=True, text=True)
        assert (again.returncode, "port must be free" in again.stderr, again.stdout) == (2, True, "")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, "interrupted" in errors, "Traceback" in errors) == (130, True, False)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", int(base.rsplit(":", 1)[1])), timeout=5)
    finally:
        process.kill()
        process.wait()
