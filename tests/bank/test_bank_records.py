"""Every field of every record of a real run is found again in the ledger and in the episodes' files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ssp.base.episode import Outcome
from ssp.base.errors import InputError
from ssp.game.rewards.proposer import win_rate
from ssp.record import episodes as transcripts
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions import files, reader
from ssp.selfplay.questions.records import Filter, PlayedGame, Record, identify
from tests.board.boarded import played
from tests.selfplay import fakes


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fakes.Stage:
    """Each seventh call of search fails, so that there are voids too."""
    count = iter(range(10**6))
    broken = fakes.BrokenSearch(lambda queries: next(count) % 7 == 5)
    return played(tmp_path_factory.mktemp("bank") / "run", searcher=broken, steps=8)


@pytest.fixture(scope="module")
def bank(run: fakes.Stage) -> reader.RunReading:
    return reader.read(run.folder)


def whole(run: fakes.Stage) -> dict[str, Any]:
    return {e.id: e for file in run.folder.episodes.glob("*.parquet") for e in transcripts.read(file)}


def test_every_question_is_in_the_bank_once_with_all_its_games(run: fakes.Stage, bank: reader.RunReading) -> None:
    games = run.rows("SELECT * FROM games WHERE id NOT LIKE 'eval%' AND verdict IS NOT NULL")
    asked = {(game["question"], game["target"]) for game in games if game["question"]}
    assert {(record.question, record.target) for record in bank.records} == asked and len(asked) == len(bank.records)
    banked = Counter(play.game for record in bank.records for play in record.plays)
    assert banked == {game["id"]: 1 for game in games if game["question"]}
    none = Counter(game["verdict"] for game in games if game["question"] is None)
    assert (bank.silent, bank.void) == (none["rejected"], none["void"]) and none["rejected"] and none["void"]
    assert {play.kind for record in bank.records for play in record.plays} == {"proposed", "replayed"}
    assert {record.verdict for record in bank.records} >= {"valid", "rejected"}
    assert any(attempt.outcome == "void" for record in bank.records for attempt in record.attempts)


def test_every_field_of_a_record_resolves(run: fakes.Stage, bank: reader.RunReading) -> None:
    games = {game["id"]: game for game in run.rows("SELECT * FROM games")}
    rows = {row["id"]: row for row in run.rows()}
    found, seen = whole(run), set()
    for record in reader.told(run.folder, bank.records):
        assert record.id == identify(record.question, record.target)
        assert record.answers == [record.target] and record.license and record.data_source == "selfplay-run"
        assert (record.split, record.corpus, record.run) == ("train", "world:train", "run")
        for play in record.plays:
            game = games[play.game]
            assert (game["question"], game["target"]) == (record.question, record.target)
            assert (play.verdict, play.rule, play.win_rate) == (game["verdict"], game["rule"], game["win_rate"])
            assert play.proposer_version == game["proposer_version"]
            if play.proposal is not None:
                row = rows[play.proposal]
                assert (row["game_id"], row["file"], row["row"]) == (play.game, play.file, play.row)
                told = transcripts.read(run.folder.episodes / play.file)[play.row]
                assert (told.id, told.final, told.text) == (play.proposal, record.question, play.transcript)
                assert told.queries == play.queries and {d.id for d in told.documents} == set(play.evidence)
                assert play.proposer_version == told.log.version_span[1]
                seen.add(told.id)
            mine = [attempt for attempt in record.attempts if attempt.game == play.game]
            assert win_rate([a.right for a in mine], 4) == play.win_rate if mine else play.win_rate is None
            assert play.scored == sum(attempt.outcome != "void" for attempt in mine)
        for attempt in record.attempts:
            row, told = rows[attempt.episode], found[attempt.episode]
            names = ("state", "outcome", "cause", "reward", "file", "row")
            assert [row[name] for name in names] == [getattr(attempt, name) for name in names]
            assert attempt.game == told.game == row["game_id"] and attempt.step == row["commit_step"]
            assert (attempt.answer, attempt.transcript, attempt.searches) == (told.final, told.text, len(told.queries))
            assert (attempt.version_min, attempt.version_max) == told.log.version_span or (told.outcome is Outcome.VOID)
            assert attempt.right == (None if row["outcome"] == "void" else told.final == record.target)
            seen.add(told.id)
    silent = {row["id"] for row in rows.values() if (games.get(row["game_id"]) or {}).get("question") is None}
    assert seen | silent == set(rows) and seen


# what a judge decided


def attempts(right: list[bool | None], rate: float) -> list[bool | None]:
    """What the reader says of scored attempts whose answers are right by an exact match (True) or by nobody knows."""
    cfg = fakes.config(judge__kind="llm")
    made = reader._Reader(cfg, RunFolder("nowhere"), {
        f"s{i}": {"id": f"s{i}", "final": "yes" if r else "no" if r is None else None, "queries": []}
        for i, r in enumerate(right)
    })  # fmt: skip
    rows = [
        dict.fromkeys(("policy_version_min", "policy_version_max", "cause", "reward", "commit_step", "file", "row"))
        | {"id": f"s{i}", "role": "solver", "kind": "attempt", "state": "kept", "outcome": "scored"}
        for i in range(len(right))
    ]
    game = {"id": "g1", "attempts": len(right), "win_rate": rate}
    return [attempt.right for attempt in made._attempts(game, rows, ["yes"])]


@pytest.mark.parametrize(
    ("right", "rate", "said"),
    [
        ([True, None, None, False], 0.25, [True, False, False, False]),
        ([True, None, None, False], 0.75, [True, True, True, False]),
        ([True, None, None, False], 0.5, [True, None, None, False]),
        ([None, None], 0.0, [False, False]),
    ],
)
def test_a_judges_word_is_taken_from_the_win_rate_or_not_at_all(
    right: list[bool | None], rate: float, said: list[bool | None]
) -> None:
    assert attempts(right, rate) == said


# filters


def record(**changes: Any) -> Record:
    made = Record("q1", "Who wrote Emma ?", "Austen", ["Austen"], "valid", None, 3, [], [], 0.75, 0.25, "q1", "s", "train",
                  "unknown", "wiki", "r")  # fmt: skip
    return replace(made, **changes)


def play(**changes: Any) -> PlayedGame:
    return replace(PlayedGame("g1", "proposed", "valid", None, 3, "p1", "f", 0, [], [], 5, 4, 0.75), **changes)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        (Filter(), True),
        (Filter(valid=True), True),
        (Filter(min_difficulty=0.25, max_difficulty=0.25), True),
        (Filter(min_difficulty=0.3), False),
        (Filter(max_difficulty=0.2), False),
        (Filter(contains="EMMA"), True),
        (Filter(contains="austen"), True),
        (Filter(contains="Bronte"), False),
        (Filter(rule="leakage"), False),
    ],
)
def test_filters(asked: Filter, meant: bool) -> None:
    assert asked(record(plays=[play()])) == meant


def test_a_question_without_difficulty_is_within_no_bound_and_a_rejection_is_found_by_its_rule() -> None:
    leaked = record(
        verdict="rejected", rule="leakage", difficulty=None, plays=[play(verdict="rejected", rule="leakage")]
    )
    assert Filter()(leaked) and Filter(rule="leakage")(leaked) and not Filter(rule="empty")(leaked)
    assert not Filter(max_difficulty=0.9)(leaked) and not Filter(valid=True)(leaked)
    void = record(verdict="void", rule="judge_down", plays=[play(verdict="void", rule="leakage")])
    assert not Filter(rule="leakage")(void)


# runs that are none, or not whole


def test_a_run_that_has_not_begun_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(InputError, match="has a ledger"):
        reader.read(RunFolder(tmp_path))
    Ledger(tmp_path / "ledger.db").close()
    with pytest.raises(InputError, match="settled rounds"):
        reader.read(RunFolder(tmp_path))


def test_games_in_play_are_left_for_later(tmp_path: Path) -> None:
    """Read while it is written: a round that is not settled yet is not half in the bank."""
    stage = played(tmp_path / "run", steps=1)
    before = reader.read(stage.folder)
    ledger = Ledger(stage.folder.ledger)
    ledger.create_games([{"id": "g9999999-i1", "target": "x"}])
    ledger.create([{"id": "p9999999-i1.0", "game_id": "g9999999-i1", "role": "proposer", "state": "running"}])
    assert reader.read(stage.folder) == before
    ledger.close()


@pytest.mark.parametrize("harm", ["gone", "torn", "of another run"])
def test_a_file_of_episodes_that_is_not_the_ledgers_is_refused(tmp_path: Path, harm: str) -> None:
    folder = played(tmp_path / "run", steps=1).folder
    first, second, *_ = sorted(folder.episodes.glob("solver-*.parquet"))
    if harm == "gone":
        first.unlink()
    elif harm == "torn":
        first.write_bytes(first.read_bytes()[:100])
    else:
        first.write_bytes(second.read_bytes())
    with pytest.raises(InputError, match="episodes"):
        reader.read(folder)


# other runs


def test_the_bank_of_a_data_set_has_its_answers_and_no_proposer(tmp_path: Path) -> None:
    rows = [f'{{"id": "{i}", "question": "{q.text}", "answers": ["else", "{q.answer}"], "data_source": "nq"}}\n'
            for i, q in enumerate(fakes.world().questions(1, 40, 7))]  # fmt: skip
    (tmp_path / "given.jsonl").write_text("".join(rows))
    given = {"game__questions": "dataset", "data__questions": str(tmp_path / "given.jsonl"), "game__batch": "dummy"}
    stage = played(tmp_path / "run", steps=2, **given)
    bank = reader.read(stage.folder)
    assert bank.records and bank.silent == 0
    for found in bank.records:
        assert found.answers[0] == "else" == found.target and len(found.answers) == 2
        assert (found.data_source, found.license, found.proposer_version, found.verdict) == (
            "nq",
            "unknown",
            None,
            "valid",
        )
        assert [play.kind for play in found.plays] == ["given"]
    again = fakes.config(game__questions="bank", data__questions=str(stage.folder.path))
    asked = files.given(again)
    assert asked and all(one.answers[0] == "else" and len(one.answers) == 2 for one in asked)
    assert files.answered(again).keys() >= {(one.question, "else") for one in asked}
    for found in bank.records:
        right = [attempt.right for attempt in found.attempts]
        assert found.solve_rate == pytest.approx(sum(map(bool, right)) / len(right), abs=1e-6)


def test_a_worlds_file_is_called_by_its_world() -> None:
    assert reader.origin("/somewhere/worlds/v1-11/corpus.jsonl") == "world:11"
    assert reader.origin("/somewhere/worlds/v1-7/questions.jsonl") == "world:7"
    assert reader.origin("world:train") == "world:train" and reader.origin("/data/wiki.jsonl") == "wiki.jsonl"
