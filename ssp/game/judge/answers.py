"""A batch of answers becomes a batch of decisions: by rule, by exact match, from memory, or by asking further.

Owns the order in which these are tried, and the memory. Promises one decision an item, in order; that an exact match
or a missing answer asks nobody; that the same question, gold answers and (normalised) answer are asked once; and that
only verdicts are remembered, never failures. Refuses to know how a further judge comes to its verdict.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ssp.base.episode import Grade
from ssp.base.text import normalise, same

RULE = "rule"

Key = tuple[str, tuple[str, ...], str]


@dataclass(frozen=True)
class Item:
    """An answer to decide: the question, the answers that are right, the one that was handed in (None: none was)."""

    question: str
    golds: Sequence[str]
    answer: str | None


class Further(Protocol):
    """Who is asked about answers that do not match exactly."""

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        """A decision an item, in order; undecided, with its cause, where no verdict came."""

    def check(self) -> None:
        """InputError when it would not give a verdict now, with what to change."""


class AnswerJudge:
    """The whole judge. `further` None: what does not match exactly is wrong. `cache`: verdicts kept, oldest use first
    to go (0: none)."""

    def __init__(self, further: Further | None = None, cache: int = 0) -> None:
        self._further, self._most = further, cache
        self._known: OrderedDict[Key, Grade] = OrderedDict()

    def decide(self, items: Sequence[Item]) -> list[Grade]:
        """A decision an item, in order. InputError for a gold answer that normalises to nothing."""
        decided: dict[int, Grade] = {}
        asked: dict[Key, list[int]] = {}
        for row, item in enumerate(items):
            first = self._without_asking(item)
            if first is None:
                asked.setdefault(_key(item), []).append(row)
            else:
                decided[row] = first
        if asked and self._further is not None:
            found = self._further.decide([items[rows[0]] for rows in asked.values()])
            for (key, rows), decision in zip(asked.items(), found, strict=True):
                decided.update(dict.fromkeys(rows, decision))
                self._remember(key, decision)
        return [decided[row] for row in range(len(items))]

    def check(self) -> None:
        """InputError when a judge that answers must be sent to would not give a verdict now."""
        if self._further is not None:
            self._further.check()

    def _without_asking(self, item: Item) -> Grade | None:
        if same(item.answer or "", item.golds):
            return Grade(True)
        if not (item.answer or "").strip():
            return Grade(False, by=RULE)
        if self._further is None:
            return Grade(False)
        key = _key(item)
        if key not in self._known:
            return None
        self._known.move_to_end(key)
        return self._known[key]

    def _remember(self, key: Key, decision: Grade) -> None:
        if decision.right is None:
            return
        self._known[key] = decision
        while len(self._known) > self._most:
            self._known.popitem(last=False)


def _key(item: Item) -> Key:
    """What makes two items one. An answer of articles and punctuation alone ("A") stands for itself."""
    answer = item.answer or ""
    return item.question, tuple(item.golds), normalise(answer) or answer.strip()
