"""The judge: is an answer right?

Owns the way of a batch of answers to its decisions, and the two judges that are asked about what matches no gold answer
exactly: an OpenAI-compatible endpoint and an engine of our own. Promises that an exact match is right and no answer is
wrong without a request, and that a judge that does not give a verdict leaves the answer undecided (law 2), never wrong.
Refuses to know rewards, protocols.
"""

from ssp.base.text import normalise, plain, same
from ssp.game.judge.answers import AnswerJudge, Further, Item

__all__ = ["AnswerJudge", "Further", "Item", "normalise", "plain", "same"]
