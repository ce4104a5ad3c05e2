"""The tasks of an evaluation set, and how they are played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ssp.base.episode import SOLVER, Episode, Task
from ssp.base.errors import InvariantError
from ssp.base.seeds import derive
from ssp.data.readers import Question

Play = Callable[[list[Task]], list[Episode]]
"""Tasks → their episodes, one each, in order."""


def select(questions: Sequence[Question], per_hop: int) -> list[Question]:
    """The first `per_hop` questions of each hop count, in the file's order (law 7: no draw)."""
    seen: Counter[int] = Counter()
    chosen = []
    for question in questions:
        seen[question.hops] += 1
        if seen[question.hops] <= per_hop:
            chosen.append(question)
    return chosen


def make_tasks(questions: Sequence[Question], seed: int, corpus: str, prefix: str, samples: int = 1) -> list[Task]:
    """`samples` solver tasks a question, side by side, searched in `corpus`.

    Ids are `<prefix>/<question id>`, with `#<sample>` from the second sample on.
    """
    return [
        Task(
            id=f"{prefix}/{question.id}" + (f"#{sample}" if sample else ""),
            game=prefix,
            role=SOLVER,
            attempt=sample,
            seed=derive(seed, "eval", prefix, question.id, *([sample] if sample else [])),
            fields={"question": question.question},
            corpus=corpus,
            item=question.id,
        )
        for question in questions
        for sample in range(samples)
    ]


def play_all(play: Play, tasks: Sequence[Task]) -> list[Episode]:
    """Play `tasks`. InvariantError unless each came back as one episode, in order."""
    episodes = play(list(tasks))
    asked, got = [task.id for task in tasks], [episode.id for episode in episodes]
    if asked != got or len(set(got)) != len(got):
        raise InvariantError(f"{len(asked)} tasks gave {len(got)} episodes, {len(set(got))} of them distinct, in order")
    return episodes
