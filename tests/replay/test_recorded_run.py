"""A run of an earlier form of the files: every episode comes out of its record again, and readers say what they said then."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from recorded import OVERLONG, again, expected, unpack
from test_forced_replay import all_same

from launch import compare as compared
from ssp.base.episode import EVAL, PROPOSER, SOLVER, Episode
from ssp.config.schema import Config
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions import reader
from ssp.views.board.data import Board
from ssp.views.compare.runs import Run
from ssp.views.replay import priced
from ssp.views.replay.forced import BOUNDS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return RunFolder(unpack(tmp_path_factory.mktemp("recorded")))


@pytest.fixture(scope="module")
def told() -> Any:
    return expected()


def plain(value: object) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(value))


@pytest.fixture
def _priced_as_then(monkeypatch: pytest.MonkeyPatch) -> None:
    def then(episode: Episode, cfg: Config, game: dict[str, Any]) -> list[float]:
        buffer = (cfg.block(episode.role).limits.total_tokens - OVERLONG - len(episode.log)) / OVERLONG
        return [word + loss for word in now(episode, cfg, game) for loss in (max(-1.0, min(0.0, buffer)), 0.0)]

    now = priced.rewards
    monkeypatch.setattr(priced, "rewards", then)


@pytest.mark.slow
@pytest.mark.usefixtures("_priced_as_then")
def test_every_episode_comes_out_of_its_record_again(run: RunFolder) -> None:
    """Ids, mask, drops, searches, end, answer, reward, verdict and log-probs."""
    seen, largest = all_same(run.path)
    assert (seen[PROPOSER], seen[SOLVER], seen[EVAL]) == (32, 30, 21)
    assert seen["proposer verdict"] == 32
    for role in (PROPOSER, SOLVER, EVAL):
        for what in "log-probs ids mask drops searches stopped outcome versions reward queries".split():
            assert seen[f"{role} {what}"] == seen[role], (role, what)
    assert 0 < largest < BOUNDS["float32"] / 5


def test_the_ledger_says_what_it_said(run: RunFolder, told: Any) -> None:
    ledger = Ledger(run.ledger, readonly=True)
    assert (ledger.digest(), ledger.outcomes()) == (told["digest"], told["outcomes"])
    ledger.check()
    ledger.close()


def test_the_bank_says_what_it_said(run: RunFolder, told: Any) -> None:
    found = reader.read(run)
    assert plain([asdict(record) for record in found.records]) == told["bank"]
    assert (found.silent, found.void) == (told["silent"], told["void"])


def test_the_curriculum_says_what_it_said(run: RunFolder, told: Any) -> None:
    """Of the figures that there are still."""
    for now, (step, values, said) in zip(plain(list(again(run))), told["curriculum"], strict=True):
        assert (now[0], now[2]) == (step, said) and now[1] == {name: values[name] for name in now[1]} != {}


def test_the_board_says_what_it_said(run: RunFolder, told: Any) -> None:
    board = Board(run)
    board.look()
    rows = {(kind, key): value for kind, key, value in board.since(0, None)["rows"]}
    board.close()
    for kind, key, value in (row for row in told["board"] if row[0] != "depth"):
        assert plain(rows[kind, key]) == value, (kind, key)


def test_a_comparison_says_what_it_said(run: RunFolder, told: Any) -> None:
    found = compared.figures([Run(run, "eval/accuracy_mean123")], [])
    one = found["runs"][0]
    of_then = {name: value for name, value in one.items() if name not in ("folder", "seconds", "cpu")}
    (said,) = told["compare"].pop("runs")
    assert one["checkpoint"]["version"] == said["checkpoint"]["version"]
    assert plain({**of_then, "checkpoint": None}) == {**said, "checkpoint": None}
    assert plain(found["settings"]) == told["compare"]["settings"]
