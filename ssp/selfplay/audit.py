"""A round against the truth, where a world has an oracle: is the label right, is the answer right,
and what did the referee and the judge make of it. Figures alone: no reward and no choice sees them.

A question has the true answers of the oracle, the label that the game gave it, and the attempts of
the role that is measured. A question that the oracle cannot read is in no mean; it gives bounds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from ssp.base.episode import GIVEN, PROPOSED
from ssp.base.gamespec import GameSpec
from ssp.base.played import ASKS, Game
from ssp.base.text import normalise, plain
from ssp.base.values import Values
from ssp.game.referee import DOUBTS
from ssp.game.world.files import Oracle

NEW = (PROPOSED, GIVEN)
"""Kinds of games whose question nobody was asked before."""


class Case(NamedTuple):
    """One case of a figure. `known`: whether it is so, None for a question that cannot be read;
    then `if_false` and `if_true` say it for a question without a right answer, and for one whose
    label is right."""

    known: bool | None
    if_false: bool
    if_true: bool

    @staticmethod
    def read(known: bool) -> Case:
        """The case of a question that is read."""
        return Case(known, known, known)


class Audit:
    """The games of one round. `oracle` is asked about each question once."""

    def __init__(self, spec: GameSpec, games: Sequence[Game], oracle: Oracle) -> None:
        self._spec = spec
        self._games = [game for game in games if not game.void_cause and game.frozen != ASKS]
        self._oracle = oracle
        self._truths: dict[str, set[str] | None] = {}

    def figures(self) -> Values:
        """Every figure that the round can have, by its name in the metrics."""
        new = [game for game in self._games if game.valid and game.kind in NEW]
        labelled = [game for game in new if _labels(game)]
        values = self._shares("label_truth", [self._label(game) for game in labelled])
        read = [self._true(game.question) is not None for game in new]
        if read:
            values["game/unread_rate"] = read.count(False) / len(read)
        proposed = [game for game in new if game.kind == PROPOSED]
        if proposed:
            hops = [self._oracle.hops(game.question) for game in proposed]
            junk = [self._oracle.is_junk(game.question, game.target) for game in proposed]
            values["game/hops_mean"] = fmean(hops)
            values["game/junk_rate"] = fmean(junk)
        for name, cases in self._attempts().items():
            values |= self._shares(name, cases)
        values |= self._shares("false_rejection", list(self._refusals()))
        tried = [game for game in self._games if game.chosen and not game.frozen]
        counts: Counter[str] = Counter()
        for game in tried:
            counts.update(self._oracle.classes(game.question))
        return values | {f"game/asked_{name}": n / len(tried) for name, n in counts.items()}

    def _shares(self, name: str, cases: Sequence[Case]) -> Values:
        """The share of a figure, and its bounds where questions that cannot be read make some."""
        known = [case.known for case in cases if case.known is not None]
        values = {}
        if known:
            values[f"audit/{name}"] = fmean(known)
        if cases:
            ends = [fmean(case.if_false for case in cases), fmean(case.if_true for case in cases)]
            if ends[0] != ends[1]:
                values[f"audit/{name}_low"] = min(ends)
                values[f"audit/{name}_high"] = max(ends)
        return values

    def _true(self, question: str) -> set[str] | None:
        """The right answers of a question as they are compared; None where it cannot be read."""
        if question not in self._truths:
            truths = self._oracle.truths(question)
            self._truths[question] = None if truths is None else set(map(_compared, truths))
        return self._truths[question]

    def _label(self, game: Game) -> Case:
        """Whether the label is a right answer."""
        truths = self._true(game.question)
        if truths is None:
            return Case(None, False, True)
        return Case.read(bool(truths & _labels(game)))

    def _attempts(self) -> dict[str, list[Case]]:
        """The cases of the scored attempts of the newest version, by figure."""
        cases: dict[str, list[Case]] = defaultdict(list)
        for game in self._games:
            if game.frozen or not game.valid or not _labels(game):
                continue
            truths = self._true(game.question)
            label = self._label(game).known
            for attempt in self._spec.episodes(game, self._spec.answers):
                judged = game.right(attempt)
                if judged is None:
                    continue
                if truths is None:
                    cases["answer_truth"].append(Case(None, False, judged))
                    cases["agreement"].append(Case(None, judged, judged))
                    cases["false_agreement"].append(Case(None, judged, False))
                    cases["lost_credit"].append(Case(None, False, False))
                    continue
                right = _compared(attempt.final or "") in truths
                cases["answer_truth"].append(Case.read(right))
                cases["agreement"].append(Case.read(judged))
                cases["false_agreement"].append(Case.read(judged and not label))
                cases["lost_credit"].append(Case.read(right and not judged))
        return cases

    def _refusals(self) -> Iterator[Case]:
        """Of each proposal that kept the rules: whether it was refused although its label is
        right."""
        for game in self._games:
            refused = game.rule in DOUBTS
            if game.proposal is None or not (game.valid or refused) or not _labels(game):
                continue
            label = self._label(game).known
            if label is None:
                yield Case(None, False, refused)
            else:
                yield Case.read(refused and label)


def _labels(game: Game) -> set[str]:
    """All answers that the game counts as right, as they are compared."""
    labels = map(_compared, game.golds or (game.target,))
    return set(filter(None, labels))


def _compared(text: str) -> str:
    """An answer as the audit compares it: accents and apostrophes do not count, nor what the exact
    judge leaves out."""
    return normalise(plain(text))
