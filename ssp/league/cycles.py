"""How much of a payoff matrix no ranking can explain.

Owns the Hodge decomposition of logit advantages (Jiang et al. 2011; Balduzzi et al. 2018). Of two populations, logit
P(solver i right on proposer j) = m + a_i - b_j + C_ij: a and b rank the versions (transitive), the rest C, whose rows and
columns sum to 0, does not. It is the curl of the symmetric game in which one plays both roles (docs/league.md has the
proof), so the share below is that game's too. Promises that the part that counting alone makes is taken off.
Refuses an answer where the pairs that met leave nothing over after the ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ssp.seeds import generator

DRAWS = 200


@dataclass(frozen=True)
class Cycles:
    """`raw`: share of the variation of logits that is not additive. `share`: the same without the variation expected of
    counting, 0 where counting explains all of it. `p`: how often tables that are additive in truth have as high a `raw`."""

    raw: float
    share: float
    p: float


def two_sided(right: np.ndarray, graded: np.ndarray, seed: int = 0) -> Cycles | None:
    """The non-transitive share of solvers (rows) against proposers (columns), from independent attempts: divide both
    counts by the table's design effect. Pairs with `graded` 0 never met. None where nothing can be said.
    """
    rows, columns = np.nonzero(graded)
    n, k = graded[rows, columns], right[rows, columns]
    design = np.zeros((len(rows), sum(graded.shape)))
    design[np.arange(len(rows)), rows] = design[np.arange(len(rows)), graded.shape[0] + columns] = 1.0
    solve = np.linalg.pinv(design)
    leverage = np.einsum("ij,ji->i", design, solve)
    if leverage.sum() > len(rows) - 0.5:
        return None
    logits, noise = _logit(k, n)
    fitted = design @ (solve @ logits)
    rest, total = _split(logits, fitted)
    if total < 1e-12:
        return None
    rest_noise, total_noise = ((1 - leverage) * noise).sum(), (1 - 1 / len(rows)) * noise.sum()
    cyclic = max(0.0, rest - rest_noise)
    ranked = max(0.0, total - rest - (total_noise - rest_noise))
    share = cyclic / (cyclic + ranked) if cyclic + ranked > 0 else 0.0

    trials = np.maximum(1, np.rint(n)).astype(int)
    drawn = generator(seed, "cycles").binomial(trials, 1 / (1 + np.exp(-fitted)), (DRAWS, len(rows)))
    chance = [_split(some, design @ (solve @ some)) for some in (_logit(draw, trials)[0] for draw in drawn)]
    as_high = sum(other * total >= rest * whole for other, whole in chance)
    return Cycles(rest / total, share, (1 + as_high) / (1 + DRAWS))


def _logit(k: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Empirical logits and their variance (Haldane, Anscombe: half an attempt added on both sides)."""
    return np.log((k + 0.5) / (n - k + 0.5)), 1 / (k + 0.5) + 1 / (n - k + 0.5)


def _split(logits: np.ndarray, fitted: np.ndarray) -> tuple[float, float]:
    """Squares that the additive fit leaves over, and those around the mean."""
    return float(((logits - fitted) ** 2).sum()), float(((logits - logits.mean()) ** 2).sum())
