"""The judge decides whether an answer is right. An exact match is, and no answer is not; about
others it asks an endpoint."""

from ssp.base.text import normalise, same
from ssp.game.judge.answers import AnswerJudge, Item

__all__ = ["AnswerJudge", "Item", "normalise", "same"]
