"""Lengths and endings of a step's episodes, and the one sentence about a policy that cannot play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import Stage, config

from ssp.base.episode import SOLVER, Episode, Outcome
from ssp.base.tokenlog import Kind
from ssp.engines import ScriptedEngine
from ssp.selfplay.records import Brief
from ssp.selfplay.report import PATIENCE, Report, role_figures
from ssp.selfplay.workers import build


def brief(stopped: str, written: int, observed: int, **facts: Any) -> Brief:
    """Of an episode with a prompt of three tokens, a turn, and an observation in a frame of two."""
    episode = Episode("s", "g", SOLVER, 0, stopped=stopped, **facts)
    episode.log.append(Kind.PROMPT, [1] * 3)
    episode.log.append_model([1] * written, [0.0] * written, 1)
    if observed:
        for kind, ids in ((Kind.TEMPLATE, [1]), (Kind.OBSERVATION, [1] * observed), (Kind.TEMPLATE, [1])):
            episode.log.append(kind, ids)
    return Brief.of(episode, "f", 0)


def test_lengths_and_endings_are_counted_from_the_episodes() -> None:
    played = [
        brief("final", 4, 5, final="x"),
        brief("tokens", 20, 0, cut=True),
        brief("tokens", 2, 9),
        brief("malformed", 1, 0),
        brief("fault", 100, 0, outcome=Outcome.VOID, cause="deadline"),
    ]
    assert role_figures(played) == {
        "response_length/mean": (11 + 20 + 13 + 1) / 4,
        "response_length/max": 20.0,
        "response_length/cut": 0.25,
        "prompt_length/mean": 3.0,
        "observation_length/mean": (7 + 11) / 4,
        "ended/final": 0.25,
        "ended/malformed": 0.25,
        "ended/tokens": 0.5,
    }
    assert role_figures(played[-1:]) == role_figures([]) == {}
    assert role_figures(played[1:2])["ended/final"] == 0.0


MUTE, WELL = {"ended/final": 0.0}, {"ended/final": 0.1, "groups/flat": 0.9}
FLAT = {"ended/final": 1.0, "groups/flat": 1.0}


@pytest.mark.parametrize(
    ("rows", "said"),
    [([MUTE] * 5, "handed in an answer"), ([FLAT] * 5, "two different rewards"), ([MUTE, MUTE, WELL] * 3, "")],
)
def test_it_is_said_once_after_three_steps_in_a_row(rows: list[dict[str, float]], said: str) -> None:
    sink = fakes.Sink()
    report = Report(sink, None, 1, [SOLVER])
    for at, row in enumerate(rows, start=1):
        report._watch(SOLVER, row)
        assert len(sink.events) == bool(said and at >= PATIENCE)
    assert all(said in text for text in sink.events)


def test_a_run_whose_solver_never_answers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.scripted(monkeypatch)

    def mute(ids: list[int], seed: int, turn: int) -> list[int]:
        text = fakes.tokens().decode(ids)
        asked = "<q>" in text and not text.startswith("<information>")
        return (
            list(fakes.tokens().encode("nothing <eos>", add_special_tokens=False))
            if asked
            else fakes.script(ids, seed, turn)
        )

    monkeypatch.setattr(build, "engine", lambda *args: ScriptedEngine(mute))
    stage = Stage(config(steps=4), tmp_path / "run")
    stage.play()
    heard = [text for text in stage.sink.events if "handed in an answer" in text]
    assert len(heard) == 1 and heard[0].startswith("solver learns")
    for row in stage.figures(SOLVER):
        assert row["ended/final"] == 0.0 and row["response_length/max"] >= row["response_length/mean"] > 0
    assert all(row["ended/final"] > 0 for row in stage.figures("proposer"))
