"""`ssp eval` and `ssp ask` with a policy behind a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpfakes import answering

from launch import ask
from launch import eval as evaluate
from ssp.game.world import tokenizer as words

TOKENS = words.build()


def completion(asked: dict[str, Any]) -> tuple[int, Any]:
    """Of a server of token ids: its policy searches for the first word asked about, then answers "none"."""
    text = TOKENS.decode(asked["prompt"])
    said = "<answer> none </answer>" if "<information>" in text else f"<search> {text.split()[:2][-1]} </search>"
    ids = TOKENS.encode(said if "?" in text else "<eos>")
    choice = {"token_ids": ids, "logprobs": {"token_logprobs": [0.0] * len(ids)}, "finish_reason": "stop"}
    return 200 if asked["model"] == "mine" else 404, {"choices": [choice]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[list[str]]:
    """The flags that name the server."""
    TOKENS.save_pretrained(tmp_path / "tokenizer")
    with answering(completion) as url:
        yield ["--policy", f"{url}/v1", "--tokenizer", str(tmp_path / "tokenizer")]


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
    assert "answer: none (1 search, wrong; right: " in capsys.readouterr().out
