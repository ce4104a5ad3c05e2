"""The bank of a real run: a thousand questions, each field of which is found again, exported, read back, and trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from launch import bank
from launch.main import run
from ssp.config.load import to_yaml
from ssp.data.readers import read_questions
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions import files, reader
from ssp.selfplay.questions.records import Attempt, Play, Record, identify
from ssp.selfplay.settings.tiny import shrunk
from tests.replay.replayruns import alone, rows

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
RECIPE = "search-r1-qwen2.5-3b-grpo"


@pytest.fixture(scope="module")
def records(duel: Path) -> list[Record]:
    """Of the session's quickstart run, with transcripts."""
    folder = RunFolder(duel)
    return list(reader.told(folder, reader.read(folder).records))


class Kept:
    """What the run's files say, read past the bank: rows of the ledger by id, rows of the episodes' files by place."""

    def __init__(self, folder: Path) -> None:
        self.games = {row["id"]: row for row in rows(folder, "SELECT * FROM games")}
        self.episodes = {row["id"]: row for row in rows(folder, "SELECT * FROM episodes")}
        self.files = {path.name: pq.read_table(path).to_pylist() for path in (folder / "episodes").glob("*.parquet")}
        self.met: set[str] = set()

    def told(self, id: str, game: str, file: str | None, row: int | None) -> dict[str, Any]:
        """The row of the files at that place, which must be the episode `id` of that game."""
        entry = self.episodes[id]
        assert (entry["game_id"], entry["file"], entry["row"]) == (game, file, row) and file is not None
        found: dict[str, Any] = self.files[file][entry["row"]]
        assert (found["id"], found["game"]) == (id, game)
        self.met.add(id)
        return found


def check_play(play: Play, record: Record, kept: Kept) -> None:
    game = kept.games[play.game]
    assert (game["question"], game["target"]) == (record.question, record.target)
    said = (play.verdict, play.rule, play.win_rate, play.proposer_version)
    assert said == (game["verdict"], game["rule"], game["win_rate"], game["proposer_version"])
    assert play.kind == "proposed" and play.proposal is not None
    told = kept.told(play.proposal, play.game, play.file, play.row)
    assert (told["final"], told["text"], told["queries"]) == (record.question, play.transcript, play.queries)
    assert list(dict.fromkeys(told["documents"])) == play.evidence
    results = {check.rule: check.result for check in play.checks}
    if play.verdict == "rejected":
        assert [rule for rule, result in results.items() if result == "broken"] == [play.rule]
    else:
        assert set(results.values()) == {"passed"}


def check_attempt(attempt: Attempt, record: Record, kept: Kept) -> None:
    told, entry = kept.told(attempt.episode, attempt.game, attempt.file, attempt.row), kept.episodes[attempt.episode]
    for name in ("state", "outcome", "cause", "reward"):
        assert getattr(attempt, name) == entry[name], name
    assert attempt.step == entry["commit_step"] and not attempt.greedy
    assert (attempt.answer, attempt.transcript, attempt.searches) == (told["final"], told["text"], len(told["queries"]))
    assert (attempt.version_min, attempt.version_max) == (entry["policy_version_min"], entry["policy_version_max"])
    assert attempt.right == (attempt.reward == 1.0)


def test_every_field_of_a_thousand_records_resolves_to_an_episode(duel: Path, records: list[Record]) -> None:
    kept, ids = Kept(duel), [record.id for record in records]
    assert len(records) >= 1000 and len(set(ids)) == len(ids)
    for place, record in enumerate(records):
        for play in record.plays:
            check_play(play, record, kept)
        for attempt in record.attempts:
            check_attempt(attempt, record, kept)
        main = next(play for play in record.plays if play.verdict == record.verdict)
        said = (record.rule, record.proposer_version, record.queries, record.evidence)
        assert said == (main.rule, main.proposer_version, main.queries, main.evidence)
        rates = [play.win_rate for play in record.plays if play.win_rate is not None]
        assert (record.solve_rate is None) == (not rates) == (record.difficulty is None)
        if rates:
            right = [attempt.right for attempt in record.attempts]
            assert record.solve_rate == pytest.approx(sum(map(bool, right)) / len(right), abs=1e-6)
            assert record.difficulty == pytest.approx(1 - sum(map(bool, right)) / len(right), abs=1e-6)
        assert record.id == identify(record.question, record.target) and record.answers == [record.target]
        assert record.group in ids[: place + 1], "a question is in the group of an earlier one, or its own"
        where = (record.data_source, record.split, record.corpus, record.run)
        assert where == (f"selfplay-{duel.name}", "train", "world:11", duel.name) and record.license == "apache-2.0"
    silent = {id for id, game in kept.games.items() if game["question"] is None}
    played = {id for id, row in kept.episodes.items() if row["file"] and row["role"] != "eval"}
    assert kept.met == {id for id in played if kept.episodes[id]["game_id"] not in silent}, "nothing is left out"


@pytest.mark.parametrize("name", ["bank.parquet", "bank"])
def test_a_thousand_records_come_back_the_same(
    duel: Path, records: list[Record], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command: run → export → its export again, which has the same records and the same bytes."""
    first, second = tmp_path / name, tmp_path / "again.parquet"
    assert run(bank.main, [str(duel), "--export", str(first), "--transcripts"]) == 0
    assert files.read_bank(first) == records
    assert run(bank.main, [str(first), "--export", str(second), "--transcripts"]) == 0
    assert files.read_bank(second) == records
    data = first / files.DATA if first.is_dir() else first
    assert second.read_bytes() == data.read_bytes()


def test_the_exported_questions_train_with_the_search_r1_recipe(
    duel: Path, records: Sequence[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ssp bank --export --format search-r1`, then the recipe as `ssp train --tiny` sets it, on that file alone."""
    exported, folder = tmp_path / "train.parquet", tmp_path / "run"
    assert run(bank.main, [str(duel), "--export", str(exported), "--format", "search-r1"]) == 0
    given = {(one.question, one.answers) for one in read_questions(exported)}
    assert given == {(one.question, tuple(one.answers)) for one in records if one.verdict == "valid"}
    cfg = shrunk(RECIPE, [f"data.questions={exported}", "game.questions=dataset", "steps=4"])
    (tmp_path / "tiny.yaml").write_text(to_yaml(cfg))
    assert run(alone().main, ["--config", str(tmp_path / "tiny.yaml"), f"run.dir={folder}"]) == 0
    figures = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in figures if row["role"] == "solver"]
    assert [row["step"] for row in steps] == [1, 2, 3, 4] and all(row["grad_norm"] > 0 for row in steps)
    asked = rows(folder, "SELECT question, target FROM games WHERE question IS NOT NULL")
    assert asked and {(row["question"], (row["target"],)) for row in asked} <= given
    (count,) = rows(folder, "SELECT count(*) AS trained FROM episodes WHERE state = 'trained'")
    assert count["trained"] > 0
