"""Small games with known answers, and two learners that play one through the league.

The learners hold a softmax over moves and follow the plain policy gradient of what they would earn against their opponents
of the round; nothing else steadies them (no entropy term, no average), so what the league does is all that is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.config.schema import LeagueConfig
from ssp.extras.league.league import League
from ssp.extras.league.payoff import MatchResult
from tests.blocks import made

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
QUIZ = 0.5 + 0.5 * RPS
"""P(right): a kind of question (column) that one way of searching (row) always answers, one never, one half the time."""


RECENT = 6
"""Versions whose games a toy's league keeps, so that hundreds of rounds take a second."""


def toy(match: str, **more: Any) -> LeagueConfig:
    return made(LeagueConfig, match=match, **more)


def published(league: League, role: str, version: int) -> list[int]:
    """A new version, whose weights can be kept: newest now, perhaps a member. The members that left."""
    league.newest(role, version)
    return league.admit(role, version) if league.wants(role, version) else []


@dataclass(frozen=True)
class Played:
    """How far from the equilibrium both were, a number a round: each pair of the day, and the average pair until then."""

    last: np.ndarray
    average: np.ndarray


def softmax(logits: np.ndarray) -> np.ndarray:
    grown = np.exp(logits - logits.max())
    return grown / grown.sum()


def exploitability(payoff: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> float:
    """What both sides together gain by each answering the other's mixture best: 0 exactly at an equilibrium."""
    return float((payoff @ columns).max() - (rows @ payoff).min())


@patch("ssp.extras.league.league.RECENT", RECENT)
def play(
    settings: LeagueConfig,
    seed: int,
    rounds: int,
    rate: float = 4.0,
    slow: int = 30,
    slots: int = 8,
    attempts: int = 8,
    game: np.ndarray = QUIZ,
) -> Played:
    """Both roles learn for `rounds`: in each, a role's newest version meets `slots` opponents that the league names, with
    `attempts` seen games each. The learning rate is `rate` / sqrt(1 + round / `slow`)."""
    rng, league = np.random.default_rng(seed), League(settings, seed, PROPOSER, SOLVER)
    payoff = {SOLVER: game, PROPOSER: 1 - game.T}
    logits = {role: rng.normal(0, 0.5, len(payoff[role])) for role in ROLES}
    frozen: dict[str, dict[int, np.ndarray]] = {role: {} for role in ROLES}
    total = {role: np.zeros(len(payoff[role])) for role in ROLES}
    last, average = [], []
    for round_ in range(rounds):
        now = {role: softmax(logits[role]) for role in ROLES}
        for role in ROLES:
            frozen[role][round_] = now[role]
            published(league, role, round_)
            for version in set(frozen[role]) - {*league.members(role), round_}:
                del frozen[role][version]
            total[role] += now[role]
        seen = []
        step = rate / np.sqrt(1 + round_ / slow)
        for role, other in ((SOLVER, PROPOSER), (PROPOSER, SOLVER)):
            met = [league.opponent(role, round_, slot) for slot in range(slots)]
            versions = [round_ if version is None else version for version in met]
            values = payoff[role] @ np.mean([frozen[other][version] for version in versions], axis=0)
            logits[role] = logits[role] + step * now[role] * (values - now[role] @ values)
            for version in versions:
                won = int(rng.binomial(attempts, now[role] @ payoff[role] @ frozen[other][version]))
                pair = (round_, version) if role == SOLVER else (version, round_)
                seen.append(MatchResult(*pair, won if role == SOLVER else attempts - won, attempts))
        league.saw(seen)
        league.done(round_)
        last.append(exploitability(game, now[SOLVER], now[PROPOSER]))
        average.append(exploitability(game, total[SOLVER] / (round_ + 1), total[PROPOSER] / (round_ + 1)))
    return Played(np.array(last), np.array(average))
