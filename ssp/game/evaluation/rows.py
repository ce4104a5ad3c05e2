"""One row of an evaluation: a question, a sample, what was handed in, and every score of it.

Owns the rows' fields, how they come of episodes, and their file. Promises that a void row has a cause and no score
(law 2), and a file that is whole or absent. Refuses to know tables and intervals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ssp.base.episode import Episode, Grade, Outcome
from ssp.base.files import whole
from ssp.base.text import normalise
from ssp.base.tokenlog import Kind
from ssp.data.readers import Question
from ssp.game.rewards import match


@dataclass(frozen=True)
class Row:
    """One sample of one question. Scores are in [0, 1], all None when `cause` says what voided the episode.

    `judge` is the judge's word where one was asked, `judge_failure` why it gave none. `recall`: 1 when a gold answer
    stands in the documents that were shown, 0 when not, also when nothing was searched. `turns`: texts that the policy
    wrote. Of a bare prediction neither is known. `documents`: ids, in the order shown.
    """

    id: str
    question: str
    golden_answers: list[str]
    prediction: str | None
    sample: int = 0
    hops: int = 0
    cause: str = ""
    em: float | None = None
    sub_em: float | None = None
    f1: float | None = None
    judge: bool | None = None
    judge_failure: str = ""
    recall: float | None = None
    searches: int | None = None
    turns: int | None = None
    stopped: str = ""
    queries: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    text: str = ""

    @property
    def scored(self) -> bool:
        """False for a void."""
        return not self.cause

    def with_decision(self, decision: Grade) -> Row:
        """The row with what the judge said of its answer."""
        return replace(self, judge=decision.right, judge_failure=decision.void_cause)

    @property
    def words(self) -> int:
        """Words of the answer."""
        return len((self.prediction or "").split())


def row_of(question: Question, prediction: str | None, sample: int = 0) -> Row:
    """The row of a bare prediction; None: nothing was handed in, which is wrong."""
    answer, golds = prediction or "", list(question.answers)
    return Row(
        id=question.id,
        question=question.question,
        golden_answers=list(question.answers),
        prediction=prediction,
        sample=sample,
        hops=question.hops,
        em=match.em("", golds, answer),
        sub_em=match.sub_em("", golds, answer),
        f1=match.token_f1(answer, golds),
    )


def void_row(question: Question, cause: str, sample: int = 0) -> Row:
    """The row of a fault of ours: no score."""
    return Row(
        question.id, question.question, list(question.answers), None, sample=sample, hops=question.hops, cause=cause
    )


def played_row(question: Question, sample: int, episode: Episode) -> Row:
    """The row of a played episode."""
    void = episode.outcome is Outcome.VOID
    row = void_row(question, episode.cause, sample) if void else row_of(question, episode.final, sample)
    golds, texts = question.answers, (document.contents for document in episode.documents)
    return replace(
        row,
        recall=None if void else float(found(texts, golds)),
        searches=len(episode.queries),
        turns=sum(kind is Kind.MODEL for kind, _, _ in episode.log.stretches()),
        stopped=episode.stopped,
        queries=list(episode.queries),
        documents=[document.id for document in episode.documents],
        text=episode.text,
    )


def found(texts: Iterable[str], golds: Sequence[str]) -> bool:
    """True when a gold answer stands, as whole words, in one of the texts."""
    wanted = [f" {normalise(gold)} " for gold in golds]
    return any(gold in f" {normalise(text)} " for text in texts for gold in wanted)


def write_rows(path: Path | str, sets: Mapping[str, Iterable[Row]]) -> None:
    """One JSON object a row, set after set, with the set's name as `set`; the file is never half."""
    rows = ({"set": name, **asdict(row)} for name, them in sets.items() for row in them)
    with whole(Path(path)) as aside, aside.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
