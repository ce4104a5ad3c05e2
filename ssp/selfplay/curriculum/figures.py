"""The curriculum of a run in figures, a round at a time, and the alarm for near-duplicates
(docs/curriculum.md).

Live or from a run's files: the same records in the same order, by game, so the same figures; one
that a round cannot have is not there. Of a round that was played again the last time counts, and
rounds beyond what was played then are gone. Of a league's games only the newest versions' work is
seen: no question of a past proposer, no rate of a past solver."""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ssp.base.episode import PROPOSED
from ssp.base.gamespec import GameSpec
from ssp.base.played import ASKS, Game
from ssp.config.schema import Config
from ssp.record.ledger.rows import EpisodeRow, GameRow
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions.groups import Recent
from ssp.selfplay.questions.records import VALID


@dataclass(frozen=True)
class AskedQuestion:
    """One accepted question in one round. `kind`: its game's. `searches`: the proposer's, of a
    proposed one; `rate`: the share of right attempts, None when nobody tried or too few attempts
    were scored; `tried`: the attempts' mean searches."""

    game: str
    question: str
    target: str
    kind: str
    searches: int | None = None
    rate: float | None = None
    tried: float | None = None


def live(games: Iterable[Game]) -> list[AskedQuestion]:
    """The records of a settled round's games."""
    found = []
    for game in sorted(games, key=lambda game: game.id):
        if game.valid and not game.void_cause and game.frozen != ASKS:
            searches = None if game.proposal is None else game.proposal.searches
            tried = _mean([played.searches for played in game.attempts])
            new = (None, None) if game.frozen else (game.win_rate, tried)
            found.append(
                AskedQuestion(game.id, game.question, game.target, game.kind, searches, *new)
            )
    return found


def read(
    run: RunFolder, last: int | None = None, spec: GameSpec | None = None
) -> Iterator[tuple[int, list[AskedQuestion]]]:
    """(step, its records) of each settled round of a run's files, in order; up to step `last`.
    `spec`: the game that it played, None to read it from the run's configuration.
    InputError for a file that is no ledger, and for a missing or foreign episodes file."""
    reader = RunReader(run)
    games, entries = reader.settled()
    of: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
    for entry in entries:
        if entry["file"]:
            of[entry["game_id"]].append(entry)
    rounds: defaultdict[int, defaultdict[int, list[GameRow]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for game in games:
        rounds[game["round"]][game["incarnation"]].append(game)
    spec = spec or reader.cfg.spec
    start = 0
    for step in sorted(step for step in rounds if last is None or step <= last):
        if max(rounds[step]) < start:
            return  # the run went back before this round, and has not come to it again
        start = max(rounds[step])
        yield (
            step,
            _round(
                reader, [game for game in rounds[step][start] if game["verdict"] == VALID], of, spec
            ),
        )


def _round(
    reader: RunReader,
    games: Sequence[GameRow],
    of: Mapping[str, list[EpisodeRow]],
    spec: GameSpec,
) -> list[AskedQuestion]:
    issued: dict[str, list[EpisodeRow]] = {}
    for game in games:  # of each episode the last issue
        ours = sorted(of[game["id"]], key=lambda entry: entry["issue"])
        issued[game["id"]] = list(
            {(entry["kind"], entry["attempt"]): entry for entry in ours}.values()
        )
    texts = reader.texts(
        [entry for entries in issued.values() for entry in entries], ("id", "queries")
    )
    found = []
    for game in sorted(games, key=lambda game: str(game["id"])):
        entries = issued[game["id"]]
        searches = {
            kind: [len(texts[entry["id"]]["queries"]) for entry in entries if entry["kind"] == kind]
            for kind in (spec.asks, spec.answers)
        }
        past = {entry["role"] for entry in entries if entry["past"]}
        if spec.asker not in past:
            said = game["id"], game["question"] or "", game["target"] or "", game["kind"]
            new = (None, None) if past else (game["win_rate"], _mean(searches[spec.answers]))
            found.append(AskedQuestion(*said, next(iter(searches[spec.asks]), None), *new))
    return found


def _mean(values: Sequence[int]) -> float | None:
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
    return (
        BANDS[0]
        if rate <= 0
        else BANDS[5]
        if rate >= 1
        else BANDS[1 + min(3, math.ceil(4 * rate - 1e-9) - 1)]
    )


class DuplicateAlarm:
    """The newest rounds' share of near-duplicates against that after the first `window` rounds.
    `lasting`: it lasts."""

    def __init__(self, window: int) -> None:
        self._window, self._rounds = window, 0
        self._near = self._questions = 0.0
        self._latest: deque[tuple[float, int]] = deque(maxlen=LATEST)
        self.lasting = False

    def see(self, step: int, share: float, questions: int) -> str:
        """The next round: that share of so many new questions, above 0. The line of an alarm that
        begins, else none."""
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
            f"curriculum alarm: near_duplicates at step {step}: {share:.2f}, and {before:.2f} at"
            f" the run's beginning (docs/curriculum.md). Next: {NEXT}."
        )


class Curriculum:
    """One run, round by round. `proposed`: somebody proposes, so that diversity is of what he asks,
    and watched; else it is of all questions. `said`: the alarm that began with the newest round, a
    line."""

    def __init__(self, window: int, proposed: bool = True) -> None:
        self._recent = Recent(EARLIER)
        self._alarm = DuplicateAlarm(window) if proposed else None
        self.said = ""

    def round(self, step: int, asked: Sequence[AskedQuestion]) -> dict[str, float]:
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
            self.said = (
                self._alarm.see(step, values["near_duplicates"], len(fresh)) if fresh else ""
            )
            values["alarm_near_duplicates"] = float(self._alarm.lasting)
        return {f"curriculum/{name}": value for name, value in values.items()}


class Watch:
    """What the coordinator tells of each settled round, in order. `say`: a line for the user."""

    def __init__(self, cfg: Config, run: RunFolder, say: Callable[[str], None]) -> None:
        self._spec, self._run, self._say = cfg.spec, run, say
        self._proposed = cfg.asks
        self.restart(0)

    def restart(self, step: int) -> None:
        """The run (re)starts after `step`: earlier rounds are read from its files."""
        self._curriculum = Curriculum(WINDOW, self._proposed)
        try:
            for number, asked in read(self._run, step, self._spec) if step > 0 else ():
                self._curriculum.round(number, asked)
        except Exception as error:
            # figures are no reason for a run not to go on, whatever is wrong with its files
            self._curriculum = Curriculum(WINDOW, self._proposed)
            self._say(
                f"curriculum figures begin anew after step {step}:"
                f" {str(error) or type(error).__name__}"
            )

    def round(self, step: int, games: Sequence[Game]) -> dict[str, float]:
        """The figures of a settled round; its alarm is said."""
        values = self._curriculum.round(step, live(games))
        if self._curriculum.said:
            self._say(self._curriculum.said)
        return values
