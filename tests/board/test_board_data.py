"""The board's data: golden for a small run, the same however often one looked, and nothing invented."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ssp.base.errors import InputError
from ssp.config.load import to_yaml
from ssp.config.schema import EvalSet
from ssp.game.protocols import get
from ssp.record.ledger import Ledger
from ssp.record.reader import Tail
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions import reader
from ssp.telemetry.runlog import RunLog
from ssp.views.board.data import Board
from ssp.views.board.transcripts import details, pieces
from tests.board.boarded import ASYNC, GOLDEN, by_hand, looked, played, rows, scrubbed
from tests.selfplay import fakes


def same(found: Any, wanted: Any, where: str = "") -> None:
    """Equal, floats to a thousandth: ratings come from a solver whose last bits are the machine's."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict) and found.keys() == wanted.keys(), where
        for key, value in wanted.items():
            same(found[key], value, f"{where}.{key}")
    elif isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted), where
        for at, value in enumerate(wanted):
            same(found[at], value, f"{where}[{at}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-6), where
    else:
        assert found == wanted, where


def test_the_document_is_the_golden_one(stage: fakes.Stage) -> None:
    """`python -m tests.board.boarded` writes it anew: look at the difference before you keep it."""
    same(scrubbed(looked(stage.folder)), json.loads(GOLDEN.read_text()))


@pytest.mark.parametrize("changes", [{}, ASYNC], ids=["sync", "async"])
def test_who_asked_all_the_time_knows_what_a_newcomer_knows(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Asked after each row of figures while it plays, in parts of three rows; rounds overlap in the second run."""
    known: dict[tuple[str, str], Any] = {}
    boards: list[Board] = []
    seq, looks = 0, 0

    def seen(board: Board) -> None:
        nonlocal seq, looks
        boards[:], looks, more = [board], looks + 1, True
        board.look()
        while more:
            part = board.since(seq, 3)
            assert len(part["rows"]) <= 3 and part["seq"] >= seq and (part["rows"] or not part["more"])
            known.update({(kind, key): value for kind, key, value in part["rows"]})
            seq, more = part["seq"], part["more"]

    stage = played(tmp_path / "run", seen=seen, **changes)
    assert looks > 8 and len([name for name in known if name[0] == "questions"]) > 10, "it saw some of it meanwhile"
    seen(boards[0])
    wanted = rows(looked(stage.folder))
    assert known == wanted and len(wanted) > 40


def test_pages_of_rows_cost_what_the_rows_cost(stage: fakes.Stage) -> None:
    """A page that is opened, or saved, asks for all of a long run's rows in parts."""
    board = looked(stage.folder)
    for step in range(20_000):
        board._set("figures", f"game:{step}", [step, 0.5])

    def spent(most: int | None) -> float:
        began = time.process_time()
        part = board.since(0, most)
        while part["more"]:
            part = board.since(part["seq"], most)
        return time.process_time() - began

    whole = min(spent(None) for _ in range(3))
    assert min(spent(500) for _ in range(3)) < 6 * whole


def test_questions_are_the_banks(stage: fakes.Stage) -> None:
    found = {key: value for (kind, key), value in rows(looked(stage.folder)).items() if kind == "questions"}
    records = {record.id: record for record in reader.read(stage.folder).records}
    assert found.keys() == records.keys() and len(found) > 20
    for id, (question, target, verdict, rule, version, _, games, scored, rate, told) in found.items():
        record = records[id]
        assert (question, target, verdict) == (record.question, record.target, record.verdict)
        assert told, "each has a transcript"
        assert (rule, version, games) == (record.rule, record.proposer_version, len(record.plays)), id
        assert scored == sum(play.scored for play in record.plays) and rate == pytest.approx(record.solve_rate)


def test_the_ledger_reads_some_games_as_it_reads_all(stage: fakes.Stage) -> None:
    ledger = Ledger(stage.folder.ledger, readonly=True)
    games, episodes = ledger.settled()
    assert ledger.judged() == [game["id"] for game in games] == list(dict.fromkeys(row["game_id"] for row in episodes))
    some = [game["id"] for game in games[3:5]]
    assert ledger.of_games(some) == (games[3:5], [row for row in episodes if row["game_id"] in some])
    assert ledger.of_games([]) == ([], [])


def test_a_tail_reads_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    assert tail.lines() == []
    path.write_text("one\ntwo\nhal")
    assert tail.lines() == ["one", "two"] and tail.lines() == []
    with path.open("a") as file:
        file.write("f\nthree\n")
    assert tail.lines() == ["half", "three"]
    aside = tmp_path / "new"
    aside.write_text("other\n")
    aside.rename(path)
    assert tail.lines() == ["other"]


def test_an_exchanged_ledger_is_read_anew(tmp_path: Path) -> None:
    """On a network file system the folder's ledger is a copy, exchanged at each checkpoint."""
    run = by_hand(tmp_path / "run", ["one ?", "two ?"])
    board = looked(run)
    other = by_hand(tmp_path / "other", ["one ?", "two ?", "three ?"], each=2)
    other.ledger.rename(run.ledger)
    board.look()
    found = [value for (kind, _), value in rows(board).items() if kind == "questions"]
    assert sorted(value[0] for value in found) == ["one ?", "three ?", "two ?"]
    assert Counter(value[6] for value in found) == {1: 3}, "no game counts twice"


def test_a_first_look_that_fails_is_followed_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = by_hand(tmp_path / "run", ["one ?"])
    board = Board(run)
    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "rounds", lambda *given: (_ for _ in ()).throw(OSError("stale handle")))
        with pytest.raises(OSError, match="stale"):
            board.look()
    board.look()
    assert [value[0] for (kind, _), value in rows(board).items() if kind == "questions"] == ["one ?"]


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a run's folder holds"):
        Board(RunFolder(tmp_path / "nowhere"))
    run = by_hand(tmp_path / "run", ["one ?"])
    run.ledger.write_text("torn")
    with pytest.raises(InputError, match="SQLite"):
        looked(run)


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", [])
    found = rows(looked(run))
    assert found["duels", ""] == [] and not any(kind == "questions" for kind, _ in found)
    run.ledger.unlink()
    found = rows(looked(run))
    assert set(found) == {("run", ""), ("verdict", "")}
    assert found["verdict", ""]["headline"] == "Nothing was played yet"


def test_other_runs_lie_over_the_first(tmp_path: Path) -> None:
    first, second = (by_hand(tmp_path / name, ["one ?"]) for name in ("first", "second"))
    for run, share in ((first, 0.5), (second, 0.25)):
        log = RunLog(run.path)
        log.write(1, "game", {"game/win_rate": share})
        log.close()
    board = Board(first, [second])
    board.look()
    board.look()
    found = rows(board)
    assert found["figures", "game:1"][2:] == [0.5] and found["other", "1/figures/game:1"][2:] == [0.25]
    assert found["other", "1/run/"]["name"] == "second" and "headline" in found["other", "1/verdict/"]
    assert found["meaning", ""] == {"game/win_rate": "right attempts, mean over played questions (share)"}
    assert not any(key.startswith("1/questions") for kind, key in found if kind == "other")
    board.close()


def test_a_duel_has_its_referee_and_what_was_paid_for_the_question(stage: fakes.Stage) -> None:
    board = looked(stage.folder)
    duels = rows(board)["duels", ""]
    proposals = {row["id"]: row["reward"] for row in stage.rows()}
    plays = [play for shown in details(board, duels).values() for play in shown["plays"] if play["proposal"]]
    assert plays and all(play["reward"] == proposals[play["proposal"]] for play in plays)
    assert rows(board)["run", ""]["referee"].keys() == {"rules", "verifier", "evidence", "judge"}


def test_details_are_the_transcripts_in_segments(stage: fakes.Stage) -> None:
    board = looked(stage.folder)
    (record, *_) = [r for r in reader.read(stage.folder).records if len(r.plays) > 1]
    (record,) = reader.told(stage.folder, [record])
    found = details(board, [record.id, "q0"])
    assert set(found) == {record.id}
    detail = found[record.id]
    assert detail["games"] == len(record.plays) and [p["game"] for p in detail["plays"]] == [
        p.game for p in record.plays
    ]
    for attempt, whole in zip(detail["attempts"], record.attempts, strict=True):
        assert (attempt["right"], attempt["answer"], attempt["reward"]) == (whole.right, whole.answer, whole.reward)
        assert whole.transcript is not None
        squeezed = "".join(whole.transcript.split())
        assert all("".join(text.split()).removesuffix("(notclosed)") in squeezed for *_, text in attempt["text"])
        assert attempt["text"][0][0] == "prompt" and record.question in attempt["text"][0][2]
    known = {row["id"]: row for row in stage.rows()}  # ids that `ssp inspect RUN:EPISODE` takes
    assert {known[attempt["episode"]]["role"] for attempt in detail["attempts"]} == {"solver"}
    assert known[detail["plays"][0]["proposal"]]["role"] == "proposer"
    kinds = {kind for attempt in detail["attempts"] for kind, *_ in attempt["text"]}
    assert kinds >= {"prompt", "search", "evidence", "final"}
    few = details(board, [record.id], games=1)[record.id]["plays"]
    assert [play["kind"] for play in few] == ["proposed", "replayed"], "how it was asked goes with it"
    assert [play["number"] for play in few] == [1, len(record.plays)]


def test_pieces_of_a_transcript() -> None:
    text = "ask x <think> a </think><search> b </search><information> c </information> d <answer> e </answer>"
    assert pieces(get("search-r1"), "solver", text, 6) == [
        ["prompt", "prompt", "ask x"],
        ["think", "think", "a"],
        ["search", "search", "b"],
        ["evidence", "information", "c"],
        ["text", "text", "d"],
        ["final", "answer", "e"],
    ]
    assert pieces(get("search-r1"), "solver", "<answer> e", 0) == [["final", "answer", "e (not closed)"]]


@pytest.mark.parametrize(
    ("corpus", "wanted"),
    [
        ("world:heldout", {"name": "nq", "corpus": "world:heldout", "elsewhere": True, "held": True}),
        ("world:train", {"name": "nq", "corpus": "world:train", "elsewhere": False, "held": True}),
        ("/data/wiki.jsonl", {"name": "nq", "corpus": "wiki.jsonl", "elsewhere": True, "held": True}),
        ("none", {"name": "nq", "corpus": None, "elsewhere": False, "held": True}),
    ],
)
def test_the_periodic_evaluation_is_the_runs_own(tmp_path: Path, corpus: str, wanted: dict[str, Any]) -> None:
    run = by_hand(tmp_path / "run", ["why ?"])
    run.config.write_text(to_yaml(fakes.config(data__eval=[EvalSet("nq", "world:heldout", corpus)])))
    assert rows(looked(run))["run", ""]["evaluation"] == wanted
