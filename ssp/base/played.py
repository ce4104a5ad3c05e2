"""What was played of one game, without the payloads: scalars and references (law 10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ssp.base.episode import PROPOSED, Episode, Grade, Outcome, State
from ssp.base.tokenlog import Kind

Ref = Any
"""A payload where it lies: an object reference on a cluster, the object itself in one process.
Opaque here."""


_ALIKE = (
    "id",
    "game",
    "role",
    "attempt",
    "final",
    "outcome",
    "cause",
    "detail",
    "stopped",
    "cuts",
    "cut",
)
"""What a brief says as its episode does."""


@dataclass(frozen=True)
class Block:
    """Many episodes in one payload; `id` is unique in the run."""

    id: str
    ref: Ref


@dataclass(frozen=True)
class Brief:
    """An episode that was played, without its payload: that is place `row` of `block`, once the
    coordinator has it, and its transcript row `row` of `file`. `tokens` counts model tokens,
    `length` all, `prompt` and `observed` those of the prompt and of what searches showed with its
    frame; `cuts`: searches that did not show all that was found. `contexts`: in how many it was
    sampled; `turn_tokens`: model tokens of each of its turns."""

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
    block: Block = Block("", None)

    @staticmethod
    def of(episode: Episode, file: str, row: int) -> Brief:
        """The brief of `episode`."""
        log = episode.log
        # before `count`, which packs the log
        length, oldest, newest = len(log), log.version_min, log.version_max
        return Brief(
            **{name: getattr(episode, name) for name in _ALIKE},
            searches=len(episode.queries),
            tokens=log.count(Kind.MODEL),
            length=length,
            version_min=oldest,
            version_max=newest,
            file=file,
            row=row,
            prompt=log.count(Kind.PROMPT),
            observed=log.count(Kind.OBSERVATION) + log.count(Kind.TEMPLATE),
            contexts=log.contexts,
            turn_tokens=log.turn_tokens(),
        )

    def entry(self, state: State, outcome: Outcome, cause: str, **more: Any) -> dict[str, Any]:
        """The episode's ledger row in a state that it ends in, or is queued in."""
        mine: dict[str, Any] = {"id": self.id, "file": self.file, "row": self.row}
        mine |= {"policy_version_min": self.version_min, "policy_version_max": self.version_max}
        return mine | {"state": state.value, "outcome": outcome.value, "cause": cause} | more


@dataclass
class Game:
    """One proposer episode, its verdict and its attempts.

    A replayed question has no proposer episode and a negative `number`; `asked_by`: the version
    that wrote it, also of a past one. `golds`: all right answers of a given question, `rubric` its
    own rule. `guide`: see `Verdict`. `hints`: what the proposer's prompt may tell beside the
    target. `greedy`: the attempt that is only a baseline. `grades`: by attempt id. `frozen`: the
    role that a past version plays, from which nobody learns (`ssp.selfplay.league.matchmaker`)."""

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
    grades: dict[str, Grade] = field(default_factory=dict)
    win_rate: float | None = None
    solver_version: int = -1
    asked_by: int | None = None
    frozen: str = ""
    kind: str = PROPOSED
