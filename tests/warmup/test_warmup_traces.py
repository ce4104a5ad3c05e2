"""Traces become episodes by the rollout itself: same prompts, observations and masks; bad lines are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import scripts

from ssp.base.episode import Document, Episode, Outcome
from ssp.base.errors import InputError
from ssp.base.tokenlog import Kind
from ssp.config.schema import RefereeConfig
from ssp.game import protocols
from ssp.game.protocols.bare import decode
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee import EngineVerifier
from ssp.game.world import tokenizer as words
from ssp.learning.warmup import traces

PARIS = {"id": "1", "contents": '"Paris"\nParis is the capital of France.'}
GOOD: dict[str, Any] = {
    "fields": {"question": "Which city is it?"},
    "turns": [scripts.search("capital of France"), scripts.ANSWER],
    "results": [[PARIS]],
}
READS: dict[str, Any] = {
    "role": "quoting",
    "fields": {"question": "Which city is it"},
    "documents": [PARIS, {"id": "2", "contents": '"Rome"\n<answer> Rome </answer> is not it.'}],
    "turns": ['<quote id="1">capital of France</quote> <answer> Paris </answer>'],
}
REFEREE = RefereeConfig(evidence="quoted", prompt_tokens=1200)


def read(folder: Path, *rows: object) -> list[traces.Trace]:
    path = folder / "traces.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return traces.read(path)


def played(folder: Path, *rows: object) -> Any:
    told = read(folder, *rows)
    limits = scripts.LIMITS if told[-1].role == "solver" else traces.verifies(REFEREE)
    return traces.episodes([trace for trace in told if trace.role == told[-1].role], scripts.SEARCH_R1, limits, 3)


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


@pytest.mark.parametrize("protocol", ["search-r1", "mini"])
def test_a_verifiers_trace_has_the_referees_prompt(tmp_path: Path, protocol: str) -> None:
    """In natural language, and in the protocol's own words where it has some; documents are shown as the referee shows
    them, and its answer alone is trained."""
    own = Renderer(protocols.get("mini"), words.build()) if protocol == "mini" else scripts.SEARCH_R1
    cfg, turn = (REFEREE, READS["turns"][0]) if protocol != "mini" else (RefereeConfig(), "<answer> none </answer>")
    (trace,) = read(tmp_path, {**READS, "role": "verifier" if protocol == "mini" else "quoting", "turns": [turn]})
    (episode,) = traces.episodes([trace], own, traces.verifies(cfg), 3)
    verifier = EngineVerifier(scripts.scripted([]), own, cfg)
    written = verifier.write([Document(**document) for document in READS["documents"]], "Which city is it")
    prompt = [id for id, kind in zip(episode.log.ids, episode.log.kinds, strict=True) if kind == int(Kind.PROMPT)]
    assert written is not None and prompt == written[1]
    answer = decode(own.tokenizer, episode.log.ids[len(prompt) :])
    assert episode.log.mask.tolist() == [False] * len(prompt) + [True] * (len(episode.log) - len(prompt))
    assert verifier.form.final(verifier.role, answer) == episode.final == ("none" if protocol == "mini" else "Paris")


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("{", "is one JSON object"),
        ("[]", "is one JSON object"),
        ({**GOOD, "role": "judge"}, "role is one of"),
        ({**GOOD, "fields": {}}, "fields fill the prompt"),
        ({**GOOD, "turns": []}, "turns is a list of at least one string"),
        ({**GOOD, "results": [["Paris"]]}, "a document is"),
        ({**GOOD, "results": [[{"id": "1", "contents": "half \ud800"}]]}, "results.contents is valid Unicode"),
        ({**GOOD, "fields": {"target": "Paris"}}, "needs question"),
        ({**GOOD, "results": []}, "results hold the documents of each query"),
        ({**GOOD, "results": [[PARIS], [PARIS]]}, "results hold one list of documents a query"),
        ({**GOOD, "turns": GOOD["turns"][:1]}, "the last one hands in"),
        ({**GOOD, "turns": [*GOOD["turns"], "and more"]}, "a turn ends where the policy would stop"),
        ({**GOOD, "turns": [GOOD["turns"][0] + " more", scripts.ANSWER]}, "a turn ends where the policy would stop"),
        ({**GOOD, "turns": ["x " * 500, scripts.ANSWER]}, "a trace fits solver.limits"),
        ({**READS, "documents": []}, "a verifier is shown a list of documents, and a question"),
        ({**READS, "fields": {"target": "Paris"}}, "a verifier is shown a list of documents, and a question"),
        ({**READS, "documents": ["Paris"]}, "a document is"),
        ({**READS, "documents": [{"id": "\ud800", "contents": "Paris"}]}, "documents.id is valid Unicode"),
        ({**READS, "turns": ["It is Paris."]}, "the last one hands in"),
        ({**READS, "turns": ["<search> Paris </search>"]}, "the last one hands in"),
        ({**READS, "turns": READS["turns"] * 2}, "a turn ends where the policy would stop"),
        ({**READS, "turns": ["x " * 200 + READS["turns"][0]]}, "a verifier's prompt fits referee.prompt_tokens"),
        ({**READS, "documents": [PARIS] * 60}, "a verifier's prompt fits referee.prompt_tokens"),
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


def test_a_verifiers_prompt_may_have_just_as_many_tokens_as_the_referee_gives_it(tmp_path: Path) -> None:
    (trace,) = read(tmp_path, {**READS, "documents": [PARIS] * 8})

    def played_under(tokens: int) -> Episode:
        cfg = RefereeConfig(evidence="quoted", prompt_tokens=tokens)
        (episode,) = traces.episodes([trace], scripts.SEARCH_R1, traces.verifies(cfg), 3)
        return episode

    prompt = played_under(4000).log.count(Kind.PROMPT)
    assert played_under(prompt).log.count(Kind.PROMPT) == prompt
    with pytest.raises(InputError, match="fits referee.prompt_tokens"):
        played_under(prompt - 1)
