"""Small parts of the loop: clock, junk watch, evaluator, report."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import Sink, Stage, brief, config, game
from hypothesis import given
from hypothesis import strategies as st

from ssp.base.episode import PROPOSER, SOLVER, Episode, Outcome
from ssp.base.errors import Fault, InvariantError
from ssp.base.played import Brief, Game
from ssp.base.tokenlog import Kind
from ssp.data.readers import Question
from ssp.game.games.duel import GAME as DUEL
from ssp.game.games.given import GAME as GIVEN
from ssp.learning.scored import Scored
from ssp.selfplay import health
from ssp.selfplay.evaluator import Evaluator, QuestionSet
from ssp.selfplay.health import JunkWatch
from ssp.selfplay.records import Published
from ssp.selfplay.report import PATIENCE, Report, role_figures
from ssp.selfplay.settle import settle
from ssp.selfplay.settled import Round
from ssp.selfplay.workers.learner import Learner
from ssp.telemetry.clock import KINDS, Clock

# clock

SECONDS = st.fixed_dictionaries({kind: st.floats(0, 5) for kind in ("generate", "search", "judge")})


@given(stages=st.lists(st.lists(SECONDS, max_size=3), max_size=5), learn=st.floats(0, 3), more=st.floats(0, 2))
def test_shares_add_up_to_the_step(stages: list[list[dict[str, float]]], learn: float, more: float) -> None:
    spans: list[str] = []
    clock = Clock(lambda track, name, start, end: spans.append(name))
    critical = learn
    for workers in stages:
        busy = [{**worker, "busy": sum(worker.values()) + 0.1} for worker in workers]
        clock.stage("solver", "play", 0.0, busy)
        critical += max((sum(worker.values()) for worker in workers), default=0.0)
    shares = clock.shares(critical + more, 4, learn)
    assert sum(shares[f"time/{name}"] for name in (*KINDS, "overhead")) == pytest.approx(shares["time/step"])
    assert shares["time/overhead"] == pytest.approx(more, abs=1e-6) and shares["time/idle"] >= 0
    assert len(spans) == len(stages)


def test_stages_of_searches_are_parts_of_their_time() -> None:
    clock = Clock()
    slow = {"search": 3.0, "search/encode": 1.0, "search/fetch": 2.0, "busy": 3.0}
    clock.stage("solver", "play", 0.0, [slow, {"search": 1.0, "search/encode": 1.0, "busy": 1.0}])
    clock.stage("solver", "play", 0.0, [slow, {"busy": 1.0}])
    shares = clock.shares(10.0, 2)
    assert {key: shares[key] for key in shares if "search" in key} == {
        "time/search": 6.0, "time/search_encode": 2.0, "time/search_fetch": 4.0,
    }  # fmt: skip
    assert shares["time/overhead"] == 4.0
    assert "time/search_encode" not in Clock().shares(1.0, 1)


# alarm


def round_of(win: float, valid: int, invalid: int = 0) -> list[Game]:
    made = [game(f"g{i}", win_rate=win) for i in range(valid)]
    return made + [game(f"g{valid + i}", valid=False) for i in range(invalid)]


def test_junk_alarm_needs_the_sign_several_rounds_in_a_row() -> None:
    said: list[str] = []
    watch = JunkWatch(config(referee__alarm_patience=3), said.append)
    junk, fine, picky = round_of(0.0, 8), round_of(0.5, 8), round_of(0.0, 4, 4)
    for step, games in enumerate((junk, junk, fine, junk, junk, picky, junk, junk), 1):
        assert watch.see(step, games) is None
    watch.restart(7)
    assert watch.see(8, junk) is None, "a round that is played again counts once"
    assert watch.see(9, [game("g1", valid=False)]) is None  # a round that says nothing
    alarm = watch.see(10, junk)
    assert alarm is not None and "3 rounds" in str(alarm) and alarm.exit_code == 1 and not said
    warned = JunkWatch(config(referee__alarm_patience=1, health__on_collapse="warn"), said.append)
    assert warned.see(1, junk) is None and warned.see(2, junk) is None and len(said) == 1 and "1 rounds" in said[0]


def test_a_junk_alarm_ends_the_run_after_it_has_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round counts as a sign here: the second one rings, no further one begins, and no episode is left open."""
    monkeypatch.setattr(health, "WIN_RATE", 1.0)
    monkeypatch.setattr(health, "VALID_RATE", 0.0)
    stage = Stage(config(referee__alarm_patience=2, steps=6), tmp_path / "run")
    with pytest.raises(health.JunkAlarm):
        stage.play()
    stage.settled()
    assert stage.state()["step"] == 2 and {row["round"] for row in stage.rows("SELECT round FROM games")} == {1, 2}


# evaluator


class EvalStages:
    """Answers every question with its own first word; every third is void."""

    def __init__(self) -> None:
        self.incarnation = 2
        self.asked: list[tuple[str, list[str]]] = []

    async def evaluate(self, step: int, stem: str, tasks: Any, weights: Any, clock: Any) -> list[Brief]:
        self.asked.append((stem, [task.id for task in tasks]))
        return [
            brief(task.id, final=task.fields["question"].split()[0])
            if i % 3
            else brief(task.id, outcome=Outcome.VOID, cause="x", final=None)
            for i, task in enumerate(tasks)
        ]


def sets() -> list[QuestionSet]:
    asked = [Question(f"q{hops}{i}", f"w{i} seat ?", ["w1"], hops) for hops in (1, 2, 4) for i in range(9)]
    return [QuestionSet("main", asked, "train"), QuestionSet("other", asked[:4], "none")]


@pytest.mark.parametrize(("final", "step", "asked"), [(False, 2, [6]), (True, 3, [10, 4]), (True, 0, [10])])
def test_evaluation_sets_and_sizes(final: bool, step: int, asked: list[int]) -> None:
    cfg = config(eval__hops=[1, 2], eval__final_questions_per_hop=5)
    stages: Any = EvalStages()
    anchor: Any = None
    scores = asyncio.run(Evaluator(cfg, sets()).run(step, final, Published(1, None), anchor, stages))
    assert [len(ids) for _, ids in stages.asked] == asked
    assert scores["eval/items"] + scores["eval/void"] == asked[0]
    assert ("eval/other/accuracy" in scores) == (len(asked) > 1)
    assert scores["eval/accuracy"] == {6: 1 / 2, 10: 1 / 6}[asked[0]]


# report


def test_a_step_is_written_once_both_learners_are_done() -> None:
    sink = Sink()
    report = Report(sink, None, 2, DUEL)
    games = [game("g1", [True, False, None, False]), game("g2", valid=False, rule="leakage")]
    games[1].proposal = brief("pg2", PROPOSER, searches=9, lookups=5, cuts=2)  # the others were no searches
    settled = settle(config(), games, 1)
    for step in (1, 2):
        report.round(Round(step - 1, Clock(), games, settled=settled), {"retriever_down": 1})
    stats = {"reward/mean": 0.5, "busy": 0.1, "tokens": 10.0}
    assert not report.learned(1, {PROPOSER: stats}) and not report.learned(2, {PROPOSER: stats})
    assert sink.rows == []
    assert report.learned(1, {SOLVER: stats})
    assert [(step, role) for step, role, _ in sink.rows] == [(1, "game"), (1, PROPOSER), (1, SOLVER)]
    figures = sink.rows[0][2]
    assert figures["game/valid_rate"] == 0.5 and figures["game/win_rate"] == pytest.approx(1 / 3)
    assert figures["void/retriever_down"] == 1 and figures["reject/leakage"] == 1
    assert figures["game/tokens"] == 6 * 5
    assert figures["search/cut"] == 0.2, "two of ten searches"
    report.restart(1)  # what was half collected is forgotten
    assert sink.restarts == [1]
    report.round(Round(1, Clock(), games, settled=settled), {})
    assert not report.learned(2, {SOLVER: stats}) and report.learned(2, {PROPOSER: stats})
    assert sink.steps("game") == [1, 2]


def test_the_first_void_of_a_cause_is_told_with_what_it_said() -> None:
    sink = Sink()
    report = Report(sink, None, 1, DUEL)
    lost = brief("pg1", PROPOSER, outcome=Outcome.VOID, cause="agent_failed", detail="KeyError: 'x'")
    this = game("g1", valid=False, rule="leakage")
    this.proposal = lost
    wrong = game("g2", valid=False, rule="malformed")
    wrong.proposal = brief("pg2", PROPOSER, detail="JSON was wrong")  # the policy's mistake, as its agent says
    for step in (1, 2):
        report.round(Round(step - 1, Clock(), [wrong, this]), {"agent_failed": 1})
    assert sink.events == ["void by agent_failed: KeyError: 'x' (episode pg1)"]


def test_a_learner_refuses_a_void_episode() -> None:
    gone = Episode("e", "g", SOLVER, 0)
    gone.void(Fault("engine_died"))
    with pytest.raises(InvariantError, match="e is void"):
        Learner.update(object.__new__(Learner), {SOLVER: [Scored(1.0, 0, id="e", block="b")]}, ["b"], [gone])


# lengths and endings


def ended(stopped: str, written: int, observed: int, **facts: Any) -> Brief:
    """Of an episode with a prompt of three tokens, a turn, and an observation in a frame of two."""
    episode = Episode("s", "g", SOLVER, 0, stopped=stopped, **facts)
    episode.log.append(Kind.PROMPT, [1] * 3)
    episode.log.append_model([1] * written, [0.0] * written, 1)
    if observed:
        for kind, ids in ((Kind.TEMPLATE, [1]), (Kind.OBSERVATION, [1] * observed), (Kind.TEMPLATE, [1])):
            episode.log.append(kind, ids)
    return Brief.of(episode, "f", 0)


def test_a_brief_tells_searches_from_other_calls() -> None:
    made = ended("final", 4, 5, queries=["a", "1", "b"], tools=["search", "read", "search"])
    assert (made.searches, made.lookups, made.opens) == (3, 2, 1)
    alone = ended("final", 4, 5, queries=["a", "b"])  # a protocol without other tools does not name them
    assert (alone.searches, alone.lookups) == (2, 2)


def test_lengths_and_endings_are_counted_from_the_episodes() -> None:
    played = [
        ended("final", 4, 5, final="x"),
        ended("tokens", 20, 0, cut=True),
        ended("tokens", 2, 9),
        ended("malformed", 1, 0),
        ended("fault", 100, 0, outcome=Outcome.VOID, cause="deadline"),
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
    report = Report(sink, None, 1, GIVEN)
    for at, row in enumerate(rows, start=1):
        report._watch(SOLVER, row)
        assert len(sink.events) == bool(said and at >= PATIENCE)
    assert all(said in text for text in sink.events)
