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
    """One sample of one question. Scores are in [0, 1], all None when `cause` says what voided the
    episode. `judge` is the judge's word where one was asked, `score` its score where it gives one
    (`judge.format=score`), `judge_failure` why it gave none, `rubric` the question's own. `recall`:
    1 when a gold answer stands in the documents that were shown, else 0. `turns`: texts that the
    policy wrote. Of a bare prediction neither is known. `documents`: ids, in the order shown."""

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

    @property
    def scored(self) -> bool:
        """False for a void."""
        return not self.cause

    @property
    def words(self) -> int:
        """Words of the answer: what stands between blanks, in scripts without blanks each
        character."""
        answer = self.prediction or ""
        return max(len(answer.split()), count(answer))


def row_of(
    question: Question, prediction: str | None, sample: int = 0, cause: str = ""
) -> ScoredRow:
    """The row of a bare prediction; None: nothing was handed in, which is wrong. A fault of ours
    (`cause`) has no score."""
    answer, golds = prediction or "", question.answers
    row = ScoredRow(
        question.id, question.question, list(golds), prediction, sample, question.hops, cause
    )
    row = replace(row, rubric=question.rubric)
    if cause:
        return row
    em, sub_em = match.em("", golds, answer), match.sub_em("", golds, answer)
    return replace(row, em=em, sub_em=sub_em, f1=match.token_f1(answer, golds))


def played_row(question: Question, sample: int, episode: Episode) -> ScoredRow:
    """The row of a played episode."""
    void = episode.outcome is Outcome.VOID
    row = row_of(question, None if void else episode.final, sample, episode.cause if void else "")
    texts = (document.contents for document in episode.documents)
    return replace(
        row,
        recall=None if void else float(found(texts, question.answers)),
        searches=len(episode.queries),
        turns=sum(kind is Kind.MODEL for kind, _, _ in episode.log.stretches()),
        stopped=episode.stopped,
        queries=list(episode.queries),
        documents=[document.id for document in episode.documents],
        text=episode.text,
    )


def found(texts: Iterable[str], golds: Sequence[str]) -> bool:
    """True when whole words of one of the texts say a gold answer."""
    return any(says(text, gold) for text in texts for gold in golds)


def write_rows(path: Path | str, sets: Mapping[str, Iterable[ScoredRow]]) -> None:
    """One JSON object a row, set after set, with the set's name as `set`; the file is never
    half."""
    rows = ({"set": name, **asdict(row)} for name, them in sets.items() for row in them)
    with whole(Path(path)) as aside, aside.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


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


def make_tasks(
    questions: Sequence[Question],
    seed: int,
    corpus: str,
    prefix: str,
    samples: int = 1,
    stage: PlayStage = GIVEN.answering,
) -> list[Task]:
    """`samples` tasks a question, side by side, searched in `corpus`, as the role of `stage` plays
    them. Ids are `<prefix>/<question id>`, with `#<sample>` from the second sample on."""
    tasks = []
    for asked, sample in itertools.product(questions, range(samples)):
        id = f"{prefix}/{asked.id}" + (f"#{sample}" if sample else "")
        drawn = derive(seed, "eval", prefix, asked.id, *([sample] if sample else []))
        task = Task(
            id=id,
            game=prefix,
            role=stage.roles[0],
            attempt=sample,
            seed=drawn,
            fields={"question": asked.question},
            corpus=corpus,
            item=asked.id,
            prompt=stage.prompt,
        )
        tasks.append(task)
    return tasks


Key = tuple[str, str, int]
"""Set, question, sample."""


def mark(said: object, places: Iterable[Path]) -> str:
    """A digest of what was `said` and of the files at `places`: their names, sizes and times."""
    files = [
        file
        for place in places
        for file in ([place] if place.is_file() else sorted(place.glob("*")))
    ]
    read = [(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((said, read)).encode()).hexdigest()


class Kept:
    """The rows so far, those of an earlier process among them. `out`: the file that they will be
    (None: none is written), with `.part` behind its name until then; `mark` stands for all that
    decides them. InputError for a file of another mark, and for one that cannot be read."""

    def __init__(self, out: Path | None, mark: str) -> None:
        self.path = None if out is None else out.with_name(f"{out.name}.part")
        self.rows: dict[Key, ScoredRow] = {}
        self._mark = mark
        if self.path is not None:
            self._take_up(self.path)

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
        most `batch` at once. `tasks`: of each question the same number, side by side, its samples.
        `moved` hears how many rows are there. InvariantError unless each task comes back as one
        episode."""
        asked = [
            (question, sample)
            for question in questions
            for sample in range(len(tasks) // len(questions))
        ]
        keys = [(name, question.id, sample) for question, sample in asked]
        left = [at for at, key in enumerate(keys) if key not in self.rows]
        moved(len(keys) - len(left))
        for start in range(0, len(left), batch):
            some = left[start : start + batch]
            episodes = play([tasks[at] for at in some])
            if [episode.id for episode in episodes] != [tasks[at].id for at in some]:
                raise InvariantError(
                    f"{len(some)} tasks gave other episodes, {len(episodes)} of them"
                )
            rows = {
                keys[at]: played_row(*asked[at], episode)
                for at, episode in zip(some, episodes, strict=True)
            }
            self.rows |= rows
            if self.path is not None:
                with self.path.open("ab") as file:
                    said = (
                        {"mark": self._mark, "set": name, **asdict(row)} for row in rows.values()
                    )
                    file.writelines(json.dumps(row).encode() + b"\n" for row in said)
            moved(len(keys) - len(left) + start + len(some))
        return [self.rows[key] for key in keys]

    def _take_up(self, path: Path) -> None:
        """The rows in the file; its last one may be cut off, and goes. A void is asked again."""
        rule, step = (
            "an unfinished file of --out is of the same policy, data and settings",
            "give --out another name",
        )
        odd = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
        with holding(odd, f"{rule}, a row a line", path, f"remove it, or {step}"):
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            kept = [line for line in lines if line.endswith(b"\n")]
            for found in map(json.loads, kept):
                hold(
                    found.pop("mark") == self._mark,
                    rule,
                    f"{path} is of others",
                    f"remove it, or {step}",
                )
                name, row = found.pop("set"), ScoredRow(**found)
                if row.scored:
                    self.rows[name, row.id, row.sample] = row
            if len(kept) < len(lines):
                os.truncate(path, sum(map(len, kept)))
