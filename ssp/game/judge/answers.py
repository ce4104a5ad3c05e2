"""Decides batches of answers: by rule, by exact match, from memory, or by asking further. It
remembers verdicts, never failures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ssp.base.episode import Grade
from ssp.base.text import same
from ssp.search.known import Known

RULE = "rule"

Key = tuple[str, tuple[str, ...], str, str]


@dataclass(frozen=True)
class Item:
    """An answer to decide. `golds`: the right answers. `answer`: the one that was handed in; None
    where none was. `rubric`: rules for answers to this question."""

    question: str
    golds: Sequence[str]
    answer: str | None
    rubric: str = ""


class Further(Protocol):
    """Who is asked about answers that do not match exactly."""

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        """A decision for each item, in order; undecided, with its cause, where no verdict came."""

    def check(self) -> None:
        """InputError when it would not give a verdict now, with what to change."""


class AnswerJudge:
    """The whole judge. `further`: who is asked; None: an answer that matches no gold is wrong.
    `cache`: the number of verdicts that are kept; the one that was used longest ago goes first."""

    def __init__(self, further: Further | None = None, cache: int = 0) -> None:
        self._further = further
        self._known = Known[Key, Grade](cache)

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        """A decision for each item, in order. Items with the same question, golds, rubric and
        answer are asked once. InputError for a gold answer that normalises to nothing."""
        first = [self._without_asking(item) for item in items]
        keys = [_key(item) for item in items]
        asked: dict[Key, Item] = {}
        for grade, key, item in zip(first, keys, items, strict=True):
            if grade is None:
                asked.setdefault(key, item)

        def work(unknown: list[Key]) -> list[Grade]:
            assert self._further is not None
            return self._further.decide([asked[key] for key in unknown])

        verdicts, _ = self._known.ask(asked, work, lambda _, grade: grade.right is not None)
        return [grade or verdicts[key] for grade, key in zip(first, keys, strict=True)]

    def check(self) -> None:
        """InputError when there is somebody to ask who would not give a verdict now."""
        if self._further is not None:
            self._further.check()

    def _without_asking(self, item: Item) -> Grade | None:
        answer = item.answer or ""
        if same(answer, item.golds):
            return Grade(True)
        if not answer.strip():
            return Grade(False, by=RULE)
        return Grade(False) if self._further is None else None


def _key(item: Item) -> Key:
    """What two items have in common that are one question to a judge."""
    words = " ".join((item.answer or "").split())
    return item.question, tuple(item.golds), item.rubric, words.rstrip(" .,;:!?") or words
