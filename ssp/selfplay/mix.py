"""The mix of hops: of rows that ask for a number of searches, those whose questions are nearly all
answered are drawn less often.

The rule: each number of hops has a share, at first 1. After a round in which some of its questions
were tried, it is halved where more than `ceiling` of the attempts at its last `WINDOW` questions
were right, else doubled, within `RAREST` and 1. A row whose turn has come is passed over with a
chance of 1 less its share, as a part of the largest share."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

from ssp.base.played import ANSWERS, Game
from ssp.base.seeds import generator
from ssp.base.values import Values

WINDOW, LEAST = 32, 8
"""Questions that a hop is judged by: the newest ones at most, and how many it takes."""
RAREST = 1 / 16
"""The smallest share, so that a hop is seen at times, and comes back when it is unlearned."""


class HopMix:
    """The shares of one run. `hops`: those that rows ask for. `ceiling`: 1 for no mix."""

    def __init__(self, ceiling: float, hops: Collection[str], seed: int) -> None:
        self._ceiling = ceiling
        self._seed = seed
        self._shares = dict.fromkeys(sorted(hops), 1.0)
        self._recent: dict[str, list[float]] = {}

    @property
    def acts(self) -> bool:
        """Whether rows may be passed over."""
        return self._ceiling < 1 and len(self._shares) > 1

    def takes(self, number: int, hop: str) -> bool:
        """Whether the row of this number, which asks for `hop`, is drawn now."""
        share = self._shares[hop] / max(self._shares.values())
        if share == 1:
            return True
        return bool(generator(self._seed, "mix", number).random() < share)

    def saw(self, games: Sequence[Game]) -> Values:
        """Judge the hops by a settled round; called in the order of rounds. Its figures."""
        if not self.acts:
            return {}
        rates: dict[str, list[float]] = defaultdict(list)
        for game in games:
            if game.number >= 0 and game.win_rate is not None and game.frozen != ANSWERS:
                rates[game.hints.get("searches", "")].append(game.win_rate)
        for hop, new in rates.items():
            recent = [*self._recent.get(hop, []), *new][-WINDOW:]
            self._recent[hop] = recent
            if len(recent) < LEAST:
                continue
            share = self._shares[hop]
            easy = fmean(recent) > self._ceiling
            self._shares[hop] = max(RAREST, share / 2) if easy else min(1.0, 2 * share)
        largest = max(self._shares.values())
        return {f"game/drawn_{hop or 0}hop": s / largest for hop, s in self._shares.items()}

    def state(self) -> dict[str, Any]:
        """The shares and what they follow from, as plain data."""
        return {"shares": dict(self._shares), "recent": dict(self._recent)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; from the beginning where it is empty."""
        self._shares = {hop: state.get("shares", {}).get(hop, 1.0) for hop in self._shares}
        self._recent = {hop: list(rates) for hop, rates in state.get("recent", {}).items()}
