"""A run's good episodes, taken as they were played."""

from __future__ import annotations

from pathlib import Path

import pytest
import scripts

from ssp.base.episode import PROPOSER, SOLVER, Document, Episode, Outcome, State, Task
from ssp.base.errors import Fault, InputError
from ssp.config.load import to_yaml
from ssp.engines import ScriptedEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, rollout
from ssp.game.world import World
from ssp.game.world import tokenizer as words
from ssp.learning.warmup import traces
from ssp.record import episodes as transcripts
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.selfplay.settings import load

TOKENS = words.build()
RENDERER = Renderer(protocols.get("mini"), TOKENS)
NAME, OTHER = list(World(0).entities)[:2]
CFG = load("quickstart")
ASKS, ANSWERS = (
    [f"<search> {OTHER} </search>", f"<question> {OTHER} seat ? </question>"],
    [f"<answer> {NAME} </answer>"],
)
GAMES = {"asked": 0.5, "too-hard": 0.0, "refused": None}
"""Game → win rate; None: the question was not accepted."""
REWARDS = {"s-right": 1.0, "s-half": 0.5, "s-wrong": 0.0, "s-void": None}


def play(role: str, ids: list[str], turns: list[str]) -> list[Episode]:
    engine = ScriptedEngine(lambda history, seed, turn: TOKENS.encode(turns[turn]))
    fields = {"question": f"{OTHER} seat ?"} if role == SOLVER else {"target": NAME}
    tasks = [Task(id, "asked", role, i, i, fields) for i, id in enumerate(ids)]
    books = scripts.Books([Document("d", f'"T"\n{OTHER} seat {NAME} .')])
    return rollout(engine, RENDERER, books, tasks, Settings(CFG.block(role).limits, 1.0, 3))[0]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three questions of the proposer, and four attempts at one of them in two files."""
    folder = RunFolder(tmp_path / "run")
    asked, tried = play(PROPOSER, [f"p-{game}" for game in GAMES], ASKS), play(SOLVER, list(REWARDS), ANSWERS)
    tried[-1].void(Fault("engine_died"))
    blocks = {"asked.parquet": asked, "tried-1.parquet": tried[1:], "tried-0.parquet": tried[:1]}
    for file, block in blocks.items():
        transcripts.write(folder.episodes / file, block)
    folder.config.write_text(to_yaml(CFG))
    ledger = Ledger(folder.ledger)
    ledger.create_games([{"id": game, "target": NAME, "attempts": 4} for game in GAMES])
    ledger.judge_games(
        [
            {
                "id": game,
                "question": f"{OTHER} seat ?",
                "verdict": "valid" if rate is not None else "leak",
                "win_rate": rate,
            }
            for game, rate in GAMES.items()
        ]
    )
    for file, block in blocks.items():
        for row, episode in enumerate(block):
            game = episode.id.removeprefix("p-") if episode.role == PROPOSER else "asked"
            ledger.create([{"id": episode.id, "game_id": game, "role": episode.role}])
            ledger.advance([{"id": episode.id, "file": file, "row": row, **grade(episode, game)}])
    ledger.close()
    return folder.path


def grade(episode: Episode, game: str) -> dict[str, object]:
    reward = REWARDS.get(episode.id) if episode.role == SOLVER else 0.25
    if reward is None:
        return {"state": State.VOIDED, "outcome": Outcome.VOID, "cause": "engine_died"}
    rejected = episode.role == PROPOSER and GAMES[game] is None
    outcome = Outcome.REJECTED if rejected else Outcome.SCORED
    return {"state": State.QUEUED, "outcome": outcome, "reward": reward, **({"cause": "leak"} if rejected else {})}


@pytest.mark.covers("SR-08")
def test_the_solvers_episodes_with_a_good_reward_as_they_were_played(run: Path) -> None:
    (best,) = traces.of_run(run, {SOLVER: RENDERER})
    (played, *_) = play(SOLVER, ["s-right"], ANSWERS)
    assert (best.id, best.outcome) == ("s-right", Outcome.SCORED)
    assert best.log.ids == played.log.ids and best.log.kinds == played.log.kinds


def test_the_proposers_questions_that_were_accepted_and_answered(run: Path) -> None:
    question, answer = traces.of_run(run, {PROPOSER: RENDERER, SOLVER: RENDERER})
    assert (question.id, question.final, answer.id) == ("p-asked", f"{OTHER} seat ?", "s-right")


@pytest.mark.parametrize(("cost", "good"), [(0.0, ["s-right"]), (0.5, ["s-half", "s-right"])])
def test_what_its_searches_cost_makes_no_episode_worse(
    run: Path, monkeypatch: pytest.MonkeyPatch, cost: float, good: list[str]
) -> None:
    """Half a point is what a right attempt with one search has earned where a search costs half a point."""
    monkeypatch.setattr(Episode, "searches", property(lambda episode: ["x"] * (episode.id == "s-half")))
    cfg = load("quickstart", [f"solver.reward_options.search_cost={cost}"])
    (run / "config.yaml").write_text(to_yaml(cfg))
    assert [episode.id for episode in traces.of_run(run, {SOLVER: RENDERER})] == good


def test_no_run_none_good_and_another_familys_tokens(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="a run's folder"):
        traces.of_run(tmp_path, {SOLVER: RENDERER})
    with pytest.raises(InputError, match="tokens of the policy that learns"):
        traces.of_run(run, {SOLVER: scripts.SEARCH_R1})
    monkeypatch.setattr(traces, "LEAST_REWARD", 2.0)
    with pytest.raises(InputError, match="no rewards >= 2"):
        traces.of_run(run, {SOLVER: RENDERER})
