"""`ssp serve` as a command: its flags, its process, its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from searchserver import DOCUMENTS, get, post, tiny
from trainruns import PATIENCE, REPO, until

from launch import serve
from launch.cli import options
from ssp.base.errors import InputError
from ssp.search.source import HttpSearch


@pytest.fixture
def corpus_file(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": d.id, "contents": d.contents}) + "\n" for d in DOCUMENTS))
    return path


@contextmanager
def started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": f"{REPO}:{REPO / 'tests'}"}
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, *command], env=environment, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.communicate()


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line.startswith("serving "), process.stderr.read()
    return line.split()[-1]


@pytest.mark.covers("U11")
@pytest.mark.ray
def test_the_command_prints_its_port_answers_and_stops_on_interrupt(corpus_file: Path) -> None:
    command = ["-m", "launch.serve", "--corpus", str(corpus_file), "--topk", "1", "--port"]
    with started([*command, "0"]) as process:
        base = address(process)
        assert base.startswith("http://127.0.0.1:")
        client = HttpSearch(base)
        assert [d.id for d in client.search(["vure"], 3, "train")[0]] == ["vure", "pota"]
        client.close()
        assert len(post(base, json={"queries": ["vure"]}).json()["result"][0]) == 1
        status = get(base, "/status").json()
        assert (status["documents"], status["kind"], status["shards"]) == (
            3,
            "bm25",
            [{"first": 0, "rows": 3, "state": "up", "replicas": 1}],
        )
        port = base.rsplit(":", 1)[1]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, "interrupted" in errors, "Traceback" in errors) == (130, True, False)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", int(port)), timeout=5)


HELD = """
import pathlib, sys, time
from searchserver import tiny
from launch import index, serve
from ssp.search.serving.api import SearchApi, Served

here, inner = pathlib.Path(sys.argv[1]), tiny()

class Held:
    def search(self, *asked):
        (here / "entered").touch()
        while not (here / "go").exists():
            time.sleep(0.01)
        return inner.search(*asked)

with serve.bind("127.0.0.1", 0) as listener:
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    code = serve.running(SearchApi(3), listener, lambda: Served(Held(), about={"documents": 3}), address)
print("left")
raise SystemExit(code)
"""


@pytest.mark.ray
def test_sigterm_lets_what_is_under_way_finish(tmp_path: Path) -> None:
    script = tmp_path / "held.py"
    script.write_text(HELD)
    with started([str(script), str(tmp_path)]) as process, ThreadPoolExecutor(1) as pool:
        base = address(process)
        reply = pool.submit(post, base, json={"queries": ["pota"]})
        until("the search began", (tmp_path / "entered").exists, every=0.01)
        process.send_signal(signal.SIGTERM)
        place = ("127.0.0.1", int(base.rsplit(":", 1)[1]))
        until("nobody is let in any more", lambda: refused(place), every=0.01)
        assert process.poll() is None and not reply.done()
        (tmp_path / "go").touch()
        assert [d["id"] for d in reply.result(60).json()["result"][0]] == ["pota", "bino"]
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (0, "left\n", "")


def refused(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=5).close()
    except OSError:
        return True
    return False


@pytest.mark.covers("U11")
def test_a_taken_port_and_a_foreign_address_are_refused(corpus_file: Path) -> None:
    with serve.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"{port}.*in use"):
            serve.main(["--corpus", str(corpus_file), "--port", str(port)])
    serve.bind("127.0.0.1", port).close()
    with pytest.raises(InputError):
        serve.bind("203.0.113.7", 0)


WRONG = (
    "",
    "--port 70000",
    "--topk 0",
    "--index i",
    "--kind dense",
    "--timeout 0",
)


def test_a_bad_corpus_ends_the_command_before_it_says_that_it_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "corpus.jsonl"
    bad.write_text('{"id": "a", "contents": "x"}\n{')
    with pytest.raises(InputError, match="line 2"):
        serve.main(["--corpus", str(bad), "--port", "0"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [*map(str.split, WRONG), ["--reranker", "/no/such/folder"]])
def test_bad_arguments_are_refused(arguments: list[str], corpus_file: Path) -> None:
    given = ["--corpus", str(corpus_file), "--port", "0", *arguments] if arguments else []
    with pytest.raises(InputError):
        serve.main(given)


def test_flags_are_the_settings_of_the_retriever(corpus_file: Path) -> None:
    typed = ["--corpus", str(corpus_file), "--timeout", "80", "--topk", "4"]
    block = serve.configured(options(typed, "serve", "", serve.flags)).retriever
    assert (block.timeout, block.topk) == (80, 4)
    assert (block.shards, block.replicas) == (1, 1)


@pytest.mark.ray
def test_shards_and_replicas_answer_as_one_process_does_and_end_with_the_command(corpus_file: Path) -> None:
    command = ["-m", "launch.serve", "--corpus", str(corpus_file), "--port", "0", "--shards", "2", "--replicas", "2"]
    with started(command) as process:
        base = address(process)
        until("all replicas are up", lambda: [s["replicas"] for s in get(base, "/status").json()["shards"]] == [2, 2])
        assert get(base, "/readyz").json() == {"status": "ready", "coverage": 1.0}
        client, asked = HttpSearch(base, timeout=60.0), ["pota", "city mayor", "none", "東京"]
        assert client.search(asked, 3, "train") == tiny(shards=1).search(asked, 3, "train")
        client.close()
        ours = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, "Traceback" in errors) == (0, False), errors
        until("nothing of it is left", lambda: not any(child.is_running() for child in ours))
