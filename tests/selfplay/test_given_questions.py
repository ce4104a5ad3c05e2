"""Questions from a data set or a bank: one role plays and learns, and everything else is as in a duel."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeLearner, Stage, config, tokens, world

from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.engines import ScriptedEngine
from ssp.selfplay.scene import read_items
from ssp.selfplay.workers import build


def given(**changes: Any) -> Any:
    return config(**{"game__questions": "dataset", "data__questions": "x", **changes})


@pytest.mark.parametrize("bound", [0, 2])
def test_a_run_on_a_data_set_has_one_role(tmp_path: Path, bound: int) -> None:
    """The proposer's bound says nothing here: it comes along with a preset."""
    cfg = given(bounds=(4, bound), solver__batch=7)
    stage = Stage(cfg, tmp_path / "run", jitter=1).played()
    states, state = stage.settled(), stage.state()
    assert set(states) == {"solver", "eval"} and sum(states["solver"].values()) == 3 * 7 * 4
    assert states["solver"]["trained"] and states["eval"]["kept"]
    assert (state["step"], state["pool"], state["cursor"]) == (3, [], {"next": 3, "open": [], "mark": ""})
    assert {path.name for path in stage.folder.checkpoints.iterdir() if path.is_dir()} == {"solver"}
    assert stage.sink.steps("solver") == stage.sink.steps("game") == [1, 2, 3] and stage.sink.steps("proposer") == []
    assert stage.sink.steps("eval") == [0, 2, 3]
    assert [(role, n) for role, n, _ in FakeLearner.seen] == [("solver", 1), ("solver", 2), ("solver", 3)]
    assert set(stage.cast.players) == set(stage.cast.learners) == {"solver"}
    for figures in stage.figures():
        assert figures["game/played"] == 7 and 0 < figures["game/win_rate"] < 1
        assert not [
            name for name in figures if name.startswith(("game/proposed", "game/valid", "game/hops", "game/junk"))
        ]


def test_every_gold_answer_counts_and_each_question_is_asked_once_an_epoch(tmp_path: Path) -> None:
    """The target, their first answer, is never given: what is right is right by another one."""
    stage = Stage(given(solver__batch=10, steps=8), tmp_path / "run").played()
    right = stage.rows("SELECT * FROM episodes WHERE role = 'solver' AND reward = 1.0")
    assert right and all(f["game/win_rate"] > 0.3 for f in stage.figures())
    games = stage.rows("SELECT * FROM games WHERE id LIKE 'g%' ORDER BY id")
    assert {game["target"] for game in games} == {"else"} and len(games) == 80
    asked = [game["question"] for game in games]
    assert sorted(asked[:40]) == sorted(asked[40:]) == sorted(q.text for q in world().questions(1, 40, 7))
    assert asked[:40] != asked[40:] and {game["verdict"] for game in games} == {"valid"}
    assert {game["proposer_version"] for game in games} == {None}
    assert {row["opponent_version_min"] for row in stage.rows() if row["role"] == "solver"} == {None}


@pytest.mark.covers("SR-26")
def test_seven_questions_over_four_workers_are_seven(tmp_path: Path) -> None:
    """No padding to a multiple of the workers, in the batch or in the figures."""
    cfg = given(
        solver__batch=7,
        game__attempts=1,
        solver__algorithm="reinforce",
        placement__players={"proposer": 2, "solver": 4},
        steps=1,
    )
    stage = Stage(cfg, tmp_path / "run").played()
    plays = [call for call in stage.cast.players["solver"].calls if call[1] == "play"]  # type: ignore[attr-defined]
    sizes = [len(args[0]) for _, method, args in plays if args[1].stem.startswith("solver-")]
    assert len(sizes) == 4 and sum(sizes) == 7
    assert stage.figures()[0]["game/played"] == 7 and stage.figures("solver")[0]["episodes"] == 7
    assert len(FakeLearner.seen[0][2]) == 7 == sum(stage.settled()["solver"].values())


class NoSearch:
    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        raise AssertionError(f"a search went out: {queries}")


@pytest.mark.covers("SR-07")
def test_with_search_off_no_request_goes_out_and_answers_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some answer at once, some ask to search all the same."""

    def direct(ids: list[int], seed: int, turn: int) -> list[int]:
        question = tokens().decode(ids).split("<q> ")[1].split(" </q>")[0]
        answer = next(q.answer for q in world().questions(1, 40, 7) if q.text == question) if seed % 2 else "rave"
        said = f"<search> {answer} </search>" if seed % 5 == 0 else f"<answer> {answer} </answer>"
        return list(tokens().encode(said + " <eos>", add_special_tokens=False))

    monkeypatch.setattr(build, "engine", lambda *args, **more: ScriptedEngine(direct))
    stage = Stage(given(solver__limits__searches=0, eval__every=0), tmp_path / "run", NoSearch())
    game = stage.game()
    game._evaluator._sets = []
    asyncio.run(asyncio.wait_for(game.run(), 60))
    counts = stage.settled()["solver"]
    assert counts["trained"] and not counts["voided"]
    rewards = {row["reward"] for row in stage.rows() if row["outcome"] == "scored"}
    assert rewards == {0.0, 1.0} and stage.ledger.outcomes().keys() >= {"reject/solver_turns"}


# where the questions come from


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_data_set_is_read_with_all_its_answers(tmp_path: Path) -> None:
    rows = [{"id": f"q{i}", "question": f"who is {i} ?", "golden_answers": [f"a{i}", f"b{i}"]} for i in range(3)]
    items = read_items(given(data__questions=write(tmp_path / "a.jsonl", rows)))
    assert [(item.target, item.question, item.golds) for item in items] == [
        (f"a{i}", f"who is {i} ?", (f"a{i}", f"b{i}")) for i in range(3)
    ]
    with pytest.raises(InputError, match="golden_answers"):
        read_items(given(data__questions=write(tmp_path / "b.jsonl", [{"id": "q", "question": "x ?"}])))


@pytest.mark.covers("SP-08")
def test_a_duel_starts_from_targets_and_hints_alone(tmp_path: Path) -> None:
    """SSP's rows: an answer, a number of searches, example questions; no pair of question and answer."""
    rows = [
        {"ground_truth": "Oslo", "search_turns": "2", "sys_question_example": "Question 1: who ?"},
        {"ground_truth": "Rome", "search_turns": "1", "sys_question_example": ""},
    ]
    oslo, rome = read_items(config(data__targets=write(tmp_path / "t.jsonl", rows)))
    assert (oslo.target, oslo.question, oslo.golds) == ("Oslo", "", ())
    assert oslo.hints == {"searches": "2", "examples": "Question 1: who ?"} and rome.hints == {"searches": "1"}


def test_facts_are_counted_only_where_a_row_asks_for_searches(tmp_path: Path) -> None:
    extras: list[dict[str, Any]] = [{"index": 0}, {"index": 1, "search_turns": 1}]
    rows = [{"reward_model": {"ground_truth": {"target": ["Oslo"]}}, "extra_info": extra} for extra in extras]
    path = write(tmp_path / "t.jsonl", rows)
    assert len(read_items(config(data__targets=path, referee__evidence="counted"))) == 2
    none = write(tmp_path / "none.jsonl", rows[:1])
    assert len(read_items(config(data__targets=none, referee__evidence="quoted"))) == 1
    with pytest.raises(InputError, match="ask for searches"):
        read_items(config(data__targets=none, referee__evidence="counted"))


@pytest.mark.parametrize("place", ["folder", "ledger"])
def test_a_bank_asks_what_an_earlier_run_accepted(tmp_path: Path, place: str) -> None:
    earlier = Stage(config(game__batch="replay", proposer__batch=4), tmp_path / "earlier").played()
    path = earlier.folder.path if place == "folder" else earlier.folder.ledger
    items = read_items(given(game__questions="bank", data__questions=str(path)))
    games = earlier.rows("SELECT * FROM games WHERE verdict = 'valid' ORDER BY id")
    pairs = list(dict.fromkeys((game["question"], game["target"]) for game in games))
    assert [(item.question, item.target) for item in items] == pairs and len(games) > len(pairs) > 3
    assert all(item.golds == (item.target,) for item in items)
