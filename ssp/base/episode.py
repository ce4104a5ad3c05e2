"""The records of the game: documents, tasks, episodes, verdicts, and the life cycle of an
episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any

from ssp.base.errors import Fault
from ssp.base.printable import masked, printable
from ssp.base.tokenlog import TokenLog

PROPOSER, SOLVER = "proposer", "solver"
ROLES = (PROPOSER, SOLVER)
STAGE = "search/"
"""How the names of a search's stages begin where a rollout counts their seconds."""
LONGEST = 500
"""Characters that are kept of what a fault said."""
EVAL = "eval"
"""Role of evaluation episodes in the ledger."""

PROPOSAL, ATTEMPT, GREEDY, EVALUATION = "proposal", "attempt", "greedy", "evaluation"
"""Kinds of episodes. A greedy one only serves as a baseline: the answer at temperature 0
(ReMax)."""

PROPOSED, GIVEN, REPLAYED, TRIED = "proposed", "given", "replayed", "tried"
"""Kinds of games, by their question: a proposer's, a data set's, or one of an earlier round. Of a
`tried` one a past solver's attempts say how hard it is, in a game in which the newest solver tries
it too."""


class State(str, Enum):
    """Where an episode is: created → running → grading (while others' attempts decide what it
    earns) → queued → one final state (law 3)."""

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
        return len(_ROAD) if self.final else _ROAD.index(self)

    @property
    def final(self) -> bool:
        """True for trained, dropped, voided, kept."""
        return self not in _ROAD

    def may_follow(self, earlier: State) -> bool:
        """True when an episode in `earlier` may move to this state: it never moves back, nor out of
        a final state."""
        return not earlier.final and self.rank > earlier.rank


_ROAD = (State.CREATED, State.RUNNING, State.GRADING, State.QUEUED)
"""The one-way road to a final state."""


class Outcome(str, Enum):
    """How an episode ended. A void has no numeric value (law 2)."""

    SCORED = "scored"
    REJECTED = "rejected"
    VOID = "void"


@dataclass(frozen=True)
class Document:
    """One retrieved passage. `contents`: its title in quotation marks, a newline, its text
    (Search-R1's form). `score`: the index's. `url`, `heading`: its address and its title, where a
    corpus has columns `url` and `title`."""

    id: str
    contents: str
    score: float = 0.0
    url: str = field(default="", compare=False, repr=False)
    heading: str = field(default="", compare=False, repr=False)

    @property
    def title(self) -> str:
        """First line of the contents, without its quotation marks."""
        return self.contents.partition("\n")[0].strip().strip('"')

    @property
    def text(self) -> str:
        """Everything after the title line."""
        return self.contents.partition("\n")[2]


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
    """What a policy is told of its mistake; it is no evidence."""


@dataclass(frozen=True)
class Task:
    """One episode to play.

    `fields` fills its prompt: {"target": ...} or {"question": ...}. `prompt`: the prompt's name in
    the protocol, "" for that of the role. `attempt`: its number in its game, or the number of the
    evaluation since the start. `item`: id of the question that an evaluation asks. `row`: what an
    agent may be told of the question: the columns of its row, and `golds`; else empty."""

    id: str
    game: str
    role: str
    attempt: int
    seed: int
    fields: dict[str, str]
    corpus: str = "train"
    item: str = ""
    prompt: str = ""
    row: dict[str, Any] = field(default_factory=dict)

    @property
    def asked_as(self) -> str:
        """The name of the prompt."""
        return self.prompt or self.role

    def issued(self, again: int) -> Task:
        """This task as it is issued, for the first time (0) or after faults: each time it is an
        episode of its own."""
        # Not `replace`, which takes twice the time: there are as many of these as episodes.
        return Task(
            f"{self.id}.{again}",
            self.game,
            self.role,
            self.attempt,
            self.seed,
            self.fields,
            self.corpus,
            self.item,
            self.prompt,
            self.row,
        )


@dataclass
class Episode:
    """One trajectory of one role.

    `text` is the whole transcript; `response`, what followed the prompt, begins at its character
    `response_at`. `final` is what the policy handed in (proposer: the question, solver: the
    answer), None when it never did. `stopped` says why the rollout ended: `final`, `turns`,
    `tokens`, `malformed`, `mistake` (an agent said so), `fault`. `invalid` counts the turns that
    neither searched nor handed in.

    `queries` are the searches, and calls of other tools, that were carried out. For each of them
    `tools` names the tool (empty where search is the only one), `hits` counts the documents that it
    showed (0: there were none, or the query was refused), and `asked` is the length of the log
    then. `documents` holds all that was shown, in a row. `cuts` counts the searches of which
    passages were left out or cut. `cut`: the last turn reached the limit of a turn's tokens.

    `seed` is the task's. Whatever is drawn for this episode later (noise documents) derives from
    it, not from the id, so that a re-issued episode is checked in the same way. `outcome` and
    `cause` are set as soon as they are known: a fault during the rollout makes it void at once.
    `detail` is what the fault said, or an agent of its policy's mistake. `earned`: the reward that
    an agent returned, one number or one a turn; else empty."""

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
    earned: list[float] = field(default_factory=list)

    @property
    def response(self) -> str:
        """What followed the prompt: model and observations, as text."""
        return self.text[self.response_at :]

    @property
    def calls(self) -> list[tuple[str, str]]:
        """(tool, query) of each of `queries`."""
        tools = self.tools or ["search"] * len(self.queries)
        return list(zip(tools, self.queries, strict=False))

    @property
    def searches(self) -> list[str]:
        """Those of `queries` that the search was asked."""
        return [query for tool, query in self.calls if tool == "search"]

    @property
    def turns(self) -> list[list[str]]:
        """For each of the policy's turns, the documents that its calls showed, as text."""
        count, turns_of_calls = self._turns()
        texts: list[list[str]] = [[] for _ in range(count)]
        shown = iter(self.documents)
        for turn, hits in zip(turns_of_calls, self.hits, strict=True):
            texts[turn] += [document.contents for document in islice(shown, hits)]
        return texts

    @property
    def searches_by_turn(self) -> list[int]:
        """For each of the policy's turns, how many of `searches` it asked for."""
        count, turns_of_calls = self._turns()
        searches = [0] * count
        for turn, (tool, _) in zip(turns_of_calls, self.calls, strict=True):
            searches[turn] += tool == "search"
        return searches

    def _turns(self) -> tuple[int, list[int]]:
        """How many turns the policy took, and in which one it made each of its calls."""
        numbers = self.log.turns()
        asked = [max(int(numbers[at - 1]), 0) if at else 0 for at in self.asked]
        return int(numbers.max(initial=-1)) + 1, asked

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
    if not tools:
        return list(queries)
    calls = []
    for query, tool in zip(queries, tools, strict=True):
        calls.append(query if tool == "search" else f"{tool} {query}")
    return calls


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
    """The judge's word on one answer, and what the episode earned.

    `right` None: the judge could not decide (law 2); `void_cause` says why, and `reward` has no
    meaning. `by` is who decided: `exact`, `llm`, `engine`, `majority`, or `rule` (no answer was
    handed in). `score`: how good the answer is, in [0, 1], where a judge gives one. `turns`: what
    each of the policy's turns earned, in all `reward`, where the reward says it."""

    right: bool | None
    reward: float = 0.0
    void_cause: str = ""
    by: str = "exact"
    score: float | None = None
    turns: tuple[float, ...] = ()
