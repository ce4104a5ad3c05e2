"""A batch of answers becomes a batch of decisions: by rule, by exact match, from memory, or by
asking further. Only verdicts are remembered, never failures."""

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
    """An answer to decide: the question, the answers that are right, the one that was handed in
    (None: none was); `rubric`: what a good answer to this question has."""

    question: str
    golds: Sequence[str]
    answer: str | None
    rubric: str = ""


class Further(Protocol):
    """Who is asked about answers that do not match exactly."""

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        """A decision an item, in order; undecided, with its cause, where no verdict came."""

    def check(self) -> None:
        """InputError when it would not give a verdict now, with what to change."""


class AnswerJudge:
    """The whole judge. `further` None: what does not match exactly is wrong. `cache`: verdicts
    kept, oldest use first to go (0: none)."""

    def __init__(self, further: Further | None = None, cache: int = 0) -> None:
        self._further, self._known = further, Known[Key, Grade](cache)

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        """A decision an item, in order; the same question, golds, rubric and answer are asked once.
        InputError for a gold answer that normalises to nothing."""
        decided: list[Grade | Key] = [self._first(item) for item in items]
        asked: dict[Key, Item] = {}
        for key, item in zip(decided, items, strict=True):
            if isinstance(key, tuple):
                asked.setdefault(key, item)

        def work(keys: list[Key]) -> list[Grade]:
            assert self._further is not None
            return self._further.decide([asked[key] for key in keys])

        found, _ = self._known.ask(asked, work, lambda _, grade: grade.right is not None)
        return [found[one] if isinstance(one, tuple) else one for one in decided]

    def check(self) -> None:
        """InputError when a judge that answers must be sent to would not give a verdict now."""
        if self._further is not None:
            self._further.check()

    def _first(self, item: Item) -> Grade | Key:
        """The decision, where nobody need be asked; else what makes two items one."""
        answer = item.answer or ""
        if same(answer, item.golds):
            return Grade(True)
        if not answer.strip():
            return Grade(False, by=RULE)
        if self._further is None:
            return Grade(False)
        words = " ".join(answer.split())
        return item.question, tuple(item.golds), item.rubric, words.rstrip(" .,;:!?") or words
