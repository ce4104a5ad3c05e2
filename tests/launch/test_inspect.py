"""`ssp inspect`: a run on record, its episodes shown and recomputed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from launch import inspect, replay
from ssp.base.episode import PROPOSER, SOLVER, Document, Episode, Grade, Outcome, State, Task
from ssp.base.errors import Fault, InputError
from ssp.base.tokenlog import Kind
from ssp.config.load import to_yaml
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rewards.score import graded
from ssp.game.rollout import Settings, rollout
from ssp.game.world import tokenizer as words
from ssp.record import episodes as transcripts
from ssp.record.ledger.book import Ledger
from ssp.selfplay.settings import load
from tests.replay.replayruns import rewrite

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
    void.void(Fault("engine_died"))
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
    oldest, newest = episode.log.version_span
    versions = {"policy_version_min": oldest, "policy_version_max": newest}
    placed = {"id": episode.id, "file": file, "row": row, **versions}
    if episode.outcome is Outcome.VOID:
        return {**placed, "state": State.VOIDED, "cause": episode.cause}
    if episode.role == PROPOSER:
        return {**placed, "state": State.QUEUED, "outcome": Outcome.SCORED, "reward": 1 - 1 / 3}
    if episode.final is None:
        rejected = {"outcome": Outcome.REJECTED, "cause": episode.stopped, "reward": cfg.solver.invalid_reward}
        return {**placed, "state": State.QUEUED, **rejected}
    grade = graded(cfg.solver, episode, [TARGET], Grade(episode.final == TARGET))
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
    assert "text: same" in printed and "outcome: same" in printed and "versions: same" in printed
    assert "reward: same" in printed and ("reward: same, None" in printed) == (id == "s4")


@pytest.mark.covers("RS-08")
def test_a_reward_that_does_not_come_out_again_is_found(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = (run / "config.yaml").read_text().replace("invalid_reward: -0.5", "invalid_reward: 0.25")
    (run / "config.yaml").write_text(changed)
    assert inspect.main([f"{run}:s3", "--check"]) == 1
    assert "reward: DIFFERS, recorded -0.5, now 0.25" in capsys.readouterr().out


FALSE = {
    "s3 outcome = 'scored'": "outcome: DIFFERS, recorded 'scored', now 'rejected'",
    "s1 state = 'voided'": "outcome: DIFFERS, recorded 'scored', now 'void'",
    "s4 reward = 1": "reward: DIFFERS, recorded 1.0, now None",
    "s1 policy_version_min = 3": "versions: DIFFERS, recorded (3, 4), now (4, 4)",
    "s1 policy_version_max = NULL": "versions: DIFFERS, recorded (4, None), now (4, 4)",
    "g1 verdict = 'rejected'": "outcome: DIFFERS, recorded 'scored', now 'rejected'",
    "g1 win_rate = NULL": "reward: DIFFERS, recorded 0.6666",
}
"""Changes of the ledger's rows that its own states contradict, or the episode's file."""


def put(run: Path, change: str) -> None:
    id, _, what = change.partition(" ")
    book = sqlite3.connect(run / "ledger.db")
    table = "games" if id == "g1" else "episodes"
    assert book.execute(f"UPDATE {table} SET {what} WHERE id = '{id}'").rowcount == 1
    book.commit()
    book.close()


@pytest.mark.parametrize("change", FALSE)
def test_a_row_that_cannot_be_is_found(run: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(run, change)
    assert inspect.main([f"{run}:{change[:2].replace('g1', 'p1')}", "--check"]) == 1
    assert FALSE[change] in capsys.readouterr().out


@pytest.mark.parametrize("stopped", ["tokens", "turns"])
def test_what_was_asked_for_last_may_stay_unanswered(
    run: Path, stopped: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An episode that ends where its last search does not fit, or is one too many."""

    def cut(episode: Episode) -> None:
        end = episode.log.kinds.index(int(Kind.OBSERVATION))
        for name in ("ids", "kinds", "logprobs", "versions"):
            setattr(episode.log, name, getattr(episode.log, name)[:end])
        episode.text, episode.final, episode.stopped = TOKENS.decode(episode.log.ids), None, stopped
        episode.queries, episode.hits, episode.documents = [], [], []

    rewrite(run, {"file": "solver.parquet", "row": 0}, cut)
    put(run, "s1 outcome = 'rejected', reward = -0.5")
    assert inspect.main([f"{run}:s1", "--check"]) == 0
    assert "queries: same, []" in capsys.readouterr().out


def test_rewards_that_are_not_due_are_none(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A surplus proposal is valid and earns nothing; one whose round is not settled is not compared."""
    put(run, "p1 state = 'dropped', cause = 'surplus', reward = NULL")
    put(run, "g1 win_rate = NULL, attempts = 0")
    assert inspect.main([f"{run}:p1", "--check"]) == 0
    assert "reward: same, None" in capsys.readouterr().out
    put(run, "p1 state = 'grading', cause = NULL, outcome = NULL")
    assert inspect.main([f"{run}:p1", "--check"]) == 0
    assert "reward: NOT COMPARED, it is grading still" in capsys.readouterr().out


def test_all_of_nothing_is_refused(run: Path) -> None:
    """0 of 0 the same would be a check that did not run."""
    with pytest.raises(InputError, match="0 episodes"):
        replay.main([str(run), "--all", "--role", "eval"])


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
    assert f"search  {OTHER}" in text and f"answer  {TARGET}" in text and f"answer: {TARGET} (1 search, right)" in text
    assert "queued scored, reward 1" in text and "valid, 4 attempts, win rate 0.33" in text and "4 to 4" in text


def test_every_token_can_be_listed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.main([f"{run}:s1", "--tokens"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    tokens = [row for row in rows if row and row[0].isdecimal()]
    assert len(tokens) == 17
    assert tokens[5][2:] == ["model", "1", "0.0000", "4", "'<search>'"]
    assert tokens[8][2:] == ["observation", "0", "-", "-", "'<information>'"]


def test_an_episode_that_is_not_there_is_refused(run: Path, tmp_path: Path) -> None:
    for name, message in (
        (f"{run}:zz", "stands in the run's ledger"),
        (f"{run}:lost", "voided"),
        (f"{run}", "RUN:EPISODE"),
        (f"{tmp_path / 'no'}:s1", "existing folder"),
    ):
        with pytest.raises(InputError, match=message):
            inspect.find(name)
