"""Traces become episodes by the rollout itself: same prompts, observations and masks; bad lines are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import scripts

from ssp.base.episode import Document, Outcome
from ssp.base.errors import InputError
from ssp.base.tokenlog import Kind
from ssp.game.protocols.renderer import decode
from ssp.learning.warmup import traces

PARIS = {"id": "1", "contents": '"Paris"\nParis is the capital of France.'}
GOOD: dict[str, Any] = {
    "fields": {"question": "Which city is it?"},
    "turns": [scripts.search("capital of France"), scripts.ANSWER],
    "results": [[PARIS]],
}


def read(folder: Path, *rows: object) -> list[traces.Trace]:
    path = folder / "traces.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return traces.read(path)


def played(folder: Path, *rows: object) -> Any:
    return traces.episodes(read(folder, *rows), scripts.SEARCH_R1, scripts.LIMITS, 3)


@pytest.mark.covers("SR-08")
def test_a_trace_is_tokenised_as_play_would(tmp_path: Path) -> None:
    (episode,) = played(tmp_path, GOOD)
    tokens = scripts.SEARCH_R1
    (same,) = scripts.play([GOOD["turns"]], scripts.Books([Document(**PARIS)]))
    assert episode.log.ids == same.log.ids and episode.log.kinds == same.log.kinds
    wrote = [id for id, kind in zip(episode.log.ids, episode.log.kinds, strict=True) if kind == int(Kind.MODEL)]
    assert decode(tokens.tokenizer, wrote) == "".join(GOOD["turns"])
    assert (episode.final, episode.outcome, episode.documents[0].id) == ("Paris", Outcome.SCORED, "1")


def test_traces_of_one_file_do_not_share_what_they_find(tmp_path: Path) -> None:
    rome = {"id": "2", "contents": '"Rome"\nRome is a city.'}
    first, second = played(tmp_path, GOOD, "", {**GOOD, "results": [[rome]]})
    assert [document.id for document in (*first.documents, *second.documents)] == ["1", "2"]


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("{", "is one JSON object"),
        ("[]", "is one JSON object"),
        ({**GOOD, "role": "judge"}, "role is one of"),
        ({**GOOD, "fields": {}}, "fields fill the prompt"),
        ({**GOOD, "turns": []}, "turns is a list of at least one string"),
        ({**GOOD, "results": [["Paris"]]}, "a document is"),
        ({**GOOD, "results": []}, "results hold the documents of each query"),
        ({**GOOD, "results": [[PARIS], [PARIS]]}, "results hold one list of documents a query"),
        ({**GOOD, "turns": GOOD["turns"][:1]}, "the last one hands in"),
        ({**GOOD, "turns": [*GOOD["turns"], "and more"]}, "a turn ends where the policy would stop"),
        ({**GOOD, "turns": [GOOD["turns"][0] + " more", scripts.ANSWER]}, "a turn ends where the policy would stop"),
        ({**GOOD, "turns": ["x " * 500, scripts.ANSWER]}, "a trace fits solver.limits"),
    ],
    ids=str,
)
def test_a_bad_line_is_named(tmp_path: Path, row: object, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        played(tmp_path, GOOD, row)
    assert rule in caught.value.rule and "line 2" in str(caught.value.found)


def test_no_traces_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one trace"):
        read(tmp_path, "")
    with pytest.raises(InputError, match="jsonl file of traces"):
        traces.read(tmp_path / "none.jsonl")
