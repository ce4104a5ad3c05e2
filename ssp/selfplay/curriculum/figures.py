"""The curriculum of a run in figures, a round at a time.

Promises that the same records in the same order give the same figures, and that a figure which a round cannot have
(nobody tried, nothing was accepted) is not there.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ssp.base.episode import PROPOSED
from ssp.selfplay.curriculum.alarms import Alarm
from ssp.selfplay.curriculum.records import Asked
from ssp.selfplay.questions.groups import Recent
from ssp.selfplay.questions.records import identify

BANDS = ("0", "1-25", "26-50", "51-75", "76-99", "100")
"""Of solve rates, per cent: none right, four quarters without the ends, all right."""

EARLIER = 32
"""New questions that each one is compared with. A number of rounds would hold more of them as more are accepted, and a small
world's few questions would then look like a collapse."""


@dataclass(frozen=True)
class Setting:
    """What there is to ask about: numbers of distinct targets and documents (None: not known), and how many hops a question
    has (None: nobody knows)."""

    targets: int | None = None
    documents: int | None = None
    hops: Callable[[str], int] | None = None


def band(rate: float) -> str:
    """The band of a solve rate."""
    return BANDS[0] if rate <= 0 else BANDS[5] if rate >= 1 else BANDS[1 + min(3, math.ceil(4 * rate - 1e-9) - 1)]


class Window:
    """Things of the last rounds, counted."""

    def __init__(self, rounds: int) -> None:
        self._rounds: deque[Counter[str]] = deque(maxlen=rounds)
        self.counts: Counter[str] = Counter()
        self.ever: set[str] = set()

    def add(self, things: Iterable[str]) -> None:
        """Those of the next round."""
        if len(self._rounds) == self._rounds.maxlen:
            self.counts -= self._rounds[0]
        self._rounds.append(Counter(things))
        self.counts += self._rounds[-1]
        self.ever.update(self._rounds[-1])

    def spread(self, available: int | None) -> float | None:
        """Distinct things as a share of the most that so many mentions could have had; None without any."""
        mentions = self.counts.total()
        return len(self.counts) / min(mentions, available or mentions, mentions) if mentions else None


class Curriculum:
    """One run, round by round. `proposed`: somebody proposes; what he asks is what diversity is of, and it is watched.
    Without a proposer it is of all questions, and not watched: a data set is as it is."""

    def __init__(self, setting: Setting, window: int, proposed: bool = True) -> None:
        self._setting = setting
        self._targets, self._documents = Window(window), Window(window)
        self._recent = Recent(EARLIER)
        self._known: set[str] = set()
        self._alarm = Alarm(window) if proposed else None
        self.said = ""
        """The alarm that began with the newest round, a line."""

    def round(self, step: int, asked: Sequence[Asked]) -> dict[str, float]:
        """The figures `curriculum/<name>` of the next round."""
        fresh = [one for one in asked if (one.kind == PROPOSED) is (self._alarm is not None)]
        values = {**self._solved(asked), **self._asked(asked, fresh), **self._covered(fresh)}
        if self._alarm:
            self.said = self._alarm.see(step, values["near_duplicates"], len(fresh)) if fresh else ""
            values["alarm_near_duplicates"] = float(self._alarm.lasting)
        return {f"curriculum/{name}": value for name, value in values.items()}

    def _solved(self, asked: Sequence[Asked]) -> dict[str, float]:
        """How hard the round's questions were."""
        tried: list[tuple[str, float]] = [
            (identify(one.question, one.target), one.rate) for one in asked if one.rate is not None
        ]
        if not tried:
            return {}
        bands = Counter(band(rate) for _, rate in tried)
        values = {f"solved_{name}": bands[name] / len(tried) for name in BANDS}
        values["learnability"] = sum(4 * rate * (1 - rate) for _, rate in tried) / len(tried)
        values["mixed"] = sum(0 < rate < 1 for _, rate in tried) / len(tried)
        values["reasked"] = sum(id in self._known for id, _ in tried) / len(tried)
        self._known.update(id for id, _ in tried)
        return values

    def _asked(self, asked: Sequence[Asked], fresh: Sequence[Asked]) -> dict[str, float]:
        """How far one has to go for an answer."""
        searches = [one.searches for one in fresh if one.searches is not None]
        tried = [one.tried for one in asked if one.tried is not None]
        hops = [self._setting.hops(one.question) for one in fresh] if self._setting.hops else searches
        found: dict[str, Sequence[float]] = {"hops": hops, "searches": searches, "solver_searches": tried}
        return {name: sum(numbers) / len(numbers) for name, numbers in found.items() if numbers}

    def _covered(self, fresh: Sequence[Asked]) -> dict[str, float]:
        """How many different things are asked about."""
        near = sum(self._recent.near(one.question, one.target) for one in fresh)
        self._targets.add(one.target for one in fresh)
        self._documents.add(document for one in fresh for document in one.documents)
        values: dict[str, float] = {"near_duplicates": near / len(fresh)} if fresh else {}
        spreads = []
        for name, window in (("targets", self._targets), ("documents", self._documents)):
            available = getattr(self._setting, name)
            spread = window.spread(available)
            if spread is None:
                continue
            spreads.append(spread)
            values[name] = float(len(window.ever))
            if available:
                values[f"coverage_{name}"] = len(window.ever) / available
                values[f"coverage_{name}_window"] = len(window.counts) / available
        if spreads:
            values["coverage"] = sum(spreads) / len(spreads)
        return values
