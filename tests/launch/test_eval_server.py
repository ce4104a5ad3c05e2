"""`ssp eval` and `ssp ask` with a policy behind a server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from launch import ask
from launch import eval as evaluate
from ssp.base.errors import InputError
from ssp.game.world import tokenizer as words

TOKENS = words.build()


class Handler(BaseHTTPRequestHandler):
    """A completion server of token ids: its policy searches for the first word asked about, then answers "none"."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = TOKENS.decode(asked["prompt"])
        said = "<answer> none </answer>" if "<information>" in text else f"<search> {text.split()[:2][-1]} </search>"
        ids = TOKENS.encode(said if "?" in text else "<eos>")
        choice = {"token_ids": ids, "logprobs": {"token_logprobs": [0.0] * len(ids)}, "finish_reason": "stop"}
        status = 200 if asked["model"] == "mine" else 404
        raw = json.dumps({"choices": [choice]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[list[str]]:
    """The flags that name the server."""
    TOKENS.save_pretrained(tmp_path / "tokenizer")
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    yield ["--policy", f"http://127.0.0.1:{http.server_port}/v1", "--tokenizer", str(tmp_path / "tokenizer")]
    http.shutdown()
    http.server_close()


def test_a_server_is_evaluated_with_the_protocols_own_rollout(
    server: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows"
    few = [*server, "--model", "mine", "--per-hop", "2", "--data", "world:heldout", "--out", str(out)]
    assert evaluate.main(few) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(row["prediction"], row["searches"], row["turns"], row["cause"]) for row in rows} == {("none", 1, 2, "")}
    assert "policy mine at http://127.0.0.1" in capsys.readouterr().out
    question = rows[0]["question"]
    assert ask.main([question, *server, "--model", "mine"]) == 0
    assert "answer: none (1 searches)" in capsys.readouterr().out


def test_a_server_without_that_model_is_refused(server: list[str]) -> None:
    with pytest.raises(InputError, match="model other"):
        evaluate.main([*server, "--model", "other", "--per-hop", "1"])
