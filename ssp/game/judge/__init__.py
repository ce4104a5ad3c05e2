"""The judge: is an answer right? An exact match is, no answer is not; else an endpoint is asked."""

from ssp.base.text import normalise, plain, same
from ssp.game.judge.answers import AnswerJudge, Further, Item

__all__ = ["AnswerJudge", "Further", "Item", "normalise", "plain", "same"]
