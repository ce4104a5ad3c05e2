"""The records of the bank: a question, each time it was played, each attempt at it. Whatever a
fault left unknown is None, never a number (law 2)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

VALID, REJECTED, VOID = "valid", "rejected", "void"


@dataclass(frozen=True)
class PlayedGame:
    """One game about the question. `kind`: proposed, replayed, or given (a data set's).

    `proposal` is the proposer's episode, in row `row` of the run's `episodes/<file>`; all three are
    None without one. `queries` and `evidence` (ids of the documents shown, each once) are those of
    the proposal. `solver_version` is the lowest of the attempts; `scored` of them make `win_rate`."""

    game: str
    kind: str
    verdict: str
    rule: str | None
    proposer_version: int | None
    proposal: str | None
    file: str | None
    row: int | None
    queries: list[str]
    evidence: list[str]
    solver_version: int | None
    scored: int
    win_rate: float | None
    transcript: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One episode of the solver. `answer` is None when none was handed in. `right` is None when the
    episode is void, or a judge decided and its word is not on record. `greedy`: a baseline only, in
    no win rate. `step`: the update that trained on it."""

    episode: str
    game: str
    greedy: bool
    version_min: int | None
    version_max: int | None
    state: str
    outcome: str
    cause: str | None
    answer: str | None
    right: bool | None
    reward: float | None
    searches: int
    step: int | None
    file: str | None
    row: int | None
    transcript: str | None = None


@dataclass(frozen=True)
class Record:
    """One question of the bank; docs/bank.md says what is in each field."""

    id: str
    question: str
    target: str
    answers: list[str]
    verdict: str
    rule: str | None
    proposer_version: int | None
    queries: list[str]
    evidence: list[str]
    solve_rate: float | None
    difficulty: float | None
    group: str
    data_source: str
    split: str
    license: str
    corpus: str
    run: str
    plays: list[PlayedGame] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def history(self) -> list[tuple[int | None, float]]:
        """(solver's version, win rate) of each game with a win rate, in the order of play."""
        return [
            (play.solver_version, play.win_rate) for play in self.plays if play.win_rate is not None
        ]


def identify(question: str, target: str) -> str:
    """The id of a question: of its text and target alone."""
    return "q" + hashlib.sha256(f"{question}\0{target}".encode()).hexdigest()[:16]


def solve_rate(plays: Sequence[PlayedGame]) -> float | None:
    """Share of right attempts over all games that have a win rate, to six places; None without
    one."""
    rated = [(play.scored, play.win_rate) for play in plays if play.win_rate is not None]
    scored = sum(number for number, _ in rated)
    right = sum(number * rate for number, rate in rated)
    return round(right / scored, 6) if scored else None


@dataclass(frozen=True)
class Filter:
    """Which records are meant. `rule` rejected the question in at least one game. The bounds of
    difficulty are inclusive, and a question without one is outside every bound. `contains` stands
    in the question or its target."""

    valid: bool = False
    rule: str = ""
    min_difficulty: float = 0.0
    max_difficulty: float = 1.0
    contains: str = ""

    def __call__(self, record: Record) -> bool:
        """Whether the record is meant."""
        if self.valid and record.verdict != VALID:
            return False
        broken = [play.rule for play in record.plays if play.verdict == REJECTED]
        if self.rule and self.rule not in broken:
            return False
        if self.min_difficulty > 0 or self.max_difficulty < 1:
            hard = record.difficulty
            if hard is None or not self.min_difficulty <= hard <= self.max_difficulty:
                return False
        wanted = self.contains.casefold()
        return wanted in record.question.casefold() or wanted in record.target.casefold()
