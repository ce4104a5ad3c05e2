"""The curriculum of a run in figures, a round at a time, and the alarm for near-duplicates (docs/curriculum.md).

The same records in the same order give the same figures, live and from a run's files; one that a round cannot have (nobody
tried, nothing was accepted) is not there. Figures stop no run: where files are missing they begin anew.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence

from ssp.base.episode import PROPOSED, PROPOSER
from ssp.config.schema import Config
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.curriculum.records import Asked, live, read
from ssp.selfplay.questions.groups import Recent
from ssp.selfplay.records import Game

BANDS = ("0", "1-25", "26-50", "51-75", "76-99", "100")
"""Of solve rates, per cent: none right, four quarters without the ends, all right."""

EARLIER = 32
"""New questions that each one is compared with. A number of rounds would hold more of them as more are accepted, and a small
world's few questions would then look like a collapse."""

LATEST, LEAST, SIGMAS = 3, 0.2, 5.0
"""Rounds that an alarm looks at; the least change that makes one, and in standard errors."""

NEXT = (
    "read the newest questions (ssp board RUN, Questions); more entropy or KL for the proposer, several proposals a "
    "target, or rules for near-duplicates"
)


def band(rate: float) -> str:
    """The band of a solve rate."""
    return BANDS[0] if rate <= 0 else BANDS[5] if rate >= 1 else BANDS[1 + min(3, math.ceil(4 * rate - 1e-9) - 1)]


class Alarm:
    """The newest rounds' share of near-duplicates against that of the run's own beginning, after its first `window` rounds.
    `lasting`: whether the alarm lasts."""

    def __init__(self, window: int) -> None:
        self._window, self._rounds = window, 0
        self._near = self._questions = 0.0
        self._latest: deque[tuple[float, int]] = deque(maxlen=LATEST)
        self.lasting = False

    def see(self, step: int, share: float, questions: int) -> str:
        """The next round, of so many new questions, above 0, of which that share are near-duplicates. The line of an alarm
        that begins, else an empty one."""
        self._rounds += 1
        if self._rounds <= 2 * self._window:
            if self._rounds > self._window:
                self._near += share * questions
                self._questions += questions
            return ""
        self._latest.append((share, questions))
        kept = sorted(self._latest)[:-1]
        before, n = self._near / self._questions, sum(number for _, number in kept)
        if not n:
            return ""
        within = min(max(before, 0.05), 0.95)
        limit = max(LEAST, SIGMAS * math.sqrt(within * (1 - within) / n))
        worse = sum(value * number for value, number in kept) / n - before
        began = worse >= limit and not self.lasting
        self.lasting = worse >= (limit / 2 if self.lasting else limit)
        if not began:
            return ""
        return (
            f"curriculum alarm: near_duplicates at step {step}: {share:.2f}, and {before:.2f} at the run's beginning "
            f"(docs/curriculum.md). Next: {NEXT}."
        )


class Curriculum:
    """One run, round by round. `proposed`: somebody proposes; what he asks is what diversity is of, and it is watched.
    Without a proposer it is of all questions, and not watched: a data set is as it is."""

    def __init__(self, window: int, proposed: bool = True) -> None:
        self._recent = Recent(EARLIER)
        self._alarm = Alarm(window) if proposed else None
        self.said = ""
        """The alarm that began with the newest round, a line."""

    def round(self, step: int, asked: Sequence[Asked]) -> dict[str, float]:
        """The figures `curriculum/<name>` of the next round."""
        fresh = [one for one in asked if (one.kind == PROPOSED) is (self._alarm is not None)]
        rates = [one.rate for one in asked if one.rate is not None]
        bands = Counter(map(band, rates))
        numbers: dict[str, Sequence[float]] = {
            **{f"solved_{name}": [bands[name] / len(rates)] for name in BANDS if rates},
            "learnability": [4 * rate * (1 - rate) for rate in rates],
            "searches": [one.searches for one in fresh if one.searches is not None],
            "solver_searches": [one.tried for one in asked if one.tried is not None],
            "near_duplicates": [self._recent.near(one.question, one.target) for one in fresh],
        }
        values = {name: sum(found) / len(found) for name, found in numbers.items() if found}
        if self._alarm:
            self.said = self._alarm.see(step, values["near_duplicates"], len(fresh)) if fresh else ""
            values["alarm_near_duplicates"] = float(self._alarm.lasting)
        return {f"curriculum/{name}": value for name, value in values.items()}


class Watch:
    """What the coordinator tells of each settled round, in order. `say`: a line for the user."""

    def __init__(self, cfg: Config, run: RunFolder, say: Callable[[str], None]) -> None:
        self._cfg, self._run, self._say = cfg, run, say
        self.restart(0)

    def restart(self, step: int) -> None:
        """The run (re)starts after `step`: earlier rounds are read from its files."""
        self._curriculum = _begun(self._cfg)
        try:
            for number, asked in read(self._run, step) if step > 0 else ():
                self._curriculum.round(number, asked)
        except Exception as error:  # figures are no reason for a run not to go on, whatever is wrong with its files
            self._curriculum = _begun(self._cfg)
            self._say(f"curriculum figures begin anew after step {step}: {str(error) or type(error).__name__}")

    def round(self, step: int, games: Sequence[Game]) -> dict[str, float]:
        """The figures of a settled round; its alarm is said."""
        values = self._curriculum.round(step, live(games))
        if self._curriculum.said:
            self._say(self._curriculum.said)
        return values


def again(run: RunFolder) -> Iterator[tuple[int, dict[str, float], str]]:
    """(step, figures, the line of an alarm that begins) of each settled round of a run's files. InputError as
    `records.read`, and for a folder that is no run."""
    curriculum = _begun(RunReader(run).cfg)
    for step, asked in read(run):
        values = curriculum.round(step, asked)
        yield step, values, curriculum.said


def _begun(cfg: Config) -> Curriculum:
    return Curriculum(cfg.curriculum.window, PROPOSER in cfg.roles)
