"""What a run is told of its limits before it starts: prompts, passages and turns, measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scripts import QWEN, SEARCH_R1, encode

from ssp.base.episode import Document
from ssp.config.role import LimitsConfig, RoleConfig, SourceConfig
from ssp.game import corpora, protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout.lengths import notes
from ssp.search.index.builder import IndexPlan, build_index
from ssp.selfplay.scene import read_scene
from ssp.selfplay.settings import load, warnings

WIDE = LimitsConfig(searches=2, turn_tokens=500, observation_tokens=1300, prompt_tokens=1000, total_tokens=5100)
PASSAGES = [Document(str(n), f'"Title {n}"\n' + "words of a passage " * (80 if n == 99 else 3)) for n in range(100)]
PROMPTS = [{"question": "Which city is it?"}, {"question": "Which river flows through the city that is meant here?"}]


def told(limits: LimitsConfig, **changes: object) -> list[str]:
    block = RoleConfig(limits=limits, **changes)  # type: ignore[arg-type]
    return notes("solver", block, SEARCH_R1, PROMPTS, PASSAGES)


def test_limits_that_fit_are_not_talked_about() -> None:
    assert told(WIDE) == []
    mini = load("quickstart")
    assert read_scene(mini).notes == []


def test_a_prompt_that_is_too_long_is_told_with_its_length_and_what_to_type() -> None:
    longest = max(len(encode(QWEN, SEARCH_R1.prompt("solver", fields))) for fields in PROMPTS)
    (note,) = told(replace(WIDE, prompt_tokens=16))
    assert f"2 prompts of the solver has {longest} tokens" in note and note.endswith(f"prompt_tokens={longest}")
    (note,) = told(replace(WIDE, prompt_tokens=16, total_tokens=4116))
    assert note.endswith(f"prompt_tokens={longest} solver.limits.total_tokens={4100 + longest}")


def test_the_99th_percentile_of_the_passages_is_told_when_it_would_be_cut() -> None:
    sizes = [len(encode(QWEN, protocols.get("search-r1").observation([document]))) for document in PASSAGES]
    most = int(np.quantile(sizes, 0.99, method="higher"))
    (note,) = told(replace(WIDE, observation_tokens=most - 1))
    assert f"is {most} tokens" in note and f"set solver.limits.observation_tokens={most}" in note
    assert told(replace(WIDE, observation_tokens=most)) == []
    assert told(replace(WIDE, observation_tokens=9), search=SourceConfig("self")) == [], "nothing is shown"


def test_a_turn_of_the_toy_has_no_room_for_words() -> None:
    (note,) = told(replace(WIDE, turn_tokens=24))
    tags = len(encode(QWEN, "<think></think><search></search>"))
    assert f"take {tags} tokens of solver.limits.turn_tokens=24" in note and "turn_tokens=500" in note


@pytest.mark.parametrize("name", ["recall", "chat-tools", "research", "ssp"])
def test_every_protocol_is_measured(name: str) -> None:
    spoken = Renderer(protocols.get(name), QWEN)
    assert len(notes("solver", RoleConfig(), spoken, PROMPTS, PASSAGES)) == 3, "the toy's limits, all of them"


def test_a_run_is_told_about_its_own_data() -> None:
    cfg = load("quickstart", ["solver.limits.observation_tokens=6", "proposer.limits.prompt_tokens=2"])
    prompt, passages = read_scene(cfg).notes
    assert "set proposer.limits.prompt_tokens=3" in prompt and "solver.limits.observation_tokens=6 is cut" in passages


def test_a_sample_of_an_index_is_the_sample_of_its_file(tmp_path: Path) -> None:
    file, lines = tmp_path / "c.jsonl", [f'{{"id": "{n}", "contents": "\\"T{n}\\"\\nword{n}"}}' for n in range(1200)]
    file.write_text("\n".join(lines) + "\n")
    build_index(file, tmp_path / "index", IndexPlan())
    found = corpora.sample(file)
    assert corpora.sample(tmp_path / "index") == found
    assert (len(found), found[0].id, found[-1].id) == (corpora.SAMPLE, "0", "1199")


def test_self_search_with_a_real_retriever_is_told() -> None:
    keys = ["protocol=ssrl", "referee.evidence=none", "referee.rules=[empty]"]
    assert any("search.kind=self" in line for line in warnings(load("quickstart", keys)))
    assert not warnings(load("quickstart", [*keys, "solver.search.kind=first_k"]))
