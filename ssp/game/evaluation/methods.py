"""Baseline methods: the same policy and the same search, without a tag protocol.

Owns their prompts and their order of calls, one small generator a method: it yields what it needs (`Write`: a text of the
policy, `Look`: a search) and returns its answer. After FlashRAG's baselines, which ReSearch compares itself with.
Refuses to know how calls are carried out (`ssp.game.evaluation.bench`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from ssp.base.episode import Document
from ssp.base.errors import InputError

AGENT = "agent"
"""The protocol's own rollout; every other method is one of this module's."""

ROUNDS = 3
"""Thoughts of ircot before it must answer, and rounds of iter-retgen."""

_SHORT = "Give the answer alone, as short as it can be: a name, a number, a date or a few words."
_STEPS = "Reason step by step. Then finish with a line that reads: The answer is X. Keep X as short as it can be."
_READ = "Here are passages that a search engine found. They may help, or not.\n\n{documents}\n\n"
_ASKED = "\n\nQuestion: {question}\n"

DIRECT = _SHORT + _ASKED + "Answer:"
COT = _STEPS + _ASKED + "Reasoning:"
RAG = _READ + _SHORT + _ASKED + "Answer:"
RAG_STEPS = _READ + _STEPS + _ASKED + "Reasoning:"
NEXT = (
    _READ + "Write the one sentence of reasoning that comes next. Once the answer is known, that sentence reads: The "
    "answer is X. Keep X as short as it can be." + _ASKED + "Reasoning so far: {thoughts}\nNext sentence:"
)
CLOSE = _READ + _SHORT + _ASKED + "Reasoning: {thoughts}\nAnswer:"


@dataclass(frozen=True)
class Write:
    """A text of the policy, wanted: a prompt with its holes' values; {documents} takes as many of `documents` as fit."""

    prompt: str
    values: dict[str, str]
    documents: Sequence[Document] = ()


@dataclass(frozen=True)
class Look:
    """A search, wanted."""

    query: str


Steps = Generator[Write | Look, Any, str | None]
"""Yields a wish, is sent the text (`Write`) or the list of documents (`Look`), returns the answer (None: it has none)."""


def direct(question: str) -> Steps:
    """Zero-shot: one text, no search."""
    return short((yield Write(DIRECT, {"question": question})))


def cot(question: str) -> Steps:
    """Chain of thought: one text that reasons first, no search."""
    return concluded((yield Write(COT, {"question": question})))


def rag(question: str) -> Steps:
    """Retrieve once with the question, then answer."""
    documents = yield Look(question)
    return short((yield Write(RAG, {"question": question}, documents)))


def ircot(question: str) -> Steps:
    """IRCoT: one sentence of reasoning, a search with it, and so on until one concludes; then it must answer."""
    documents: list[Document] = yield Look(question)
    thoughts: list[str] = []
    for _ in range(ROUNDS):
        values = {"question": question, "thoughts": " ".join(thoughts)}
        thought = sentence((yield Write(NEXT, values, documents)))
        if not thought or concluded(thought):
            return concluded(thought)
        thoughts.append(thought)
        known = {document.id for document in documents}
        fresh: list[Document] = yield Look(thought)
        documents = documents + [document for document in fresh if document.id not in known]
    return short((yield Write(CLOSE, {"question": question, "thoughts": " ".join(thoughts)}, documents)))


def iter_retgen(question: str) -> Steps:
    """Iter-RetGen: retrieve with the question and the text before, write the text anew; the last text's answer."""
    text = ""
    for _ in range(ROUNDS):
        documents = yield Look(" ".join(f"{question} {text}".split()))
        text = yield Write(RAG_STEPS, {"question": question}, documents)
    return concluded(text)


METHODS: dict[str, Callable[[str], Steps]] = {
    "direct": direct,
    "cot": cot,
    "rag": rag,
    "ircot": ircot,
    "iter-retgen": iter_retgen,
}
STOP = "\nQuestion:"
"""Where a base model would go on with a question of its own: its text ends before."""
PROMPTS = (DIRECT, COT, RAG, RAG_STEPS, NEXT, CLOSE)


def get(name: str) -> Callable[[str], Steps]:
    """The method called `name`. InputError when there is none."""
    if name not in METHODS:
        raise InputError(f"a method is one of {AGENT}, {', '.join(METHODS)}", name, "use one of these")
    return METHODS[name]


def short(reply: str) -> str | None:
    """The first line that says something, without the word Answer and a full stop."""
    first = re.sub(r"(?i)^answer\s*:\s*", "", _first(reply))
    return first.rstrip(".").strip() or None


def concluded(reply: str) -> str | None:
    """What follows the last "answer is", up to the line's end; None without one."""
    said = re.split(r"(?i)\banswer is\b\s*:?", reply)
    return (_first(said[-1]).rstrip(" .").strip() or None) if len(said) > 1 else None


def sentence(reply: str) -> str:
    """The first sentence of the first line that says something; of a line that concludes, all of it."""
    line = _first(reply)
    return line if concluded(line) else re.split(r"(?<=[.!?])\s+(?=[^a-z])", line, maxsplit=1)[0]


def _first(reply: str) -> str:
    return next((line.strip() for line in reply.splitlines() if line.strip()), "")
