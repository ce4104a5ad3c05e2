"""Every recipe, small, really trained for two rounds in one process: real engine, search, referee, learners, ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import inprocess
import numpy as np
import pytest
from inprocess import Played
from safetensors.numpy import load_file

from ssp.base.episode import PROPOSER, SOLVER, State
from ssp.base.tokenlog import Kind
from ssp.config.load import names
from ssp.game import protocols
from ssp.record import episodes as transcripts
from ssp.record.ledger import Ledger
from ssp.selfplay.settings import load
from ssp.selfplay.settings.tiny import shrunk

STEPS = 2
FINAL = {state.value for state in State if state.final}

TYPED = {
    "research-qwen2.5-7b": ["game.attempts=5"],
    "ssp-qwen2.5-7b": ["solver.batch=8"],
}
"""So that within two rounds the anchor moves, groups are as large as published, and slots are left for replays."""


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Played]:
    """`ssp train --config NAME --tiny [key=value ...]` without Ray, once each."""

    @cache
    def played(name: str, *typed: str) -> Played:
        cfg = shrunk(name, [f"run.dir={tmp_path_factory.mktemp(name) / 'run'}", *TYPED.get(name, []), *typed])
        cfg.answering.kl.ema_every = 1
        return inprocess.play(cfg, name)

    return played


def changed(one: Path, other: Path, file: str = "model.safetensors") -> float:
    a, b = load_file(one / file), load_file(other / file)
    assert set(a) == set(b)
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


SAME = ("research-qwen2.5-32b", "search-r1-qwen2.5-7b-grpo", "search-r1-qwen2.5-7b-ppo")
"""Made tiny, these are what the smaller one is."""
GAMES = [name for name in names() if load(name).game.kind not in ("", "self-search")]
"""Those of other games than the duel: tests/launch/test_games_play.py."""
PLAYED = [name for name in names() if name not in ("quickstart", "simulated", "english", "english-gpu1", *SAME, *GAMES)]
LIKE = ("gpu8", "gpu32", "ssp-qwen3-8b", "ssrl-llama3.2-3b")
"""Recipes that are another one at another size; the nightly layer plays them."""


def each(names: Iterable[str]) -> list[Any]:
    """Recipes as parameters, some of the nightly layer."""
    return [pytest.param(name, marks=pytest.mark.nightly if name in LIKE else ()) for name in names]


@pytest.mark.parametrize("name", each(PLAYED))
@pytest.mark.covers("RS-01")
def test_a_recipe_trains_for_two_rounds(play: Callable[[str], Played], name: str) -> None:
    run = play(name)
    cfg, protocol = run.cfg, protocols.get(run.cfg.protocol)
    state = json.loads(run.folder.state.read_text())
    assert state["step"] == STEPS and set(state["folders"]) == set(cfg.roles)
    for role in cfg.roles:
        figures, block = run.figures(role), getattr(cfg, role)
        assert [step for step, name, _ in run.sink.rows if name == role] == [1, 2]
        assert all(math.isfinite(value) for values in figures for value in values.values())
        assert all(values["grad_norm"] > 0 and values["advantage/mean_abs"] > 0 for values in figures)
        if block.learner.minibatch >= figures[0]["episodes"]:  # else its later steps see a policy that has moved on
            assert max(values["logprob_mismatch/max"] for values in figures) < 1e-3
        folder = run.checkpoint(role)
        assert 0 < changed(run.models[role], folder) < 0.1
        record = json.loads((folder / "ssp.json").read_text())
        assert {key: record[key] for key in protocol.mark} == protocol.mark
        good = Path(state["good"]["folders"][role]).name if state["good"] else folder.name
        names, ahead = {path.name for path in folder.parent.iterdir()}, cfg.schedule.max_staleness[role]
        assert cfg.save.keep == 1 and {folder.name, good} <= names and len(names) <= len({folder.name, good}) + ahead
    tally = Ledger(run.folder.ledger, readonly=True).check()
    assert all(tally[role]["trained"] for role in cfg.roles)
    assert not [state for states in tally.values() for state, count in states.items() if count and state not in FINAL]
    assert not run.rows("SELECT id FROM episodes WHERE outcome = 'void'")
    assert run.rows(f"SELECT id FROM episodes WHERE role = '{SOLVER}' AND outcome = 'scored'")


@pytest.mark.parametrize("name", each(["ssp-qwen2.5-7b", "ssp-qwen3-8b", "ssp-llama3.1-8b"]))
@pytest.mark.covers("SP-01", "SP-08")
def test_the_duel_needs_no_question_and_no_pair(play: Callable[[str], Played], name: str) -> None:
    """From target answers alone: questions are searched for, pass every rule, and are tried."""
    run = play(name)
    games = run.rows("SELECT * FROM games WHERE verdict = 'valid' AND attempts = 3")
    assert games and all(len(game["question"].split()) >= 10 for game in games)
    figures = run.figures("game")
    assert all(values["game/proposer_searches"] > 1 for values in figures)
    trained = "SELECT DISTINCT role FROM episodes WHERE state = 'trained' ORDER BY role"
    assert [row["role"] for row in run.rows(trained)] == [PROPOSER, SOLVER]


@pytest.mark.covers("SP-05")
def test_left_slots_are_filled_from_the_pool(play: Callable[[str], Played]) -> None:
    first, second = play("ssp-qwen2.5-7b").figures("game")
    assert first["game/refilled"] == 0 and second["game/refilled"] == 8 - second["game/accepted"] > 0


@pytest.mark.parametrize("name", each(["ssrl-qwen2.5-7b", "ssrl-llama3.2-3b"]))
@pytest.mark.covers("SS-01", "SS-04")
def test_self_search_trains_without_a_request(play: Callable[[str], Played], name: str) -> None:
    """It searches all the same, writes what it finds, and none of that is trained."""
    run = play(name)
    assert run.searches == 0
    file = next(iter(sorted(run.folder.episodes.glob("solver-*.parquet"))))
    recalled = [episode for episode in transcripts.read(file) if "<information>" in episode.response]
    assert recalled and all(episode.log.kinds.count(int(Kind.RECALLED)) for episode in recalled)


@pytest.mark.parametrize("name", ["search-r1-qwen2.5-3b-ppo", "research-qwen2.5-7b", "ema-pg-qwen2.5-3b"])
def test_real_searches_are_made(play: Callable[[str], Played], name: str) -> None:
    run = play(name)
    assert run.searches > 0 and all(values["game/solver_searches"] > 0.5 for values in run.figures("game"))


@pytest.mark.covers("EP-01")
def test_the_anchor_of_ema_pg_follows_the_policy(play: Callable[[str], Played]) -> None:
    run = play("ema-pg-qwen2.5-3b")
    policy = run.checkpoint(SOLVER)
    away = changed(policy / "anchor", run.models[SOLVER])
    assert 0 < away < changed(policy, run.models[SOLVER])


@pytest.mark.covers("SR-01")
def test_the_critic_of_ppo_learns(play: Callable[[str], Played]) -> None:
    run = play("search-r1-qwen2.5-3b-ppo")
    assert (run.checkpoint(SOLVER) / "critic.pt").is_file()
    first, second = (values["value/mean"] for values in run.figures(SOLVER))
    assert 0.0 != first != second != 0.0  # a linear head that starts at 0
