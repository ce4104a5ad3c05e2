"""Baseline methods: the same policy and the same search, without a tag protocol. One small generator a method: it
yields what it needs (`Write`: a text of the policy, `Look`: a search) and returns its answer. After FlashRAG's
baselines, which ReSearch compares itself with."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ssp.base.episode import Document, Episode, Task
from ssp.base.errors import Fault, InputError
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.config.role import LimitsConfig
from ssp.engines import Engine, Sampling, StopWords
from ssp.engines.base import once
from ssp.game.protocols.renderer import ask
from ssp.game.protocols.template import CONTROL, ENDS
from ssp.game.rollout import Search, passages

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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


METHODS = {"direct": direct, "cot": cot, "rag": rag, "ircot": ircot, "iter-retgen": iter_retgen}
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
    return re.sub(r"(?i)^answer\s*:\s*", "", _first(reply)).rstrip(".").strip() or None


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


@dataclass
class _Seat:
    """One running question: its task, its method, what it waits for."""

    task: Task
    steps: Steps
    episode: Episode
    wish: Write | Look | None = None
    texts: int = 0

    def go(self, answer: str | Sequence[Document] | None) -> None:
        """Run the method on to its next wish, or to its end; None starts it."""
        try:
            self.wish = self.steps.send(answer)
        except StopIteration as end:
            self.wish, self.episode.final = None, end.value
            self.episode.stopped = "malformed" if end.value is None else "final"

    def void(self, fault: Fault) -> None:
        """End it for a fault of ours."""
        self.wish = None
        self.episode.void(fault.cause)


class Bench:
    """Plays a baseline method; of `limits` it knows `turn_tokens` and `total_tokens`, for each text and its prompt."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: PreTrainedTokenizerBase,
        search: Search,
        limits: LimitsConfig,
        temperature: float,
        topk: int,
    ) -> None:
        self._engine, self._tokenizer, self._search, self._topk = engine, tokenizer, search, topk
        self._room = limits.total_tokens - limits.turn_tokens
        known = tokenizer.get_vocab()
        ends = {known[end] for end in (*ENDS, tokenizer.eos_token) if end in known}
        words = StopWords([STOP], lambda ids: str(tokenizer.decode(list(ids))))
        self._sampling = Sampling(temperature, limits.turn_tokens, tuple(sorted(ends)), words)
        unknown = [prompt for prompt in PROMPTS if tokenizer.unk_token_id in ask(self._tokenizer, prompt)]
        if unknown and tokenizer.unk_token_id is not None:
            rule = "a baseline method needs a policy whose tokenizer can write its prompt"
            found = f"no token for the words of {unknown[0][:40]!r}"
            raise InputError(rule, found, "use --method agent with this policy")

    def play(self, method: Callable[[str], Steps], tasks: Sequence[Task]) -> list[Episode]:
        """Every task's question through `method`; one episode each, in order. `Episode.text`: prompts and replies."""
        seats = []
        for task in tasks:
            episode = Episode(task.id, task.game, task.role, task.attempt, task.seed)
            seats.append(_Seat(task, method(task.fields["question"]), episode))
            seats[-1].go(None)
        while waiting := [seat for seat in seats if seat.wish is not None]:
            self._write([seat for seat in waiting if isinstance(seat.wish, Write)])
            self._look([seat for seat in waiting if isinstance(seat.wish, Look)])
        return [seat.episode for seat in seats]

    def _write(self, seats: list[_Seat]) -> None:
        """One text for every seat that waits for one, in one call."""
        fitted = [(seat, *self._fit(seat.wish)) for seat in seats if isinstance(seat.wish, Write)]
        for seat, ids, _ in fitted:
            if len(ids) > self._room:
                seat.wish, seat.episode.stopped = None, "tokens"
        able = [(seat, ids, prompt) for seat, ids, prompt in fitted if seat.wish is not None]
        seeds = [derive(seat.task.seed, "text", seat.texts) for seat, _, _ in able]
        texts = once(self._engine, seeds, [ids for _, ids, _ in able], self._sampling)
        for (seat, ids, prompt), text in zip(able, texts, strict=True):
            if isinstance(text, Fault):
                seat.void(text)
                continue
            seat.episode.log.append(Kind.PROMPT, ids)
            seat.episode.log.append_model(text.ids, text.logprobs, text.version)
            said = re.sub(CONTROL, " ", str(self._tokenizer.decode(text.ids, skip_special_tokens=True))).split(STOP)[0]
            seat.episode.text += f"{prompt}{said}\n\n"
            seat.texts += 1
            seat.go(said.rpartition("</think>")[2])  # what a reasoning model thinks before its reply is not the reply

    def _look(self, seats: list[_Seat]) -> None:
        """One search for every seat that waits for one, one call a corpus."""
        corpora: dict[str, list[tuple[_Seat, str]]] = {}
        for seat in seats:
            if isinstance(seat.wish, Look):
                corpora.setdefault(seat.task.corpus, []).append((seat, seat.wish.query))
        for corpus, asked in corpora.items():
            queries = list(dict.fromkeys(query for _, query in asked))
            try:
                found = dict(zip(queries, self._search.search(queries, self._topk, corpus), strict=True))
            except Fault as fault:
                for seat, _ in asked:
                    seat.void(fault)
                continue
            for seat, query in asked:
                seat.episode.queries.append(query)
                seat.episode.hits.append(len(found[query]))
                seat.episode.documents.extend(found[query])
                seat.go(found[query])

    def _fit(self, wish: Write) -> tuple[list[int], str]:
        """The prompt's ids and text, with as much of the documents as there is room for."""

        def written(kept: passages.Results) -> tuple[list[int], str]:
            shown = [f"[{n}] {document.title}\n{document.text}" for n, document in enumerate(kept[0], start=1)]
            # Without any control string: the corpus must not close the prompt.
            values = {**wish.values, "documents": re.sub(CONTROL, " ", "\n\n".join(shown)) or "(none)"}
            prompt = re.sub(r"\{(\w+)\}", lambda hole: values[hole[1]], wish.prompt)
            return ask(self._tokenizer, prompt), prompt

        return passages.fit([wish.documents], self._room, self._tokenizer, written, lambda trial: len(trial[0]))
