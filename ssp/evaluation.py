"""Evaluation: fixed questions, one attempt each, an accuracy with its error.

Owns the tasks of an evaluation set, one row a question, and the summary. Promises that a void leaves the estimate and
is counted (law 2), that a task depends on the seed, the set and the question only (law 7), and that episodes come from
the caller's rollout, the same one as in training (law 8). Refuses to know engines, policies, training.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from ssp.data.readers import Question
from ssp.episode import SOLVER, Episode, Outcome, Task
from ssp.errors import InvariantError
from ssp.judge import ExactJudge
from ssp.seeds import derive

Play = Callable[[list[Task]], list[Episode]]

Z95 = 1.959964
"""Standard normal quantile of a two-sided 95 % interval."""


class Scored(Protocol):
    """What a summary needs of a row; `correct` is None when the episode is void."""

    @property
    def hops(self) -> int: ...
    @property
    def correct(self) -> bool | None: ...
    @property
    def searches(self) -> int: ...


@dataclass(frozen=True)
class Row:
    """One question's result. `correct` is None when the episode is void; `hops` is 0 when the data do not say."""

    id: str
    question: str
    answers: list[str]
    hops: int
    answer: str | None
    correct: bool | None
    searches: int
    stopped: str
    cause: str
    text: str


@dataclass(frozen=True)
class Result:
    """Rows in the questions' order and their summary (see `summarise`)."""

    rows: list[Row]
    summary: dict[str, float]


def select(questions: Sequence[Question], per_hop: int) -> list[Question]:
    """The first `per_hop` questions of each hop count, in the file's order (law 7: no draw)."""
    seen: Counter[int] = Counter()
    chosen = []
    for question in questions:
        seen[question.hops] += 1
        if seen[question.hops] <= per_hop:
            chosen.append(question)
    return chosen


def make_tasks(questions: Sequence[Question], seed: int, corpus: str, prefix: str) -> list[Task]:
    """One solver task a question, searched in `corpus`; ids are `<prefix>/<question id>`."""
    return [
        Task(
            id=f"{prefix}/{question.id}",
            game=prefix,
            role=SOLVER,
            attempt=0,
            seed=derive(seed, "eval", prefix, question.id),
            fields={"question": question.question},
            corpus=corpus,
        )
        for question in questions
    ]


def make_rows(questions: Sequence[Question], episodes: Sequence[Episode], correct: Sequence[bool]) -> list[Row]:
    """Rows from played episodes and the judge's verdicts, all three in the same order."""
    if not len(questions) == len(episodes) == len(correct):
        raise InvariantError(f"{len(questions)} questions, {len(episodes)} episodes, {len(correct)} verdicts")
    return [
        Row(
            id=question.id,
            question=question.question,
            answers=list(question.answers),
            hops=question.hops,
            answer=episode.final,
            correct=None if episode.outcome is Outcome.VOID else right,
            searches=len(episode.queries),
            stopped=episode.stopped,
            cause=episode.cause,
            text=episode.text,
        )
        for question, episode, right in zip(questions, episodes, correct, strict=True)
    ]


def summarise(rows: Sequence[Scored]) -> dict[str, float]:
    """Figures of the scored rows; `void` counts the rows left out.

    `accuracy`, `stderr` and `items`, each also as `<name>_<k>hop`; `accuracy_mean123`: mean of 1, 2 and 3 hops, when
    all three are there; `searches`: mean a question. Shares lie in [0, 1]. Without a scored row an estimate is absent.
    """
    scored = [row for row in rows if row.correct is not None]
    summary = {"items": float(len(scored)), "void": float(len(rows) - len(scored))}
    if not scored:
        return summary
    summary["searches"] = sum(row.searches for row in scored) / len(scored)
    summary.update(_share(scored, ""))
    for hops in sorted({row.hops for row in scored} - {0}):
        summary.update(_share([row for row in scored if row.hops == hops], f"_{hops}hop"))
    first = [f"accuracy_{hops}hop" for hops in (1, 2, 3)]
    if all(name in summary for name in first):
        summary["accuracy_mean123"] = sum(summary[name] for name in first) / 3
    return summary


def _share(rows: Sequence[Scored], suffix: str) -> dict[str, float]:
    p, n = sum(bool(row.correct) for row in rows) / len(rows), len(rows)
    return {f"accuracy{suffix}": p, f"stderr{suffix}": math.sqrt(p * (1 - p) / n), f"items{suffix}": float(n)}


def interval(share: float, items: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share estimated from `items` questions; keeps its coverage near 0 and 1."""
    z2 = Z95 * Z95 / items
    centre = (share + z2 / 2) / (1 + z2)
    half = Z95 * math.sqrt(share * (1 - share) / items + z2 / (4 * items)) / (1 + z2)
    return max(0.0, centre - half), min(1.0, centre + half)


def evaluate(play: Play, questions: Sequence[Question], seed: int, corpus: str, prefix: str) -> Result:
    """Play every question once and judge it. `play(tasks)` gives one episode a task, in order."""
    episodes = play(make_tasks(questions, seed, corpus, prefix))
    answers = [episode.final for episode in episodes]
    items = [(q.question, q.answers, answer) for q, answer in zip(questions, answers, strict=True)]
    rows = make_rows(questions, episodes, ExactJudge().grade(items))
    return Result(rows, summarise(rows))


def metrics(summary: dict[str, float], set_name: str = "") -> dict[str, float]:
    """The summary under its documented names: `eval/accuracy` ..., or `eval/<set_name>/accuracy` ... when one is given.

    The first evaluation set goes without a name.
    """
    prefix = f"eval/{set_name}/" if set_name else "eval/"
    return {prefix + name: value for name, value in summary.items()}


def write_rows(path: Path | str, sets: Mapping[str, Sequence[Row]]) -> None:
    """One JSON object a row, set after set, with the set's name as `set`; written aside and renamed, so never half."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f"{target.name}.{os.getpid()}.part")
    with aside.open("w", encoding="utf-8") as file:
        for name, rows in sets.items():
            for row in rows:
                file.write(json.dumps({"set": name, **asdict(row)}, ensure_ascii=False) + "\n")
    os.replace(aside, target)
