"""The gold answers of a question, beside which an answer is shown: an answer is green only where
one of them is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ssp.base.errors import InputError
from ssp.config.schema import Config
from ssp.data.readers import Question, read_questions
from ssp.game.judge import same
from ssp.game.world import files

if TYPE_CHECKING:
    from ssp.views.replay.record import RecordedEpisode

Golds = Sequence[str]


def asked(cfg: Config, corpus: str, question: str) -> Golds:
    """The right answers to a question about this corpus: those of a set of `data.eval` that asks
    it, else that of the generated world that the corpus is; none where nobody knows."""
    sets = [chosen for chosen in cfg.data.eval if chosen.corpus == corpus]
    for chosen in sets:
        for known in _questions(chosen.file):
            if known.question.split() == question.split():
                return known.answers
    oracle = files.oracle(corpus, natural=False)
    answer = None if oracle is None else oracle.answer(question)
    return () if answer is None else (answer,)


def recorded(cfg: Config, played: RecordedEpisode) -> Golds:
    """The right answers to what an attempt on record was asked: those of its evaluation set or data
    set, else its target; none for a proposal."""
    if played.evaluates:
        game = played.episode.game
        sets = [chosen for chosen in cfg.data.eval if f"eval/{chosen.name}" == game]
        for chosen in sets:
            for known in _questions(chosen.file):
                if known.id == played.entry["item"]:
                    return known.answers
        return ()
    if played.entry.get("kind") == cfg.spec.asks or not played.game:
        return ()
    from ssp.views.replay import priced  # what `ssp ask` does without

    return priced.golds(cfg, played.game)


def right(cfg: Config, answer: str | None, golds: Golds) -> bool | None:
    """Whether an answer is known to be right; None where only a judge could tell."""
    if answer is None or not golds:
        return None
    return same(answer, golds) or (False if cfg.judge.kind == "exact" else None)


@lru_cache(maxsize=8)
def _questions(file: str) -> list[Question]:
    try:
        return read_questions(files.resolve(file, "eval"))
    except InputError:  # what is asked needs no such file
        return []
