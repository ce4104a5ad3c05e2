"""`ssp serve --judge`: a vLLM of our making is started, waited for, announced and ended; so is the real one on a CPU."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trainruns import alive, until

from launch import judgeserver, serve
from ssp.base.errors import InputError, SspError
from ssp.game.judge import Item
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build

sys.path.append(str(Path(__file__).parents[1] / "engines"))

ROOT = Path(__file__).parents[2]

FAKE = """import json, os, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

words, mode = sys.argv[1:], os.environ.get("FAKE_VLLM", "")
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
with open(os.environ["FAKE_LOG"], "w") as log:
    json.dump({"argv": words, "pid": os.getpid(), "helper": helper.pid, "key": os.environ.get("VLLM_API_KEY")}, log)
model = words[words.index("--model") + 1]
print("loading " + model, flush=True)
if mode == "dies":
    sys.exit(7)
if mode == "hangs":
    time.sleep(120)
asked = 0


class Handler(BaseHTTPRequestHandler):
    def answer(self, body, status=200):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        global asked
        asked += self.path == "/health"
        if self.path == "/health":
            self.answer({}, 200 if asked > 2 else 503)
        else:
            locked = os.environ.get("FAKE_VLLM") == "locked"
            self.answer({"data": [{"id": "served " + model}]}, 401 if locked else 200)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        allowed = self.headers["Authorization"] == f"Bearer {os.environ.get('VLLM_API_KEY')}"
        message = {"role": "assistant", "content": "Correct"}
        if allowed and self.path == "/v1/chat/completions":
            self.answer({"choices": [{"index": 0, "message": message}]})
        else:
            self.answer({"error": "no"}, 401)


HTTPServer((words[words.index("--host") + 1], int(words[words.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `vllm` is the first that Python finds; gives the file in which it says how it was called."""
    program = tmp_path / "path" / Path(*judgeserver.SERVER.split(".")).with_suffix(".py")
    program.parent.mkdir(parents=True)
    for folder in [*program.parents][:3]:
        (folder / "__init__.py").touch()
    program.write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path / "path")  # here it is only looked for
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'path'}:{ROOT}")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log.json"))
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path / "log.json"
    signal.signal(signal.SIGTERM, before)


def called(log: Path) -> dict[str, Any]:
    return dict(json.loads(log.read_text()))


@pytest.mark.covers("SP-07")
def test_a_server_is_started_announced_when_healthy_used_and_ended(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSP_JUDGE_KEY", "SENTINEL")
    ours = ["--judge", "my/model", "--port", "0", "--tensor-parallel", "8"]
    command = [sys.executable, "-m", "launch.serve", *ours, "--", "--max-model-len", "4096"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=dict(os.environ), **pipes)
    try:
        assert process.stdout is not None and process.stderr is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("judge served my/model on http://127.0.0.1:"), process.stderr.read()
        url = first.split()[-1]
        port = url.rpartition(":")[2].partition("/")[0]
        found = called(log)
        assert found["argv"] == [
            *("--model", "my/model", "--host", "127.0.0.1", "--port", port),
            *("--tensor-parallel-size", "8", "--max-model-len", "4096"),
        ]
        assert found["key"] == "SENTINEL"

        settings = shlex.split(second.removeprefix("use it with: "))
        cfg = load("quickstart", settings)
        assert (cfg.judge.kind, cfg.judge.url) == ("llm", url)
        assert build.judge(cfg).decide([Item("who ?", ("pota",), "perhaps pota")])[0].right is True

        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, "interrupted" in errors, "Traceback" in errors) == (130, True, False)
        assert "loading my/model" in errors and "SENTINEL" not in first + second + errors
        until("both have ended", lambda: not (alive(found["pid"]) or alive(found["helper"])), 10.0)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", int(port)), timeout=5)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("key", [["--api-key", "SENTINEL"], ["--api-key=SENTINEL"], ["--api_key=SENTINEL"]])
def test_a_key_on_the_command_line_is_refused_before_anything_shows_it(
    key: list[str], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="a key is in the environment"):
        serve.main(["--judge", "m", "--port", "0", "--", *key])
    said = capsys.readouterr()
    assert "SENTINEL" not in said.out + said.err and not log.exists()


def test_a_server_that_wants_another_key_is_said_at_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "locked")
    with pytest.raises(SspError, match="v1/models answers 401"):
        serve.main(["--judge", "m", "--port", "0"])
    until("its helper has ended", lambda: not alive(called(log)["helper"]), 10.0)


@pytest.mark.covers("SP-07")
def test_a_server_that_ends_before_it_is_healthy(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies")
    with pytest.raises(SspError, match="code 7 before it was healthy"):
        serve.main(["--judge", "m", "--port", "0"])
    assert called(log)["argv"][:2] == ["--model", "m"] and called(log)["key"] is None
    until("its helper has ended", lambda: not alive(called(log)["helper"]), 10.0)


@pytest.mark.covers("SP-07", "U12")
def test_a_server_that_is_never_healthy(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "hangs")
    begun = lambda: log.exists() and log.read_text().endswith("}")  # noqa: E731
    clock = SimpleNamespace(
        sleep=time.sleep, monotonic=lambda: 2.0 * begun()
    )  # its second is over once the server runs
    monkeypatch.setattr(judgeserver, "time", clock)
    with pytest.raises(SspError, match="not healthy at http://127.0.0.1:.* within 1 s.*--wait"):
        serve.main(["--judge=m", "--port=0", "--wait", "1"])
    until("both have ended", lambda: not (alive(called(log)["pid"]) or alive(called(log)["helper"])), 10.0)


def test_without_vllm_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install 'ssp"):
        serve.main(["--judge", "m"])


def test_a_taken_port_is_refused_before_anything_starts(log: Path) -> None:
    with serve.bind("127.0.0.1", 0) as taken, pytest.raises(InputError, match="port must be free"):
        serve.main(["--judge", "m", "--port", str(taken.getsockname()[1])])
    assert not log.exists()
