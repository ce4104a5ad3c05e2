"""ReMax: one greedy attempt more at each question, kept, whose reward is the baseline of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fakes
import pytest
import torch
from fakes import Stage, config, game, played, void

from ssp.base.episode import SOLVER, Grade
from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.learning import settings as learning_rules
from ssp.learning.coldstart.store import ARTEFACT
from ssp.selfplay.records import Game
from ssp.selfplay.settle import settle
from ssp.selfplay.workers import learner as learner_worker
from tests import local

T, F = True, False


def asked(right: list[bool | None], greedy: bool | None) -> Game:
    made = game("g1", right)
    made.greedy = void("sg1g") if greedy is None else played("sg1g")
    if greedy is not None:
        made.grades["sg1g"] = Grade(greedy, float(greedy))
    return made


def remax(**changes: Any) -> Config:
    return config(solver__algorithm="remax", **changes)


@pytest.mark.parametrize("greedy", [T, F])
def test_the_greedy_reward_is_the_baseline(greedy: bool) -> None:
    made = asked([T, F, T, F], greedy)
    settled = settle(remax(), [made], 7)
    assert [(item.reward, item.baseline) for item in settled.items[SOLVER]] == [
        (r, float(greedy)) for r in (1, 0, 1, 0)
    ]
    kept = next(row for row in settled.rows if row["id"] == "sg1g")
    assert (kept["state"], kept["reward"]) == ("kept", float(greedy))
    assert made.win_rate == 0.5 and settled.figures(SOLVER)["reward/all"] == 0.5  # it is no attempt


def test_equal_attempts_teach_where_the_greedy_one_differs() -> None:
    assert len(settle(remax(), [asked([T] * 4, F)], 7).items[SOLVER]) == 4
    settled = settle(remax(), [asked([T] * 4, T)], 7)
    assert settled.items[SOLVER] == []
    assert {row["cause"] for row in settled.rows if row["state"] == "dropped"} == {"no_signal"}


def test_without_a_baseline_nothing_is_trained() -> None:
    settled = settle(remax(), [asked([T, F, T, F], None)], 7)
    states = {row["id"]: (row["state"], row["cause"]) for row in settled.rows}
    assert states["sg1g"] == ("voided", "retriever_down") and settled.items[SOLVER] == []
    assert states["sg1a0"] == ("dropped", "no_signal")
    assert settled.counts["void/retriever_down"] == 1


def test_a_game_with_greedy_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.scripted(monkeypatch)
    stage = Stage(remax(eval__every=0), tmp_path / "run", jitter=1)
    stage.play()
    states = stage.settled()[SOLVER]
    games = stage.rows("SELECT id, attempts FROM games WHERE attempts > 0")
    assert states["kept"] == len(games) and {row["attempts"] for row in games} == {4}
    orders = {
        args[1].stem.split("-")[0]: args[1].temperature
        for _, m, args in stage.cast.players["solver"].calls
        if m == "play"
    }
    assert orders["solvergreedy"] == 0.0 and orders["solver"] == 1.0
    again = Stage(remax(eval__every=0), tmp_path / "again", jitter=2)
    again.play()
    assert again.ledger.digest() == stage.ledger.digest()


def test_the_learner_takes_the_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advantage of an episode: its reward minus what the greedy one earned."""
    seen: list[torch.Tensor] = []

    class Watched(learner_worker.Learner):
        def _learn(self, batches: Any) -> dict[str, dict[str, float]]:
            batch = batches[SOLVER]
            assert batch.baseline_rewards is not None
            found = self._inner.objectives[SOLVER].algorithm.advantages(batch)
            expected = (batch.rewards - batch.baseline_rewards)[:, None] * batch.mask
            torch.testing.assert_close(found, expected)
            seen.append(found)
            return super()._learn(batches)

    fakes.scripted(monkeypatch)
    monkeypatch.setattr(local, "Learner", Watched)
    given = {"game__questions": "dataset", "solver__batch": 3, "eval__every": 0}
    stage = Stage(remax(steps=1, **given), tmp_path / "run", model=ARTEFACT)
    stage.play()
    assert len(seen) == 1 and bool((seen[0] != 0).any())
    assert stage.figures(SOLVER)[-1]["grad_norm"] > 0


def test_a_proposer_has_no_greedy_question() -> None:
    with pytest.raises(InputError, match="nobody asks"):
        learning_rules.proposers_are_compared(config(proposer__algorithm="remax"))
