"""Every episode of a finished run, parsed and priced again from its record."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import fakes
import pytest
from fakes import Stage, config

from ssp.record import episodes as transcripts
from ssp.views.replay import priced


@pytest.mark.covers("RS-08")
@pytest.mark.parametrize("questions", ["proposer", "dataset"])
def test_every_record_of_a_run_gives_its_text_final_queries_and_reward_again(tmp_path: Path, questions: str) -> None:
    file = tmp_path / "questions.jsonl"
    cfg = config(game__questions=questions, data__questions=str(file), solver__reward="f1")
    stage = Stage(cfg, tmp_path / "run")
    if questions == "dataset":
        rows = [{"question": item.question, "answers": item.golds} for item in stage.items()]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stage.play()
    gone = config(game__questions=questions, data__questions=str(tmp_path / "gone.jsonl"), solver__reward="f1")
    (tmp_path / "gone.jsonl").write_text('{"question": "another one ?", "answers": ["x"]}\n')
    seen: Counter[str] = Counter()
    for entry in stage.rows():
        episode = transcripts.read(stage.folder.episodes / entry["file"])[entry["row"]]
        games = stage.rows(f"SELECT * FROM games WHERE id = '{entry['game_id']}'")
        compared = priced.check(episode, cfg, fakes.tokens(), entry, games[0] if games else {})
        assert [str(one) for one in compared if not one.same] == []
        assert entry["outcome"] != "rejected" or entry["cause"], "a rejection says why"
        seen.update(f"{episode.role} {one.what}" for one in compared)
        if questions == "dataset":
            reward = priced.check(episode, gone, fakes.tokens(), entry, games[0] if games else {})[-1]
            assert reward.untold or entry["reward"] is None, "answers that were right too are gone with the question"
        seen[f"{entry['role']} earned"] += entry["reward"] is not None
    assert seen["solver earned"] > 20 and seen["eval earned"] == 0 and seen["solver reward"] > seen["solver earned"]
    assert questions == "dataset" or seen["proposer reward"] > 10


@pytest.mark.covers("GA-12")
def test_what_searches_cost_is_priced_again(tmp_path: Path) -> None:
    """The difficulty of a question stays what it was: the share of right attempts, whatever these cost."""
    changes = {"game__questions": "dataset", "data__questions": str(tmp_path / "questions.jsonl")}
    cfg = config(solver__reward_options={"search_cost": 0.25}, **changes)
    stage = Stage(cfg, tmp_path / "run")
    rows = [{"question": item.question, "answers": item.golds} for item in stage.items()]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stage.play()
    seen: Counter[float] = Counter()
    for entry in stage.rows("SELECT * FROM episodes WHERE role = 'solver' AND outcome = 'scored'"):
        episode = transcripts.read(stage.folder.episodes / entry["file"])[entry["row"]]
        (game,) = stage.rows(f"SELECT * FROM games WHERE id = '{entry['game_id']}'")
        reward = priced.check(episode, cfg, fakes.tokens(), entry, game)[-1]
        other = priced.check(episode, config(**changes), fakes.tokens(), entry, game)[-1]
        assert reward.what == "reward" and reward.same and not reward.untold
        assert other.same == (entry["reward"] == 0.0), "by a run without the cost it earned 1"
        seen[entry["reward"]] += 1
    assert set(seen) == {0.0, 0.75} and min(seen.values()) > 5
