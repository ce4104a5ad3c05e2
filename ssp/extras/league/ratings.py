"""The strength of every version, with its uncertainty: P(answerer i right on asker j) = sigma(s_i -
p_j).

The fit is the mode of the posterior under a Gaussian prior, by Newton's method, and the Gaussian
around it (Laplace). Who never met the same opponents is compared by the prior alone, which the
error shows. Cycles fit no single number a version."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ssp.base.played import ANSWERS, ASKS
from ssp.extras.league.payoff import PayoffTable

ELO = 400 / math.log(10)
"""Elo points a logit."""
PRIOR = 2.0
"""Standard deviation of a strength before any game, in logits: 347 Elo, where Glicko begins with
350."""
WALK = 0.1
"""Of the prior of a run's ratings, in logits a version (docs/league.md)."""
STEPS, CLOSE = 100, 1e-9

Name = tuple[str, int]
"""(side, version)."""


@dataclass(frozen=True)
class Ratings:
    """Strengths in logits, who asks after who answers; the mean over all versions is 0, since only
    differences are seen."""

    players: Mapping[Name, int]
    mean: np.ndarray
    cov: np.ndarray

    def elo(self, side: str, version: int) -> tuple[float, float]:
        """(rating, standard error) in Elo, 0 being the mean of all: P = 1 / (1 + 10 ** ((p - s) /
        400))."""
        at = self.players[side, version]
        return ELO * float(self.mean[at]), ELO * math.sqrt(self.cov[at, at])

    def gain(self, side: str, newer: int, older: int) -> tuple[float, float]:
        """(difference, standard error) in Elo of two versions of a side: whether it improved."""
        gap, variance = self._gap((side, newer), (side, older))
        return ELO * gap, ELO * math.sqrt(variance)

    def chance(self, answering: int, asking: int) -> float:
        """P(right), drawn towards 1/2 by what is not known (MacKay's approximation of the
        mean over the Gaussian)."""
        gap, variance = self._gap((ANSWERS, answering), (ASKS, asking))
        return float(_sigma(gap / math.sqrt(1 + math.pi * variance / 8)))

    def _gap(self, one: Name, other: Name) -> tuple[float, float]:
        """(difference, its variance) of two strengths, in logits."""
        i, j = self.players[one], self.players[other]
        variance = self.cov[i, i] + self.cov[j, j] - 2 * self.cov[i, j]
        return float(self.mean[i] - self.mean[j]), max(0.0, variance)


def fit(
    table: PayoffTable,
    prior: float = PRIOR,
    walk: float | None = None,
    also: Mapping[str, Sequence[int]] | None = None,
) -> Ratings:
    """Ratings of all versions in `table`, and of `also` (side → versions), which may have played
    nobody.

    `prior`: standard deviation of each strength, in logits. `walk`: None takes strengths as
    independent; a number links a version to the one before it (difference N(0, walk² x how many lie
    between), as in Coulom's Whole-History Rating)."""
    names = []
    for side in (ANSWERS, ASKS):
        versions = {*table.versions(side), *(also or {}).get(side, ())}
        names += [(side, version) for version in sorted(versions)]
    players = {name: at for at, name in enumerate(names)}
    if not names:
        return Ratings({}, np.zeros(0), np.zeros((0, 0)))

    pairs = table.pairs()
    one = np.array([players[ANSWERS, answering] for answering, _ in pairs], dtype=int)
    other = np.array([players[ASKS, asking] for _, asking in pairs], dtype=int)
    counts = np.array([table.count(*pair)[1:] for pair in pairs], dtype=float).reshape(-1, 2)
    n, k = (counts / table.design_effect()).T
    precision = _precision(names, prior, walk)

    def height(at: np.ndarray) -> float:
        gap = at[one] - at[other]
        return float(k @ gap - n @ np.logaddexp(0.0, gap) - at @ precision @ at / 2)

    mean = np.zeros(len(names))
    for _ in range(STEPS):
        chance = _sigma(mean[one] - mean[other])
        surprise, certainty = k - n * chance, n * chance * (1 - chance)
        slope, hessian = -precision @ mean, precision.copy()
        np.add.at(slope, one, surprise)
        np.add.at(slope, other, -surprise)
        np.add.at(hessian, (one, one), certainty)
        np.add.at(hessian, (other, other), certainty)
        np.add.at(hessian, (one, other), -certainty)
        np.add.at(hessian, (other, one), -certainty)

        step = np.linalg.solve(hessian, slope)
        while height(mean + step) < height(mean) - CLOSE and np.abs(step).max() > CLOSE:
            step = step / 2
        mean = mean + step
        if np.abs(step).max() < CLOSE:
            break

    centre = np.eye(len(names)) - 1 / len(names)
    return Ratings(players, centre @ mean, centre @ np.linalg.inv(hessian) @ centre)


def _precision(names: Sequence[Name], prior: float, walk: float | None) -> np.ndarray:
    """Inverse covariance of the prior; `names` by side, versions ascending."""
    precision = np.zeros((len(names), len(names)))
    for at, (side, version) in enumerate(names):
        if walk is None or at == 0 or names[at - 1][0] != side:
            precision[at, at] += 1 / prior**2
            continue
        link = 1 / (walk**2 * (version - names[at - 1][1]))
        precision[at - 1 : at + 1, at - 1 : at + 1] += link * np.array([[1.0, -1.0], [-1.0, 1.0]])
    return precision


def _sigma(x: np.ndarray | float) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -np.asarray(x)))
