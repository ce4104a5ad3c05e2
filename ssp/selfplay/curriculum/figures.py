"""The curriculum of a run in figures, a round at a time, and the alarm for near-duplicates
(docs/curriculum.md).

Live or from a run's files, the records are the same and in the same order, by game, so the figures
are the same. A figure that a round cannot have is left out. When a round was played again, the last
time counts, and later rounds of the time before are gone. A league's games are seen as far as the
newest versions played them: no question of a past proposer, no rate of a past solver."""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ssp.base.episode import PROPOSED
from ssp.base.gamespec import GameSpec
from ssp.base.played import ASKS, Game
from ssp.base.values import Values
from ssp.config.schema import Config
from ssp.record.ledger.rows import EpisodeRow, GameRow
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions.groups import Recent
from ssp.selfplay.questions.records import VALID


@dataclass(frozen=True)
class AskedQuestion:
    """One accepted question in one round. `kind`: that of its game. `searches`: how often the
    proposer searched, None unless it was proposed. `rate`: the share of right attempts, None when
    nobody tried or too few attempts were scored. `tried`: the mean searches of the attempts."""

    game: str
    question: str
    target: str
    kind: str
    searches: int | None = None
    rate: float | None = None
    tried: float | None = None


def live(games: Iterable[Game]) -> list[AskedQuestion]:
    """The records of a settled round's games."""
    asked = []
    for game in sorted(games, key=lambda game: game.id):
        if not game.valid or game.void_cause or game.frozen == ASKS:
            continue
        searches = None if game.proposal is None else game.proposal.searches
        rate = tried = None
        if not game.frozen:
            rate = game.win_rate
            tried = _mean([played.searches for played in game.attempts])
        said = game.id, game.question, game.target, game.kind
        asked.append(AskedQuestion(*said, searches, rate, tried))
    return asked


def read(
    run: RunFolder, last: int | None = None, spec: GameSpec | None = None, searched: bool = True
) -> Iterator[tuple[int, list[AskedQuestion]]]:
    """(step, its records) of each settled round of a run's files, in order; up to step `last`. One
    round is held at a time.

    `spec`: the game that it played, None to read it from the run's configuration. Without
    `searched` no transcript is read, and nobody is said to have searched. InputError for a file
    that is no ledger, and for a missing or foreign episodes file."""
    reader = RunReader(run)
    spec = spec or reader.cfg.spec
    start = 0
    with reader.ledger() as ledger:
        for games, entries in ledger.rounds():
            step = games[0]["round"]
            if last is not None and step > last:
                return
            newest = max(game["incarnation"] for game in games)
            if newest < start:
                return  # the run went back before this round, and has not come to it again
            start = newest
            counted = [game for game in games if game["incarnation"] == newest]
            valid = [game for game in counted if game["verdict"] == VALID]
            played: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
            for entry in entries:
                if entry["file"]:
                    played[entry["game_id"]].append(entry)
            yield step, _round(reader, valid, played, spec, searched)


def _round(
    reader: RunReader,
    games: Sequence[GameRow],
    played: Mapping[str, list[EpisodeRow]],
    spec: GameSpec,
    searched: bool,
) -> list[AskedQuestion]:
    """The records of one round's valid games; `played`: the episodes of each game."""
    issued: dict[str, list[EpisodeRow]] = {}
    for game in games:
        episodes = sorted(played[game["id"]], key=lambda entry: entry["issue"])
        latest = {(entry["kind"], entry["attempt"]): entry for entry in episodes}
        issued[game["id"]] = list(latest.values())
    texts: dict[str, dict[str, Any]] = {}
    if searched:
        texts = reader.texts(chain.from_iterable(issued.values()), ("id", "queries"))
    asked = []
    for game in sorted(games, key=lambda game: str(game["id"])):
        searches: defaultdict[str, list[int]] = defaultdict(list)
        past = set()
        for entry in issued[game["id"]]:
            if searched:
                searches[entry["kind"]].append(len(texts[entry["id"]]["queries"]))
            if entry["past"]:
                past.add(entry["role"])
        if spec.asker in past:
            continue
        proposal = next(iter(searches[spec.asks]), None)
        rate = tried = None
        if not past:
            rate = game["win_rate"]
            tried = _mean(searches[spec.answers])
        said = game["id"], game["question"] or "", game["target"] or "", game["kind"]
        asked.append(AskedQuestion(*said, proposal, rate, tried))
    return asked


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


BANDS = ("0", "1-25", "26-50", "51-75", "76-99", "100")
"""Of solve rates, per cent: none right, four quarters without the ends, all right."""
EARLIER = 32
"""New questions that each one is compared with: a number of rounds would hold more of them as more
are accepted."""
WINDOW = 8
"""Rounds that an alarm's baseline spans, after as many that are left out."""
LATEST, LEAST, SIGMAS = 3, 0.2, 5.0
"""Rounds that an alarm looks at; the least change that makes one, and in standard errors."""

NEXT = (
    "read the newest questions (ssp board RUN, Questions); more entropy or KL for who asks,"
    " several proposals a target, or rules for near-duplicates"
)


def band(rate: float) -> str:
    """The band of a solve rate."""
    if rate <= 0:
        return BANDS[0]
    if rate >= 1:
        return BANDS[5]
    quarter = math.ceil(4 * rate - 1e-9)
    return BANDS[min(4, quarter)]


class DuplicateAlarm:
    """Compares the newest rounds' share of near-duplicates with the share in the second `window`
    rounds. `lasting`: the alarm lasts."""

    def __init__(self, window: int) -> None:
        self._window, self._rounds = window, 0
        self._near = self._questions = 0.0
        self._latest: deque[tuple[float, int]] = deque(maxlen=LATEST)
        self.lasting = False

    def see(self, step: int, share: float, questions: int) -> str:
        """Take in the next round: the share among its new questions, of which there is at least
        one. The line of an alarm that begins, else ""."""
        self._rounds += 1
        if self._rounds <= 2 * self._window:
            if self._rounds > self._window:
                self._near += share * questions
                self._questions += questions
            return ""
        self._latest.append((share, questions))
        kept = sorted(self._latest)[:-1]  # one bad round alone makes no alarm
        before = self._near / self._questions
        n = sum(number for _, number in kept)
        if not n:
            return ""
        within = min(max(before, 0.05), 0.95)
        error = math.sqrt(within * (1 - within) / n)
        limit = max(LEAST, SIGMAS * error)
        near = sum(value * number for value, number in kept)
        worse = near / n - before
        began = worse >= limit and not self.lasting
        if self.lasting:
            limit /= 2
        self.lasting = worse >= limit
        if not began:
            return ""
        return (
            f"curriculum alarm: near_duplicates at step {step}: {share:.2f}, and {before:.2f} at"
            f" the run's beginning (docs/curriculum.md). Next: {NEXT}."
        )


class Curriculum:
    """One run, round by round. `proposed`: somebody proposes; then diversity is measured over the
    proposed questions and watched, else it is measured over all. `said`: the line of an alarm that
    began with the newest round."""

    def __init__(self, window: int, proposed: bool = True) -> None:
        self._recent = Recent(EARLIER)
        self._alarm = DuplicateAlarm(window) if proposed else None
        self.said = ""

    def round(self, step: int, asked: Sequence[AskedQuestion]) -> Values:
        """The figures `curriculum/<name>` of the next round."""
        proposed = self._alarm is not None
        fresh = [one for one in asked if (one.kind == PROPOSED) is proposed]
        rates = [one.rate for one in asked if one.rate is not None]
        bands = Counter(map(band, rates))
        values: dict[str, float | None] = {}
        for name in BANDS if rates else ():
            values[f"solved_{name}"] = bands[name] / len(rates)
        values["learnability"] = _mean([4 * rate * (1 - rate) for rate in rates])
        values["searches"] = _mean([one.searches for one in fresh if one.searches is not None])
        values["solver_searches"] = _mean([one.tried for one in asked if one.tried is not None])
        near = _mean([self._recent.near(one.question, one.target) for one in fresh])
        values["near_duplicates"] = near
        if self._alarm:
            self.said = "" if near is None else self._alarm.see(step, near, len(fresh))
            values["alarm_near_duplicates"] = float(self._alarm.lasting)
        return {f"curriculum/{name}": value for name, value in values.items() if value is not None}


class Watch:
    """What the coordinator tells of each settled round, in order. `say`: a line for the user."""

    def __init__(self, cfg: Config, run: RunFolder, say: Callable[[str], None]) -> None:
        self._spec, self._run, self._say = cfg.spec, run, say
        self._proposed = cfg.asks
        self.restart(0)

    def restart(self, step: int) -> None:
        """The run (re)starts after `step`: earlier rounds are read from its ledger. What is
        compared over rounds is what was asked, so no transcript is read."""
        self._curriculum = Curriculum(WINDOW, self._proposed)
        try:
            earlier = read(self._run, step, self._spec, searched=False) if step > 0 else ()
            for number, asked in earlier:
                self._curriculum.round(number, asked)
        except Exception as error:
            # figures are no reason for a run not to go on, whatever is wrong with its files
            self._curriculum = Curriculum(WINDOW, self._proposed)
            why = str(error) or type(error).__name__
            self._say(f"curriculum figures begin anew after step {step}: {why}")

    def round(self, step: int, games: Sequence[Game]) -> Values:
        """The figures of a settled round; its alarm is said."""
        values = self._curriculum.round(step, live(games))
        if self._curriculum.said:
            self._say(self._curriculum.said)
        return values
