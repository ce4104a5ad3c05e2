"""The recipes of the field's other games, small, really trained for two rounds in one process."""

from __future__ import annotations

import json
import math
from pathlib import Path

import inprocess
import pytest

from ssp.base.episode import PROPOSER, SOLVER, State
from ssp.record.ledger import Ledger
from ssp.selfplay.questions.reader import read
from ssp.selfplay.settings.tiny import shrunk

STEPS = 2
FINAL = {state.value for state in State if state.final}

GAMES = {
    "dr-zero-qwen2.5-3b": {PROPOSER},
    "r-zero-qwen3-4b": {"challenger"},
    "spice-qwen3-4b": {"challenger", "reasoner"},
    "searchmaster-qwen3-8b": {PROPOSER, SOLVER},
    "cross-fit-qwen2.5-3b": {PROPOSER, SOLVER, "solver_a", "solver_b"},
}
"""Recipes of games other than the duel, and who may learn in two steps of one."""
SHORT = ("spice-qwen3-4b", "cross-fit-qwen2.5-3b")
"""Of passages and from memory, and with the most roles; the nightly layer plays the others too, which
tests/selfplay/test_games_of_the_field.py plays without a model."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in SHORT else pytest.mark.nightly) for n in GAMES])
@pytest.mark.covers("GA-01", "GA-02", "GA-03", "GA-04", "GA-05")
def test_a_game_of_the_field_plays_for_two_rounds(tmp_path: Path, name: str) -> None:
    """Its episodes all end, whoever is paid for them is trained, and nobody else is."""
    cfg = shrunk(name, [f"run.dir={tmp_path / 'run'}"])
    run = inprocess.play(cfg, name)
    assert json.loads(run.folder.state.read_text())["step"] == STEPS
    tally = Ledger(run.folder.ledger, readonly=True).check()
    assert not [state for states in tally.values() for state, count in states.items() if count and state not in FINAL]
    trained = {role for role, states in tally.items() if states.get("trained")}
    assert trained and trained <= GAMES[name]
    assert set(tally) - {"eval"} == set(run.cfg.roles)
    assert run.rows("SELECT * FROM games WHERE verdict = 'valid' AND question != '' AND target != ''")
    bank = read(run.folder).records
    assert bank and all(record.question for record in bank)
    figures = run.figures("game")
    assert len(figures) == STEPS and all(math.isfinite(value) for values in figures for value in values.values())
