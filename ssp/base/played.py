"""What was played of one game, without the payloads: scalars and references (law 10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ssp.base.episode import GIVEN, PROPOSED, Episode, Grade, Outcome, State
from ssp.base.tokenlog import Kind

ASKS, ANSWERS = "asks", "answers"
"""The two sides of a game: who writes its question, and who tries it."""

Ref = Any
"""A payload where it lies: an object reference on a cluster, the object itself in one process.
Opaque here."""


class Subject(NamedTuple):
    """What a question was to be about: the target that its row gave, "" for none; the searches that
    it asked for, 0 for no number; the passage that the prompt showed."""

    target: str
    searches: int = 0
    document: str = ""


@dataclass(frozen=True)
class Block:
    """Many episodes in one payload; `id` is unique in the run."""

    id: str
    ref: Ref


@dataclass
class Brief:
    """An episode that was played, without its payload: that is place `row` of `block`, once the
    coordinator has it, and its transcript row `row` of `file`. `tokens` counts model tokens,
    `length` all, `prompt` and `observed` those of the prompt and of what searches showed with its
    frame; `searches` counts calls of all tools, `lookups` those that searched, and `cuts` the
    searches that did not show all that was found. `contexts`: in how many it was
    sampled; `turn_tokens`: model tokens of each of its turns. `opens`: how often
    it read a document."""

    id: str
    game: str
    role: str
    attempt: int
    final: str | None
    outcome: Outcome | None
    cause: str
    stopped: str
    searches: int
    tokens: int
    length: int
    version_min: int
    version_max: int
    file: str
    row: int
    cuts: int = 0
    prompt: int = 0
    observed: int = 0
    cut: bool = False
    detail: str = ""
    contexts: int = 1
    turn_tokens: tuple[int, ...] = ()
    opens: int = 0
    lookups: int = 0
    block: Block = Block("", None)

    @staticmethod
    def of(episode: Episode, file: str, row: int) -> Brief:
        """The brief of `episode`."""
        log = episode.log
        # Read from the lists now: `count` turns them into bytes, from which these are slow to read.
        oldest, newest = log.version_span
        return Brief(
            id=episode.id,
            game=episode.game,
            role=episode.role,
            attempt=episode.attempt,
            final=episode.final,
            outcome=episode.outcome,
            cause=episode.cause,
            stopped=episode.stopped,
            searches=len(episode.queries),
            tokens=log.count(Kind.MODEL),
            length=len(log),
            version_min=oldest,
            version_max=newest,
            file=file,
            row=row,
            cuts=episode.cuts,
            prompt=log.count(Kind.PROMPT),
            observed=log.count(Kind.OBSERVATION) + log.count(Kind.TEMPLATE),
            cut=episode.cut,
            detail=episode.detail,
            contexts=log.contexts,
            turn_tokens=log.turn_tokens(),
            opens=episode.tools.count("read"),
            lookups=len(episode.searches),
        )

    def entry(self, state: State, outcome: Outcome, cause: str, **more: Any) -> dict[str, Any]:
        """The episode's ledger row in a state that it ends in, or is queued in."""
        mine: dict[str, Any] = {"id": self.id, "file": self.file, "row": self.row}
        mine |= {"policy_version_min": self.version_min, "policy_version_max": self.version_max}
        return mine | {"state": state.value, "outcome": outcome.value, "cause": cause} | more


@dataclass
class Game:
    """What is played about one row: a question, a verdict on it, and attempts at it.

    `number` counts the rows of a run; it is negative for a question that nobody wrote in this
    round: a replayed one, and a given one among proposed ones. `hints`: what the asking prompt may
    tell beside the target. `golds`: all right answers of a given question, `rubric` its own rule,
    `row` what an agent may be told. `guide`: see `Verdict`. `greedy`: the attempt that is only a
    baseline. `others`: the episodes of further stages, by stage. `rates`: numbers that stages gave
    the game, by stage. `grades`: by episode id. `tried_by`: the version of the policy that tried
    it. `asked_by`: the version that wrote it, also of a past one. `frozen`: the side that a past
    version plays, from which nobody learns. `passed_over`: another game about the same row was
    kept. `source`: id of the document that the question is about, "" where nobody says."""

    id: str
    number: int
    target: str
    hints: dict[str, str] = field(default_factory=dict)
    proposal: Brief | None = None
    question: str = ""
    valid: bool = False
    rule: str = ""
    void_cause: str = ""
    guide: float = 1.0
    chosen: bool = False
    attempts: list[Brief] = field(default_factory=list)
    greedy: Brief | None = None
    golds: tuple[str, ...] = ()
    rubric: str = ""
    row: dict[str, Any] = field(default_factory=dict)
    grades: dict[str, Grade] = field(default_factory=dict)
    win_rate: float | None = None
    tried_by: int = -1
    asked_by: int | None = None
    frozen: str = ""
    kind: str = PROPOSED
    others: dict[str, list[Brief]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    passed_over: bool = False
    source: str = ""

    @property
    def anchors(self) -> bool:
        """Whether a given question stands among proposed ones."""
        return self.kind == GIVEN and self.number < 0

    @property
    def refused(self) -> bool:
        """Whether a check has rejected the question, or could not say."""
        return bool(self.rule or self.void_cause)

    def right(self, episode: Brief) -> bool | None:
        """Whether an episode is right; None for one that is void, in play or at the judge."""
        grade = self.grades.get(episode.id)
        if grade is None or episode.outcome is Outcome.VOID:
            return None
        return grade.right

    @property
    def episodes(self) -> list[Brief]:
        """Every episode of the game, the one that asks first."""
        asking = [] if self.proposal is None else [self.proposal]
        baseline = [] if self.greedy is None else [self.greedy]
        others = [brief for briefs in self.others.values() for brief in briefs]
        return [*asking, *self.attempts, *baseline, *others]
