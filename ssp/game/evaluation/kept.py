"""The tasks of an evaluation set, and their rows as they come: on disk until all of them are there.

Owns the unfinished file, which lies beside the one that it becomes (`NAME.part`): a mark of what is evaluated, then a row a
line. Promises that a row that was played is read again, whatever ended the process, and none that a fault voided; and that
rows of another policy, other data or other settings are refused. Refuses to know how a batch is played.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from io import SEEK_END
from pathlib import Path
from typing import BinaryIO

from ssp.base.episode import SOLVER, Episode, Task
from ssp.base.errors import InputError, InvariantError
from ssp.base.seeds import derive
from ssp.data.readers import Question
from ssp.game.evaluation.rows import Row, played_row

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


Key = tuple[str, str, int]
"""Set, question, sample."""


def mark(said: object, places: Iterable[Path]) -> str:
    """A digest of what was `said` and of the files at `places`: their names, sizes and times."""
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.glob("*")))]
    read = [(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((said, read)).encode()).hexdigest()


class Kept:
    """The rows so far, those of an earlier process among them. `out`: the file that they will be (None: none is written);
    `mark` stands for all that decides them; The file is there from the first row on."""

    def __init__(self, out: Path | None, mark: str) -> None:
        self.path = None if out is None else out.with_name(f"{out.name}.part")
        self.rows: dict[Key, Row] = {}
        self._mark = mark
        self._file = None if self.path is None else self._opened(self.path)

    def played(
        self,
        name: str,
        questions: Sequence[Question],
        tasks: Sequence[Task],
        play: Play,
        batch: int,
        moved: Callable[[int], object] = lambda done: None,
    ) -> list[Row]:
        """Every row of the set `name`: those that are kept, and the others as they are played, at most `batch` at once.

        `tasks`: of each question the same number, side by side, its samples. `moved` hears how many rows are there.
        InvariantError unless each task comes back as one episode.
        """
        samples = len(tasks) // len(questions)
        asked = [(question, sample) for question in questions for sample in range(samples)]
        keys = [(name, question.id, sample) for question, sample in asked]
        left = [at for at, key in enumerate(keys) if key not in self.rows]
        moved(len(keys) - len(left))
        for start in range(0, len(left), batch):
            some = left[start : start + batch]
            episodes = play_all(play, [tasks[at] for at in some])
            pairs = zip(some, episodes, strict=True)
            self.add(name, [played_row(*asked[at], episode) for at, episode in pairs])
            moved(len(keys) - len(left) + start + len(some))
        return [self.rows[key] for key in keys]

    def add(self, name: str, rows: Sequence[Row]) -> None:
        """Rows of the set `name` that were just played."""
        self.rows |= {(name, row.id, row.sample): row for row in rows}
        if self.path is None:
            return
        if self._file is None:
            self._file = self.path.open("wb")
            self._file.write(json.dumps({"mark": self._mark}).encode() + b"\n")
        self._file.writelines(json.dumps({"set": name, **asdict(row)}).encode() + b"\n" for row in rows)
        self._file.flush()

    def close(self, done: bool = False) -> None:
        """No more rows come; `done`: nor are they needed here any more."""
        if self._file is not None:
            self._file.close()
        if done and self.path is not None:
            self.path.unlink(missing_ok=True)

    def _opened(self, path: Path) -> BinaryIO | None:
        """The file with its rows taken up, open behind the last whole one; None where there is none yet."""
        rule = "an unfinished file of --out is of the same policy, data and settings"
        try:
            if not path.exists():
                return None
            file = path.open("r+b")
        except OSError as error:  # a folder, somebody else's, a name that is too long
            raise InputError(f"{rule}, and can be written", error, "give --out another name") from error
        with ExitStack() as stack:
            stack.callback(file.close)
            lines = file.read().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith(b"\n")]  # the last one may be cut off
            try:
                head, *rows = map(json.loads, whole) if whole else [{"mark": self._mark}]
                same = head["mark"] == self._mark
                for found in rows if same else ():
                    name, row = found.pop("set"), Row(**found)
                    if row.scored:
                        self.rows[name, row.id, row.sample] = row
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(f"{rule}, a row a line", f"{path}: {error}", "remove it") from error
            if not same:
                raise InputError(rule, f"{path} is of others", "remove it, or give --out another name")
            if not whole:
                return None
            file.truncate(sum(map(len, whole)))
            file.seek(0, SEEK_END)
            stack.pop_all()
        return file
