"""`ssp eval` and `ssp train` over a search server: the same rows as over the corpus itself, and what its faults do."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from httpfakes import Answer, answering

from launch import eval as evaluate
from launch import train
from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.learning.coldstart import ARTEFACT

ASKED = ["--policy", str(ARTEFACT), "--data", "world:train", "--per-hop", "4"]


pytestmark = pytest.mark.usefixtures("searcher")


def serving(answer: Answer, seen: list[dict[str, Any]]) -> AbstractContextManager[str]:
    """A search server; what it was asked goes to `seen`."""

    def noted(body: dict[str, Any]) -> tuple[int, Any]:
        seen.append(body)
        return answer(body)

    return answering(noted)


def found(body: dict[str, Any]) -> tuple[int, Any]:
    """What `ssp serve` would answer over the training world."""
    answers = WORLD.search(body["queries"], body["topk"], corpora.TRAIN)
    return 200, {
        "result": [
            [{"document": {"id": d.id, "contents": d.contents}, "score": d.score} for d in documents]
            for documents in answers
        ]
    }


@pytest.fixture(autouse=True, scope="module")
def _world() -> None:
    global WORLD
    WORLD = corpora.search(Config(), [corpora.TRAIN])


def rows(out: Path, *settings: str) -> list[dict[str, Any]]:
    evaluate.main([*ASKED, "--corpus", "world:train", "--out", str(out), *settings])
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_server_finds_what_the_corpus_holds(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with serving(found, seen) as url:
        over_http = rows(tmp_path / "a", f"retriever.url={url}")
    assert over_http == rows(tmp_path / "b") and all(row["documents"] for row in over_http)
    assert len(seen) == 2 and seen[1]["topk"] == 3 and len(seen[1]["queries"]) > 6, "one request tries the server"


@pytest.mark.covers("U12")
def test_training_refuses_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with answering(lambda body: (200, {})) as url:
        gone = url
    fast = [f"defaults.model={ARTEFACT}", f"run.dir={tmp_path / 'run'}", f"retriever.url={gone}", "retriever.timeout=1"]
    with pytest.raises(InputError, match="retriever.url answers"):
        train.main(["--config", "quickstart", *fast])
    assert not (tmp_path / "run").exists()
