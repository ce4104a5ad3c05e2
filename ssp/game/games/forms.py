"""How a game reads what was handed in where no referee does: a question with its answer, and Dr.
Zero's score of its form."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ssp.base.episode import Episode, Verdict
from ssp.base.played import Subject
from ssp.base.text import normalise
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.game.protocols import Protocol
from ssp.game.protocols.base import TEXT

MALFORMED = "malformed"
"""Rule: a question, and its answer where one is asked for, are handed in."""
_ANSWER = re.compile(r"\banswer\s*:", re.IGNORECASE)


def parts(final: str | None) -> tuple[str, str] | None:
    """Question and answer of what was handed in; None where one is missing.

    The answer follows the last "answer:", or the last question mark where nobody wrote that."""
    text = final or ""
    marks = list(_ANSWER.finditer(text))
    if marks:
        question, answer = text[: marks[-1].start()], text[marks[-1].end() :]
    else:
        before, mark, answer = text.rpartition("?")
        question = before + mark
    question, answer = " ".join(question.split()), " ".join(answer.split())
    if not question or not normalise(answer):
        return None
    return question, answer


def with_answer(cfg: Config, episode: Episode, subject: Subject) -> Verdict:
    """Valid where a question stands there with its answer."""
    read = parts(episode.final)
    if read is None:
        return Verdict(False, MALFORMED)
    question, answer = read
    return Verdict(True, question=question, answer=answer)


def question_alone(cfg: Config, episode: Episode, subject: Subject) -> Verdict:
    """Valid where anything stands there."""
    if not normalise(episode.final or ""):
        return Verdict(False, MALFORMED)
    return Verdict(True)


def scored(cfg: Config, episode: Episode, subject: Subject) -> Verdict:
    """Question and answer, with Dr. Zero's score as `guide`; rejected where that is 0."""
    verdict = with_answer(cfg, episode, subject)
    if not verdict.valid:
        return verdict
    protocol = protocols.get(cfg.protocol)
    shown = [document.contents for document in episode.documents]
    score = form_score(
        verdict.question,
        verdict.answer,
        max(1, subject.searches),
        _messages(protocol, episode),
        len(episode.queries),
        " ".join([subject.document, *shown]),
    )
    if score == 0.0:
        return replace(verdict, valid=False, rule="leakage")
    return replace(verdict, guide=score)


@dataclass(frozen=True)
class Message:
    """One message of a policy: whether it is a thought first and then something else, and how often
    it calls a tool."""

    thinks: bool
    calls: int


def form_score(
    question: str,
    answer: str,
    hops: int,
    messages: Sequence[Message],
    answered: int,
    read: str,
) -> float:
    """f = (1 + think + tool + ans) / 4, and 0 where the question names the answer.

    `hops`: how many facts the question is to take. `answered`: calls that came back. `read`: the
    passage, and what the calls showed. Source: Dr. Zero's released code (arXiv 2601.07055)."""
    if normalise(answer) in normalise(question):
        return 0.0
    think = sum(message.thinks for message in messages) / max(1, len(messages))
    calls = sum(message.calls for message in messages)
    tool = _tool_score(calls, answered, hops)
    return (1.0 + think + tool + _answer_score(answer, read)) / 4.0


def _tool_score(calls: int, answered: int, hops: int) -> float:
    """Whether the question was searched for as often as its hops ask for; the passage itself is
    one."""
    if calls == 0 or calls != answered:
        return 1.0 if hops == 1 else 0.0
    return min((1 + calls) / hops, 1.0)


def _answer_score(answer: str, read: str) -> float:
    """Whether the answer is short, and stands in what was read."""
    known = normalise(answer)
    if known not in ("yes", "no") and known not in normalise(read):
        return 0.0
    words = len(known.split())
    if words <= 5:
        return 1.0
    return 0.5 if words <= 10 else 0.0


def _messages(protocol: Protocol, episode: Episode) -> list[Message]:
    """The policy's messages, which what it was shown stands between."""
    shown = protocol.observation_form.tag
    texts, start = [], 0
    for segment in protocol.parse(episode.response):
        if segment.kind == shown:
            texts.append(episode.response[start : segment.begin])
            start = segment.end
    texts.append(episode.response[start:])
    messages = []
    for text in filter(str.strip, texts):
        said = [part for part in protocol.parse(text) if part.text or part.kind != TEXT]
        thoughts = [part for part in said if part.kind == "think" and part.closed]
        thinks = len(thoughts) == 1 and said[0] is thoughts[0]
        messages.append(Message(thinks, len(protocol.calls(text))))
    return messages
