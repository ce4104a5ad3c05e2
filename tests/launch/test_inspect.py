"""`ssp inspect`: a run on record, its episodes shown and recomputed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch import inspect
from ssp import protocols
from ssp.config import load
from ssp.config.load import to_yaml
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.episode import PROPOSER, SOLVER, Document, Episode, Outcome, State, Task
from ssp.errors import InputError
from ssp.judge import Decision
from ssp.ledger.book import Ledger
from ssp.protocols.renderer import Renderer
from ssp.rewards.score import graded
from ssp.rollout import Settings, rollout
from ssp.telemetry import episodes as transcripts
from ssp.world import tokenizer as words

TOKENS = words.build()
WORDS = [word for word in TOKENS.get_vocab() if word.isalpha() and len(word) == 4]
TARGET, OTHER = WORDS[:2]


class Books:
    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        return [[Document(f"d-{query}", f'"T"\n{query} seat {TARGET} .')] for query in queries]


def play(cfg: Config, role: str, ids: list[str], turns: list[str]) -> list[Episode]:
    """Episodes of one script: turn i says `turns[i]`."""
    engine = ScriptedEngine(lambda history, seed, turn: TOKENS.encode(turns[turn]))
    engine.load({}, 4)
    field = "question" if role == SOLVER else "target"
    tasks = [
        Task(id, "g1", role, i, i, {field: f"{OTHER} seat ?" if role == SOLVER else TARGET}) for i, id in enumerate(ids)
    ]
    settings = Settings(getattr(cfg, role).limits, 1.0, 3)
    return rollout(engine, Renderer(protocols.get("mini"), TOKENS), Books(), tasks, settings)[0]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder of one game: a proposal, a right attempt, a wrong one, one without an answer, a void."""
    folder = tmp_path / "run"
    cfg = load("quickstart", ["game.attempts=4", "solver.invalid_reward=-0.5"])
    proposals = play(
        cfg,
        PROPOSER,
        ["p1"],
        [
            f"<search> {OTHER} </search>",
            f"<think> {OTHER} seat {TARGET} </think> <question> {OTHER} seat ? </question>",
        ],
    )
    right, void = play(cfg, SOLVER, ["s1", "s4"], [f"<search> {OTHER} </search>", f"<answer> {TARGET} </answer>"])
    (wrong,) = play(cfg, SOLVER, ["s2"], [f"<answer> {OTHER} </answer>"])
    (silent,) = play(cfg, SOLVER, ["s3"], [f"<think> {OTHER} </think> <eos>"])
    void.void("engine_died")
    attempts = [right, wrong, silent, void]
    transcripts.write(folder / "episodes" / "proposer.parquet", proposals)
    transcripts.write(folder / "episodes" / "solver.parquet", attempts)
    for role in (PROPOSER, SOLVER):
        TOKENS.save_pretrained(folder / "checkpoints" / role / "v4")
    folders = {role: f"checkpoints/{role}/v4" for role in (PROPOSER, SOLVER)}
    (folder / "checkpoints" / "state.json").write_text(json.dumps({"folders": folders}))
    (folder / "config.yaml").write_text(to_yaml(cfg))
    ledger = Ledger(folder / "ledger.db")
    ledger.create_games([{"id": "g1", "target": TARGET, "attempts": 4}])
    ledger.judge_games([{"id": "g1", "question": f"{OTHER} seat ?", "verdict": "valid", "win_rate": 1 / 3}])
    for file, block in (("proposer", proposals), ("solver", attempts)):
        ledger.create([{"id": e.id, "game_id": "g1", "role": e.role} for e in block])
        ledger.advance([_entry(cfg, e, f"{file}.parquet", row) for row, e in enumerate(block)])
    ledger.create([{"id": "lost", "game_id": "g1", "role": SOLVER}])
    ledger.advance([{"id": "lost", "state": State.VOIDED, "cause": "actor_died"}])
    ledger.close()
    return folder


def _entry(cfg: Config, episode: Episode, file: str, row: int) -> dict[str, object]:
    placed = {"id": episode.id, "file": file, "row": row}
    if episode.outcome is Outcome.VOID:
        return {**placed, "state": State.VOIDED, "cause": episode.cause}
    if episode.role == PROPOSER:
        return {**placed, "state": State.QUEUED, "outcome": Outcome.SCORED, "reward": 1 - 1 / 3}
    if episode.final is None:
        rejected = {"outcome": Outcome.REJECTED, "cause": episode.stopped, "reward": cfg.solver.invalid_reward}
        return {**placed, "state": State.QUEUED, **rejected}
    grade = graded(cfg.solver, episode, [TARGET], Decision(episode.final == TARGET))
    return {**placed, "state": State.QUEUED, "outcome": Outcome.SCORED, "reward": grade.reward}


@pytest.mark.covers("RS-08")
@pytest.mark.parametrize("id", ["p1", "s1", "s2", "s3", "s4"])
def test_every_record_is_whole_and_earns_the_same_again(run: Path, id: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect.find(f"{run}:{id}")
    episode, log = found.episode, found.episode.log
    assert episode.text[: episode.response_at] == TOKENS.decode(log.ids[: log.kinds.index(1)]), "the prompt"
    assert len(log.ids) == len(log.kinds) == len(log.logprobs) and log.mask.sum() > 0
    if episode.queries:
        assert episode.hits == [1] and [document.id for document in episode.documents] == [f"d-{OTHER}"]
    assert id == "s4" or found.entry["reward"] is not None
    assert id not in ("s3", "s4") or found.entry["cause"], "the reason"
    assert inspect.main([f"{run}:{id}", "--check"]) == 0
    printed = capsys.readouterr().out
    assert "text: same" in printed and ("reward: same" in printed) == (id != "s4")


@pytest.mark.covers("RS-08")
def test_a_reward_that_does_not_come_out_again_is_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = (run / "config.yaml").read_text().replace("invalid_reward: -0.5", "invalid_reward: 0.25")
    (run / "config.yaml").write_text(changed)
    assert inspect.main([f"{run}:s3", "--check"]) == 1
    assert "reward: DIFFERS, recorded -0.5, now 0.25" in capsys.readouterr().out


def test_an_episode_is_shown_with_its_mask(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.main([f"{run}:s1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(lines)
    headings = [line for line in lines if line.startswith("-- ")]
    assert headings == [
        "-- prompt: 5 tokens, 0 trained",
        "-- model: 3 tokens, 3 trained",
        "-- observation: 6 tokens, 0 trained",
        "-- model: 3 tokens, 3 trained",
    ]
    assert f"search  {OTHER}" in text and f"answer  {TARGET}" in text and f"answer: {TARGET} (1 searches)" in text
    assert "queued scored, reward 1" in text and "valid , 4 attempts, win rate 0.33" in text and "4 to 4" in text


def test_every_token_can_be_listed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.main([f"{run / 'episodes' / 'solver.parquet'}:0", "--tokens"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    tokens = [row for row in rows if row and row[0].isdecimal()]
    assert len(tokens) == 17
    assert tokens[5][2:] == ["model", "1", "0.0000", "4", "'<search>'"]
    assert tokens[8][2:] == ["observation", "0", "-", "-", "'<information>'"]


def test_an_episode_that_is_not_there_is_refused(run: Path, tmp_path: Path) -> None:
    for name, message in (
        (f"{run}:zz", "stands in the run's ledger"),
        (f"{run}:lost", "voided"),
        (f"{run}", "RUN:id"),
        (f"{tmp_path / 'no'}:s1", "existing folder"),
        (f"{run / 'episodes' / 'solver.parquet'}:9", "rows 0 to 3"),
        (f"{run / 'episodes' / 'no.parquet'}:0", "parquet"),
    ):
        with pytest.raises(InputError, match=message):
            inspect.find(name)
