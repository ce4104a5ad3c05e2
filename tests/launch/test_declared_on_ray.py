"""Games that the package does not know, on real Ray, with the embedded policy: two steps each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainruns import FEW, Cluster, run

GAMES = Path(__file__).parents[1] / "selfplay" / "games"
SIZES = ["steps=2", "game.attempts=2", "eval.every=0", "data.eval=[]", "defaults.batch=4", *FEW[2:]]

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.parametrize(
    ("game", "settings", "roles"),
    [
        pytest.param(
            "guided.py",
            [],
            {"proposer", "guide", "solver"},
            marks=pytest.mark.nightly,  # in CI: test_declared_games.py plays both in one process
        ),
        (
            "twosolvers.py",
            ["game.questions=dataset", "data.questions=world:train", "defaults.algorithm=reinforce"],
            {"left", "right"},
        ),
    ],
)
def test_a_game_of_ones_own_plays_and_learns(
    ray_cluster: Cluster, tmp_path: Path, game: str, settings: list[str], roles: set[str]
) -> None:
    typed = [f"game.kind={GAMES / game}:GAME", *SIZES, *settings]
    with run(tmp_path / "own", *typed, env=ray_cluster.env, config=str(GAMES / "small.yaml")) as made:
        assert made.wait(240) == 0, made.text()
    state = json.loads((made.folder / "checkpoints" / "state.json").read_text())
    assert (set(state["folders"]), state["step"]) == (roles, 2)
    played = {role for (role,) in made.sql("SELECT DISTINCT role FROM episodes WHERE state = 'trained'")}
    assert played <= roles and played
    assert made.sql("SELECT count(*) FROM episodes WHERE state IN ('created', 'running', 'grading', 'queued')") == [
        (0,)
    ]
