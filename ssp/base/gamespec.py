"""A game as a declaration: its roles, its stages in their order, and who is paid for what.

A round plays many games, one for each row of the data. In each game a policy may ask a question,
somebody checks it, policies try to answer it, and somebody grades what they answered. A `GameSpec`
says all of that as data; `ssp.selfplay` runs it. `game.kind` names one: `duel`, `given`,
`self-search`, or `FILE.py:NAME` of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from ssp.base.episode import EVALUATION, Episode, Grade, Outcome, Verdict
from ssp.base.errors import hold, holding
from ssp.base.played import ANSWERS, ASKS, Brief, Game, Subject

SLOT, ROW, BATCH = "slot", "row", "batch"
"""What the episodes of a stage are compared within: those of one game, those of all games about one
row, or all of the round."""

TARGETS, QUESTIONS, DOCUMENTS, NOTHING = "targets", "questions", "documents", "nothing"
"""What a game's rows are: answers to ask about, questions to answer, passages with a number of
hops, or nothing."""
ROWS = (TARGETS, QUESTIONS, DOCUMENTS, NOTHING)

Fields = Callable[[Game, int], Mapping[str, str]]
"""What the prompt of a game's n-th episode of a stage is filled with."""


@dataclass(frozen=True)
class Payment:
    """What one episode earned.

    `reward`: None where nobody knows it (a void), or where it is `spare`. `outcome` and `cause` say
    how the episode ended. `spare`: it is counted, but not trained, because another one took its
    place."""

    outcome: Outcome
    cause: str = ""
    reward: float | None = None
    spare: bool = False

    @staticmethod
    def void(cause: str) -> Payment:
        """Nobody knows what the episode earned (law 2)."""
        return Payment(Outcome.VOID, cause)


Payer = Callable[[Any, Game, Brief], Payment]
"""What an episode of a game earned: of the configuration, the game and the episode."""

Checker = Callable[[Any, Episode, Subject], Verdict]
"""What a whole episode handed in is worth: of the configuration, the episode and what it was about.
It runs where the episode lies, and is pure."""


@dataclass(frozen=True)
class Marking:
    """How the episodes of one game were graded. `label`: the answer that counts as right.
    `grades`: by the episode's id."""

    label: str
    grades: Mapping[str, Grade]


Marker = Callable[[Any, Game, Sequence[Brief]], Marking]
"""Grades the episodes of one game that were played to their end, of the configuration and the
game."""


@dataclass(frozen=True)
class Play:
    """Episodes that a role plays.

    `name` is the kind of the episodes. `by`: the role, or several of which `choose` takes one for a
    game. `prompt`: which prompt the role is given, `proposer` or `solver` of the protocol, or one
    of the game's own `prompts`. `fields` fills it. `times`: episodes a game, a number or the name
    of a setting. `when`: whether a game is played at this stage at all. `group`: what the episodes
    are compared within. `closed`: a search of the policy finds nothing."""

    name: str
    by: str | tuple[str, ...]
    prompt: str
    fields: Fields
    times: int | str = 1
    when: Callable[[Game], bool] | None = None
    group: str = SLOT
    choose: Callable[[Game], str] | None = None
    closed: bool = False

    def episodes(self, cfg: object) -> int:
        """How many episodes each game has here. InputError where `times` names no number."""
        if isinstance(self.times, int):
            return self.times
        rule = f"times of the stage {self.name} is a number, or the key of a setting that is one"
        step = "correct the declaration, for example times='game.attempts'"
        with holding(AttributeError, rule, self.times, step):
            times = attrgetter(self.times)(cfg)
        hold(isinstance(times, int) and times > 0, rule, f"{self.times}: {times}", step)
        return int(times)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that play here."""
        return (self.by,) if isinstance(self.by, str) else self.by


@dataclass(frozen=True)
class Check:
    """Somebody reads what the asking stage handed in: the question is valid, rejected by a rule, or
    void. `by`: a function of the game's, None for the referee of `referee.*`. Of several checks a
    later one reads what an earlier one let pass."""

    name: str
    of: str
    by: Checker | None = None


@dataclass(frozen=True)
class Rate:
    """A number for each game: `by` gives it by the game's id, and later stages and payers find it
    in `Game.rates` under `name`. Before the choice it is of the games of a batch, behind it of all
    games of the round."""

    name: str
    by: Callable[[Any, Sequence[Game]], Mapping[str, float]]


@dataclass(frozen=True)
class Keep:
    """Of the games about one row the best stays: the first with the highest `best`; the others are
    not tried. `among`: which games compete, None for all."""

    name: str
    best: Callable[[Any, Game], float]
    among: Callable[[Any, Game], bool] | None = None


@dataclass(frozen=True)
class Choose:
    """The games that go on: valid ones, as many as the answering role's batch has, and refills of
    earlier questions (`game.batch`)."""

    name: str = "chosen"


@dataclass(frozen=True)
class Grading:
    """Somebody decides which episodes of a stage handed in a right answer. `by`: a function of the
    game's, None for the judge of `judge.*`."""

    name: str
    of: str
    by: Marker | None = None


Stage = Play | Check | Rate | Keep | Choose | Grading


@dataclass(frozen=True)
class Pay:
    """A role is paid for the episodes of `stage` what `by` says. `grader`: which role's episodes
    decided that, where it is not the answering one: episodes with different graders are not
    compared (law 4)."""

    stage: str
    by: Payer
    grader: Callable[[Game], str] | None = None


@dataclass(frozen=True)
class Phase:
    """Steps in which only the roles of `learns` learn; the phases of a game follow each other and
    begin anew."""

    learns: tuple[str, ...]
    steps: int


@dataclass(frozen=True)
class GameSpec:
    """One game. `roles` come in the order of their steps. `answers` names the stage whose grades
    decide how hard a question is, and whose role an evaluation measures; `asks` the stage that
    writes the question, "" where questions are given. `exam`: the stage whose prompt an evaluation
    gives, where that of `answers` takes more than a question. `rows`: what the games are about.
    `hops`: of a document each number of hops from 1 on is asked for in this proportion; () for
    none. `prompts`: texts with `{field}` holes, by name; they ask for the answer between the
    protocol's answer tags. `settings`: keys that lie under the user's own."""

    roles: tuple[str, ...]
    stages: tuple[Stage, ...]
    pay: Mapping[str, tuple[Pay, ...]]
    answers: str
    asks: str = ""
    exam: str = ""
    rows: str = TARGETS
    hops: tuple[int, ...] = ()
    phases: tuple[Phase, ...] = ()
    blocks: tuple[str, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def plays(self) -> dict[str, Play]:
        """The stages in which somebody plays, by name."""
        return {stage.name: stage for stage in self.stages if isinstance(stage, Play)}

    @property
    def asking(self) -> Play | None:
        """The stage that writes questions."""
        return self.plays.get(self.asks)

    @property
    def answering(self) -> Play:
        """The stage that is measured."""
        return self.plays[self.answers]

    @property
    def examining(self) -> Play:
        """The stage whose prompt an evaluation gives."""
        return self.plays[self.exam or self.answers]

    @property
    def asker(self) -> str:
        """The role that writes questions, "" for nobody."""
        return self.asking.roles[0] if self.asking is not None else ""

    @property
    def answerer(self) -> str:
        """The role that is measured."""
        return self.answering.roles[0]

    @cached_property
    def before(self) -> tuple[Stage, ...]:
        """The stages up to the choice of what goes on."""
        return self.stages[: self._choice]

    @cached_property
    def after(self) -> tuple[Stage, ...]:
        """The stages of what goes on."""
        return self.stages[self._choice + 1 :]

    @property
    def role_blocks(self) -> tuple[str, ...]:
        """The blocks of settings that the configuration has, one for each role."""
        return self.blocks or self.roles

    @property
    def _choice(self) -> int:
        return next(at for at, stage in enumerate(self.stages) if isinstance(stage, Choose))

    def prompts_of(self, role: str) -> tuple[str, ...]:
        """The prompts that a role is given, each once."""
        plays = [play for play in self.plays.values() if role in play.roles]
        return tuple(dict.fromkeys(play.prompt for play in plays))

    def prompt(self, kind: str, role: str) -> str:
        """The prompt that `role` was given for an episode of this kind: a stage, an evaluation, or
        another answer to the question."""
        if kind == EVALUATION:
            return self.examining.prompt
        if kind in self.plays:
            return self.plays[kind].prompt
        return self.answering.prompt if role == self.answerer else self.prompts_of(role)[0]

    @property
    def refereed(self) -> bool:
        """Whether the referee of `referee.*` reads the questions."""
        checks = [stage for stage in self.stages if isinstance(stage, Check)]
        return any(check.by is None for check in checks)

    def payment(self, stage: str) -> Pay | None:
        """How the episodes of a stage are paid; None where nobody is paid for them."""
        for pays in self.pay.values():
            for pay in pays:
                if pay.stage == stage:
                    return pay
        return None

    def side(self, stage: str) -> str:
        """Whether a stage asks or answers; "" for another one."""
        return {self.asks: ASKS, self.answers: ANSWERS}.get(stage, "")

    def episodes(self, game: Game, stage: str) -> list[Brief]:
        """The episodes of a game at a stage."""
        if stage == self.answers:
            return game.attempts
        if stage == self.asks:
            return [] if game.proposal is None else [game.proposal]
        return game.others.get(stage, [])

    def learns(self, role: str, step: int) -> bool:
        """Whether the phase of `step` (from 1 on) lets `role` learn."""
        if not self.phases:
            return True
        at = (step - 1) % sum(phase.steps for phase in self.phases)
        for phase in self.phases:
            if at < phase.steps:
                return role in phase.learns
            at -= phase.steps
        return False
