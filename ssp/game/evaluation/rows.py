"""One row of an evaluation: a question, a sample, what was handed in, and every score of it; their
file."""

import hashlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ssp.base.episode import Episode, Outcome, Task
from ssp.base.errors import InvariantError, hold, holding
from ssp.base.files import whole
from ssp.base.gamespec import Play as PlayStage
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.base.words import count, says
from ssp.data.readers import Question
from ssp.game.games.given import GAME as GIVEN
from ssp.game.rewards import match


@dataclass(frozen=True)
class ScoredRow:
    """One sample of one question. Scores are in [0, 1], and all None when the episode is void.

    `cause`: what voided it. `judge`: the judge's verdict where one was asked; `score`: its number
    (`judge.format=score`); `judge_failure`: why it gave none. `rubric`: the question's own.
    `recall`: 1 when a document that was shown says a gold answer, else 0. `turns`: texts that the
    policy wrote. `category`: the question's. A bare prediction has no `recall`, `searches` and `turns`. `documents`: ids, in
    the order shown."""

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
    score: float | None = None
    judge_failure: str = ""
    rubric: str = ""
    recall: float | None = None
    searches: int | None = None
    turns: int | None = None
    stopped: str = ""
    queries: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    text: str = ""
    category: str = ""

    @property
    def scored(self) -> bool:
        """False for a void."""
        return not self.cause

    @property
    def words(self) -> int:
        """Words of the answer; in scripts without blanks, its characters."""
        answer = self.prediction or ""
        return max(len(answer.split()), count(answer))


def row_of(
    question: Question, prediction: str | None, sample: int = 0, cause: str = ""
) -> ScoredRow:
    """The row of a bare prediction. None was not handed in, which is wrong. With a `cause` the row
    is void and has no scores."""
    golds = question.answers
    row = ScoredRow(
        question.id,
        question.question,
        list(golds),
        prediction,
        sample,
        question.hops,
        cause,
        rubric=question.rubric,
        category=question.category,
    )
    if cause:
        return row
    answer = prediction or ""
    em = match.em("", golds, answer)
    sub_em = match.sub_em("", golds, answer)
    f1 = match.token_f1(answer, golds)
    return replace(row, em=em, sub_em=sub_em, f1=f1)


def played_row(question: Question, sample: int, episode: Episode) -> ScoredRow:
    """The row of a played episode."""
    if episode.outcome is Outcome.VOID:
        row = row_of(question, None, sample, episode.cause)
        recall = None
    else:
        row = row_of(question, episode.final, sample)
        texts = (document.contents for document in episode.documents)
        recall = float(found(texts, question.answers))
    turns = sum(kind is Kind.MODEL for kind, _, _ in episode.log.stretches())
    return replace(
        row,
        recall=recall,
        searches=len(episode.queries),
        turns=turns,
        stopped=episode.stopped,
        queries=list(episode.queries),
        documents=[document.id for document in episode.documents],
        text=episode.text,
    )


def found(texts: Iterable[str], golds: Sequence[str]) -> bool:
    """True when whole words of one of the texts say a gold answer."""
    return any(says(text, gold) for text in texts for gold in golds)


def write_rows(path: Path | str, sets: Mapping[str, Iterable[ScoredRow]]) -> None:
    """Write one JSON object a row, set after set, with the set's name as `set`. The file appears
    whole."""
    with whole(Path(path)) as aside, aside.open("w", encoding="utf-8") as file:
        for name, rows in sets.items():
            for row in rows:
                line = json.dumps({"set": name, **asdict(row)}, ensure_ascii=False)
                file.write(f"{line}\n")


Play = Callable[[list[Task]], list[Episode]]
"""Tasks → their episodes, one each, in order."""


def select(questions: Sequence[Question], per_hop: int) -> list[Question]:
    """The first `per_hop` questions of each hop count, in the file's order (law 7: no draw)."""
    counts: Counter[int] = Counter()
    chosen = []
    for question in questions:
        counts[question.hops] += 1
        if counts[question.hops] <= per_hop:
            chosen.append(question)
    return chosen


def make_tasks(
    questions: Sequence[Question],
    seed: int,
    corpus: str,
    prefix: str,
    samples: int = 1,
    stage: PlayStage = GIVEN.answering,
) -> list[Task]:
    """`samples` tasks a question, side by side, searched in `corpus` and played by the role of
    `stage`. Ids are `<prefix>/<question id>`, with `#<sample>` from the second sample on."""
    tasks = []
    for asked, sample in itertools.product(questions, range(samples)):
        id = f"{prefix}/{asked.id}"
        place: list[str | int] = [prefix, asked.id]
        if sample:
            id += f"#{sample}"
            place.append(sample)
        task = Task(
            id=id,
            game=prefix,
            role=stage.roles[0],
            attempt=sample,
            seed=derive(seed, "eval", *place),
            fields={"question": asked.question},
            corpus=corpus,
            item=asked.id,
            prompt=stage.prompt,
            row=asked.row,
        )
        tasks.append(task)
    return tasks


Key = tuple[str, str, int]
"""Set, question, sample."""


def mark(said: object, places: Iterable[Path]) -> str:
    """A digest of what was `said` and of the files at `places`: their names, sizes and times."""
    stamps = []
    for place in places:
        for file in [place] if place.is_file() else sorted(place.glob("*")):
            stat = file.stat()
            stamps.append((str(file.absolute()), stat.st_size, stat.st_mtime_ns))
    return hashlib.sha256(repr((said, stamps)).encode()).hexdigest()


class Kept:
    """The rows so far, with those that an earlier process left in the unfinished file.

    `out`: the file that they will be, `.part` behind its name until then; None writes none. `mark`
    stands for all that decides the rows. InputError for a file of another mark, and for one that
    cannot be read."""

    def __init__(self, out: Path | None, mark: str) -> None:
        self.path: Path | None = None
        self.rows: dict[Key, ScoredRow] = {}
        self._mark = mark
        if out is not None:
            self.path = out.with_name(f"{out.name}.part")
            self._resume(self.path)

    def played(
        self,
        name: str,
        questions: Sequence[Question],
        tasks: Sequence[Task],
        play: Play,
        batch: int,
        moved: Callable[[int], object] = lambda done: None,
    ) -> list[ScoredRow]:
        """Every row of the set `name`: those that are kept, and the others as they are played, at
        most `batch` at once.

        `tasks`: the samples of each question side by side, equally many. `moved` is called with the
        number of rows so far. InvariantError unless each task comes back as one episode."""
        samples = range(len(tasks) // len(questions))
        asked = list(itertools.product(questions, samples))
        keys = [(name, question.id, sample) for question, sample in asked]
        left = [at for at, key in enumerate(keys) if key not in self.rows]
        done = len(keys) - len(left)
        moved(done)

        for start in range(0, len(left), batch):
            places = left[start : start + batch]
            chosen = [tasks[at] for at in places]
            episodes = play(chosen)
            if [episode.id for episode in episodes] != [task.id for task in chosen]:
                raise InvariantError(
                    f"{len(chosen)} tasks gave other episodes, {len(episodes)} of them"
                )
            rows = {}
            for at, episode in zip(places, episodes, strict=True):
                rows[keys[at]] = played_row(*asked[at], episode)
            self.rows |= rows
            if self.path is not None:
                with self.path.open("ab") as file:
                    for row in rows.values():
                        line = json.dumps({"mark": self._mark, "set": name, **asdict(row)})
                        file.write(f"{line}\n".encode())
            done += len(places)
            moved(done)
        return [self.rows[key] for key in keys]

    def _resume(self, path: Path) -> None:
        """Read the rows in the file; a last one that was cut off goes. A void is asked again."""
        rule = "an unfinished file of --out is of the same policy, data and settings"
        step = "remove it, or give --out another name"
        odd = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
        with holding(odd, f"{rule}, a row a line", path, step):
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            complete = [line for line in lines if line.endswith(b"\n")]
            for line in complete:
                fields = json.loads(line)
                hold(fields.pop("mark") == self._mark, rule, f"{path} is of others", step)
                name = fields.pop("set")
                row = ScoredRow(**fields)
                if row.scored:
                    self.rows[name, row.id, row.sample] = row
            if len(complete) < len(lines):
                os.truncate(path, sum(map(len, complete)))
