"""Grading without a known answer: what most attempts agree on counts as right."""

from collections import Counter
from collections.abc import Sequence

from ssp.base.episode import Grade
from ssp.base.gamespec import Marking
from ssp.base.played import Brief, Game
from ssp.base.text import normalise
from ssp.config.schema import Config

BY = "majority"


def agree(cfg: Config, game: Game, episodes: Sequence[Brief]) -> Marking:
    """The most frequent answer, of equally frequent ones the first, is the label; it earns 1.

    Source: R-Zero (arXiv 2508.05004). Attempts that handed in nothing are wrong."""
    answers = {episode.id: normalise(episode.final or "") for episode in episodes}
    votes = Counter(answer for answer in answers.values() if answer)
    label = max(votes, key=lambda answer: votes[answer], default="")
    grades = {}
    for episode in episodes:
        right = bool(label) and answers[episode.id] == label
        grades[episode.id] = Grade(right, float(right), by=BY)
    return Marking(label, grades)
