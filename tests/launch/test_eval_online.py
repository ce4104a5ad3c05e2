"""`ssp eval` with an engine of the web in place of the corpus: the documents it finds, and what its faults do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from webfakes import KEY, link, serving

from launch import eval as evaluate
from ssp.base.errors import InputError
from ssp.learning.coldstart import ARTEFACT

ASKED = ["--policy", str(ARTEFACT), "--data", "world:train", "--per-hop", "2", "--corpus", "world:train"]


pytestmark = pytest.mark.usefixtures("searcher")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERPER_API_KEY", KEY)


def rows(out: Path, url: str, *settings: str) -> list[dict[str, Any]]:
    named = ["retriever.online.engine=serper", f"retriever.url={url}", *settings]
    evaluate.main([*ASKED, "--out", str(out), *named])
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.covers("SS-08")
def test_policies_search_the_web(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving("serper") as server:
        found = rows(tmp_path / "a", server.url)
    assert len(found) == 8 and all(link(0) in json.dumps(row["documents"]) for row in found)
    said = capsys.readouterr()
    assert server.asked and KEY not in said.out + said.err + (tmp_path / "a").read_text()


def test_no_key_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERPER_API_KEY")
    with serving("serper") as server, pytest.raises(InputError, match="SERPER_API_KEY is not set"):
        rows(tmp_path / "a", server.url)
    assert server.asked == [] and not (tmp_path / "a").exists()
