"""Rows drawn so that no hop stays easy: the rule, the rows that follow from it, and the way back to a checkpoint."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import fakes
import pytest
from fakes import Stage, config, scripted, world

from ssp.base.errors import InputError
from ssp.base.played import Game
from ssp.selfplay.mix import LEAST, RAREST, HopMix
from ssp.selfplay.rows import TargetRow
from ssp.selfplay.scene import read_scene
from ssp.selfplay.settings import load
from ssp.selfplay.targets import Targets


def tried(hop: str, rates: list[float], number: int = 0) -> list[Game]:
    games = []
    for rate in rates:
        game = fakes.game("g1")
        game.number, game.hints, game.win_rate = number, {"searches": hop}, rate
        games.append(game)
    return games


def rows(count: int = 30) -> list[TargetRow]:
    return [TargetRow(f"t{at}", hints={"searches": str(1 + at % 3)}) for at in range(count)]


@pytest.mark.covers("GA-07")
def test_an_easy_hop_is_halved_each_round_and_comes_back_when_it_is_unlearned() -> None:
    mix = HopMix(0.9, {"1", "2"}, seed=0)
    few = mix.saw(tried("1", [1.0] * (LEAST - 1)))
    assert few == {"game/drawn_1hop": 1.0, "game/drawn_2hop": 1.0}
    shares = [mix.saw(tried("1", [1.0]))["game/drawn_1hop"] for _ in range(6)]
    assert shares == [0.5, 0.25, 0.125, RAREST, RAREST, RAREST]
    assert mix.saw(tried("2", [1.0] * 8))["game/drawn_2hop"] == 1.0  # the largest share counts as 1
    assert mix.saw(tried("1", [0.0] * 4))["game/drawn_1hop"] == 0.25  # 13 of 17 are no 90 %; beside 1/2
    assert mix.saw(tried("1", [0.0], number=-1)) == mix.saw([])  # a replayed question is of no row


def test_rows_of_an_easy_hop_are_passed_over_and_numbers_keep_their_rows() -> None:
    targets = Targets(rows(), 6, 5, each=2, most_right=0.9)
    plain = Targets(rows(), 6, 5, each=2)
    assert [game.number for game in targets.take(0, 1)] == [game.number for game in plain.take(0, 1)]
    for _ in range(5):
        targets.saw(tried("1", [1.0] * 8))
    drawn = [game for round_ in range(1, 201) for game in targets.take(round_, 1)]
    hops = Counter(game.hints["searches"] for game in drawn)
    assert 1 / 40 < hops["1"] / hops["2"] < 1 / 10 and abs(hops["2"] / hops["3"] - 1) < 0.2
    numbers = [game.number for game in drawn]
    assert numbers == sorted(set(numbers)) and all(b == a + 1 for a, b in zip(numbers[::2], numbers[1::2], strict=True))
    assert all(game.target == plain.item(game.number).target for game in drawn)


def test_a_run_that_goes_on_draws_the_same_rows() -> None:
    """Also the batches that later rounds had taken."""
    targets = Targets(rows(), 4, 5, most_right=0.9)
    for round_ in range(8):
        targets.take(round_, 1)
        targets.saw(tried("2", [1.0] * 4))
    state = json.loads(json.dumps(targets.state(5)))
    later = [[game.number for game in targets.take(round_, 1)] for round_ in (8, 9)]
    again = Targets(rows(), 4, 5, most_right=0.9)
    again.restore(state)
    first = [[game.number for game in again.take(round_, 1)] for round_ in (6, 7, 8, 9)]
    assert first[2:] == later and len({number for batch in first for number in batch}) == 16


class Hops(Stage):
    """A run of whose targets one in six asks for two searches, too few to be judged at first."""

    def targets(self) -> Targets:
        items = [
            TargetRow(target, hints={"searches": "1" if at % 6 else "2"}) for at, target in enumerate(world().targets())
        ]
        cfg = self.cfg
        return Targets(items, cfg.proposer.batch, cfg.seed, most_right=cfg.game.most_right)


@pytest.mark.covers("GA-07")
@pytest.mark.parametrize("bounds", [(0, 0), (2, 1)])
def test_the_sums_of_the_ledger_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int]) -> None:
    """Every attempt of most questions is right, so that hops are easy from the first rounds on; a run that crashed goes on
    with the same rows."""
    scripted(monkeypatch)
    changes = {"game__most_right": 0.4, "proposer__batch": 12, "solver__batch": 12, "eval__every": 0}
    cfg = config(bounds, steps=6, **changes)
    stage = Hops(cfg, tmp_path / "run").whole()
    numbers = [row["number"] for row in stage.rows("SELECT number FROM games ORDER BY number")]
    assert len(set(numbers)) == len(numbers) == 6 * 12 and numbers[-1] > 6 * 12
    assert any(value < 1 for figures in stage.figures() for name, value in figures.items() if "drawn_" in name)
    if bounds == (0, 0):
        half = Hops(config(bounds, steps=3, **changes), tmp_path / "half").whole()
        rest = Hops(cfg, half.folder.path).whole()
        sql = "SELECT round, number, target, question, win_rate FROM games ORDER BY round, number"
        assert rest.rows(sql) == stage.rows(sql)
        assert rest.state()["cursor"] == stage.state()["cursor"]


def test_rows_without_hops_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "targets.jsonl"
    file.write_text('{"ground_truth": "Oru"}\n')
    with pytest.raises(InputError, match="rows that ask for several numbers of hops"):
        read_scene(load("quickstart", ["game.most_right=0.9", f"data.targets={file}"]))
    assert read_scene(load("quickstart", ["game.most_right=0.9"])).items
