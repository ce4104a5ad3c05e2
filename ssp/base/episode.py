"""The records of the game: documents, tasks, episodes, verdicts, and the life cycle of an
episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

from ssp.base.errors import Fault
from ssp.base.printable import masked, printable
from ssp.base.tokenlog import TokenLog

PROPOSER, SOLVER = "proposer", "solver"
ROLES = (PROPOSER, SOLVER)
STAGE = "search/"
"""What a rollout calls the seconds of a stage of its searches begins so."""
LONGEST = 500
"""Characters of what a fault said that are kept."""
EVAL = "eval"
"""Role of evaluation episodes in the ledger."""

PROPOSAL, ATTEMPT, GREEDY, EVALUATION = "proposal", "attempt", "greedy", "evaluation"
"""Kinds of episodes. A greedy one is only a baseline: the answer at temperature 0 (ReMax)."""

PROPOSED, GIVEN, REPLAYED, TRIED = "proposed", "given", "replayed", "tried"
"""Kinds of games, by their question: a proposer's, a data set's, one of an earlier round; `tried`
is one that a past solver grades, in the game in which the newest tries it too."""


class State(str, Enum):
    """Where an episode is. created → running → grading (proposers) → queued → one final state (law
    3)."""

    CREATED = "created"
    RUNNING = "running"
    GRADING = "grading"
    QUEUED = "queued"
    TRAINED = "trained"
    DROPPED = "dropped"
    VOIDED = "voided"
    KEPT = "kept"

    @property
    def rank(self) -> int:
        """Position on the one-way road; all final states share the last one."""
        return _RANKS.get(self, len(_RANKS))

    @property
    def final(self) -> bool:
        """True for trained, dropped, voided, kept."""
        return self not in _RANKS

    def may_follow(self, earlier: State) -> bool:
        """True when an episode in `earlier` may move to this state."""
        return not earlier.final and self.rank > earlier.rank


_RANKS = {
    state: rank
    for rank, state in enumerate((State.CREATED, State.RUNNING, State.GRADING, State.QUEUED))
}


class Outcome(str, Enum):
    """How an episode ended. A void has no numeric value (law 2)."""

    SCORED = "scored"
    REJECTED = "rejected"
    VOID = "void"


@dataclass(frozen=True)
class Document:
    """One retrieved passage. `contents` is `"Title"` newline text (Search-R1's form); `score` is
    the index's."""

    id: str
    contents: str
    score: float = 0.0

    @property
    def title(self) -> str:
        """First line of the contents, without its quotation marks."""
        return self.contents.split("\n", 1)[0].strip().strip('"')

    @property
    def text(self) -> str:
        """Everything after the title line."""
        return self.contents.split("\n", 1)[1] if "\n" in self.contents else ""


class ToolResult(Document):
    """What a tool wrote. It has no title."""

    @property
    def title(self) -> str:
        """None."""
        return ""

    @property
    def text(self) -> str:
        """All of it."""
        return self.contents


class Mistake(ToolResult):
    """What a policy is told of its mistake, which no evidence is."""


@dataclass(frozen=True)
class Task:
    """One episode to play. `fields` fills its prompt: {"target": ...} or {"question": ...}.
    `prompt`: the prompt's name in the protocol, "" for that of the role. `attempt`: which one of
    its game, or which evaluation of this start; `item`: id of the question that an evaluation
    asks."""

    id: str
    game: str
    role: str
    attempt: int
    seed: int
    fields: dict[str, str]
    corpus: str = "train"
    item: str = ""
    prompt: str = ""

    @property
    def asked_as(self) -> str:
        """The name of the prompt."""
        return self.prompt or self.role

    def issued(self, again: int) -> Task:
        """This task as it is issued, for the first time (0) or after faults: each time it is an
        episode of its own."""
        id = f"{self.id}.{again}"
        # Not `replace`, which takes twice the time: there are as many of these as episodes.
        return Task(
            id,
            self.game,
            self.role,
            self.attempt,
            self.seed,
            self.fields,
            self.corpus,
            self.item,
            self.prompt,
        )


@dataclass
class Episode:
    """One trajectory of one role.

    `final` is what the policy handed in (proposer: the question, solver: the answer), None when it
    never did. `stopped` says why the rollout ended: `final`, `turns`, `tokens`, `malformed`,
    `mistake` (an agent said so), `fault`. `text` is the whole transcript; what followed the prompt,
    `response`, begins at its character `response_at`. `invalid` counts its turns that neither
    searched nor handed in.
    `queries` are the searches, and calls of other tools, that were carried out; `tools` names the
    tool of each, where there are others than the search; `hits` says of each how many documents it
    showed (0: none were found, or the query was refused), `asked` how long the log was, and
    `documents` holds what was shown, all in a row. `cuts` counts the searches that did not show all
    that was found: passages were left out, or one was cut. `cut`: its last turn reached the limit
    of a turn's tokens.
    `seed` is the task's: whatever is drawn for this episode later (noise documents) derives from
    it, not from the id, so that a re-issued episode is checked in the same way. `outcome` and
    `cause` are set as soon as they are known: a fault during the rollout makes it void at once, and
    `detail` is what it, or an agent that ended by a mistake, said."""

    id: str
    game: str
    role: str
    attempt: int
    seed: int = 0
    log: TokenLog = field(default_factory=TokenLog)
    text: str = ""
    response_at: int = 0
    final: str | None = None
    stopped: str = ""
    invalid: int = 0
    queries: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    cuts: int = 0
    cut: bool = False
    outcome: Outcome | None = None
    cause: str = ""
    detail: str = ""

    @property
    def response(self) -> str:
        """What followed the prompt: model and observations, as text."""
        return self.text[self.response_at :]

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Of each of `queries` its tool, and itself."""
        return list(zip(self.tools or ["search"] * len(self.queries), self.queries, strict=False))

    @property
    def searches(self) -> list[str]:
        """Of `queries` those that the search was asked."""
        return [query for tool, query in self.calls if tool == "search"]

    @property
    def turns(self) -> list[list[str]]:
        """Of each of the policy's turns the documents that its calls showed, as text."""
        numbers, shown = self.log.turns(), iter(self.documents)
        found: list[list[str]] = [[] for _ in range(int(numbers.max(initial=-1)) + 1)]
        for at, hits in zip(self.asked, self.hits, strict=True):
            found[max(int(numbers[at - 1]), 0) if at else 0] += [
                document.contents for document in islice(shown, hits)
            ]
        return found

    def void(self, fault: Fault) -> None:
        """Mark as hit by a fault of ours."""
        self.outcome, self.cause, self.stopped = Outcome.VOID, fault.cause, "fault"
        self.tell(fault.detail)

    def tell(self, said: str) -> None:
        """Keep what a fault, or an agent of its policy's mistake, said."""
        self.detail = printable(" ".join(masked(said).split()))[:LONGEST]


def called(queries: Sequence[str], tools: Sequence[str]) -> list[str]:
    """An episode's calls as readers see them: what was searched, and the name of another tool with
    its arguments."""
    named = tools or ["search"] * len(queries)
    return [
        query if tool == "search" else f"{tool} {query}"
        for query, tool in zip(queries, named, strict=True)
    ]


@dataclass(frozen=True)
class Verdict:
    """A check's word on one question: valid, or the id of the rule that it broke, or void with a
    cause. `guide`: the score of a valid one, in [0, 1]. `question`, `answer`: the two parts of what
    was handed in, where it held both. `source`: id of the document that proves it, "" where nobody
    says."""

    valid: bool
    rule: str = ""
    void_cause: str = ""
    guide: float = 1.0
    question: str = ""
    answer: str = ""
    source: str = ""


@dataclass(frozen=True)
class Grade:
    """The judge's word on one solver episode, and what the episode earned. `right` None: the judge
    could not decide (law 2), `void_cause` says why, and `reward` has no meaning. `by` is who
    decided: `exact`, `llm`, `engine`, `majority`, or `rule` (no answer was handed in). `score`: how good the
    answer is, in [0, 1], of a judge that gives one. `turns`: what each of the policy's turns
    earned, in all `reward`, where the reward says it."""

    right: bool | None
    reward: float = 0.0
    void_cause: str = ""
    by: str = "exact"
    score: float | None = None
    turns: tuple[float, ...] = ()
