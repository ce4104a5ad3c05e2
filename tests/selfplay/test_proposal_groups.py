"""Several questions to a target, and what proposals are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fakes
import pytest
from fakes import Stage, config, game, played

from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError, InvariantError
from ssp.game import settings as game_rules
from ssp.learning import settings as learning_rules
from ssp.selfplay.records import Game
from ssp.selfplay.settle import Settled, settle
from ssp.selfplay.targets import Item, Targets

T, F = True, False


def asked(number: int, right: list[bool | None] | None, target: str = "t", searches: int = 1, **changes: Any) -> Game:
    """A game whose proposer searched so often; by default the attempts make its reward."""
    made = game(f"g{number}", right, proposal=played(f"pg{number}", PROPOSER, searches=searches), **changes)
    made.target = target
    return made


def trained(settled: Settled) -> dict[str, int]:
    return {item.id: item.group for item in settled.items[PROPOSER]}


def states(settled: Settled) -> dict[str, tuple[str, str]]:
    return {row["id"]: (row["state"], row["cause"]) for row in settled.rows if row["id"].startswith("p")}


def round_() -> list[Game]:
    """Two targets, drawn twice each: rewards 0.25, 0.75; 0.5, 0.5."""
    rights = [[T, T, T, F], [T, F, F, F], [T, T, F, F], [T, F, T, F]]
    return [asked(n, right, f"t{n // 2}", 1 + n % 3) for n, right in enumerate(rights)]


def test_questions_to_one_target_share_a_baseline_and_equal_ones_teach_nothing() -> None:
    cfg = config(game__proposals=2, proposer__algorithm="rloo")
    settled = settle(cfg, round_(), 7)
    assert trained(settled) == {"pg0": 0, "pg1": 0}
    assert states(settled)["pg2"] == states(settled)["pg3"] == ("dropped", "no_signal")
    assert settled.figures(PROPOSER)["groups/flat"] == 0.5
    batch_baseline = settle(config(game__proposals=2, proposer__algorithm="reinforce"), round_(), 7)
    assert len(trained(batch_baseline)) == 4


def test_hops_and_seed_put_targets_together() -> None:
    hops = settle(config(proposer__group="hops", proposer__algorithm="reinforce_pp_baseline"), round_(), 7)
    assert trained(hops) == {"pg0": 0, "pg1": 1, "pg2": 2, "pg3": 0}  # searches 1, 2, 3, 1
    seed = settle(config(proposer__group="seed", proposer__algorithm="rloo"), round_(), 7)
    assert trained(seed) == {"pg0": 0, "pg1": 0}


@pytest.mark.parametrize("lost", [{"void_cause": "retriever_down"}, {"chosen": False}])
def test_what_is_left_of_a_group_is_no_group(lost: dict[str, Any]) -> None:
    games = round_()[:2]
    for key, value in lost.items():
        setattr(games[1], key, value)
    settled = settle(config(game__proposals=2, proposer__algorithm="grpo"), games, 7)
    assert trained(settled) == {} and states(settled)["pg0"] == ("dropped", "no_signal")


def test_a_rejected_question_is_compared_with_the_others() -> None:
    games = round_()[:2]
    games[1] = asked(1, None, "t0", valid=False, rule="leakage")
    cfg = config(game__proposals=2, proposer__algorithm="rloo", proposer__invalid_reward=-1.0)
    settled = settle(cfg, games, 7)
    assert [(item.id, item.reward, item.group) for item in settled.items[PROPOSER]] == [
        ("pg0", 0.25, 0),
        ("pg1", -1.0, 0),
    ]


def test_each_drawn_row_is_asked_about_so_often() -> None:
    targets = Targets([Item(f"t{i}") for i in range(5)], 6, 0, each=3)
    drawn = [made for number in range(5) for made in targets.take(number, 1)]
    assert [made.number for made in drawn] == list(range(30))
    rows = [made.target for made in drawn[::3]]
    assert [made.target for made in drawn] == [target for target in rows for _ in range(3)]
    assert sorted(rows[:5]) == sorted(rows[5:]) == [f"t{i}" for i in range(5)]
    with pytest.raises(InvariantError, match="no multiple"):
        Targets([Item("t")], 4, 0, each=3)


@pytest.mark.parametrize("batch", ["dummy", "replay", "resample"])
def test_a_game_with_several_questions_a_target_goes_on_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    fakes.scripted(monkeypatch)
    changes = {"game__proposals": 4, "proposer__algorithm": "rloo", "game__batch": batch, "eval__every": 0}
    whole = Stage(config(steps=4, **changes), tmp_path / "whole", jitter=1)
    whole.play()
    whole.settled()
    for steps in (2, 4):
        half = Stage(config(steps=steps, **changes), tmp_path / "half", jitter=2)
        half.play()
    half.settled()
    sql = "SELECT role, commit_step, reward, count(*) AS n FROM episodes WHERE state = 'trained' GROUP BY 1, 2, 3"
    assert whole.rows(sql) == half.rows(sql) != []
    asked = whole.rows("SELECT target, count(*) AS n FROM games WHERE id LIKE 'g%' GROUP BY target")
    assert {row["n"] % 4 for row in asked} == {0}
    assert whole.rows("SELECT id FROM episodes WHERE role = 'proposer' AND state = 'trained'")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"game__proposals": 3}, "proposer.batch is a multiple"),
        ({"game__proposals": 2, "game__questions": "dataset"}, "game.proposals counts"),
        ({"proposer__algorithm": "rloo"}, "one target, of which there is one"),
        ({"proposer__group": "hops", "proposer__algorithm": "reinforce"}, "proposer.group counts only"),
        ({"solver__group": "hops"}, "solver.group is target"),
    ],
)
def test_what_would_have_no_effect_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        learning_rules.proposers_are_compared(config(**changes))
        game_rules.targets_share_a_batch(config(**changes))
    for good in ({"game__proposals": 4, "proposer__algorithm": "rloo"}, {"proposer__group": "hops"}):
        learning_rules.proposers_are_compared(config(**good))
        game_rules.targets_share_a_batch(config(**good))
