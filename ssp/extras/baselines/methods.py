"""Baseline methods: the same policy and search, without a tag protocol. A method is a small
function that lets all its questions write and look together (`Bench.write`, `Bench.look`). After
FlashRAG's baselines, with which ReSearch compares."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ssp.base.episode import Document, Episode, Task
from ssp.base.errors import Fault, hold
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.config.role import LimitsConfig
from ssp.config.schema import Config
from ssp.engines import Engine, Sampling, StopWords
from ssp.engines.base import once
from ssp.game.protocols.renderer import ask
from ssp.game.protocols.template import CONTROL, ENDS
from ssp.game.rollout import Search, passages
from ssp.selfplay.workers import build

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROUNDS = 3
"""Thoughts of ircot before it must answer, and rounds of iter-retgen."""

_SHORT = "Give the answer alone, as short as it can be: a name, a number, a date or a few words."
_STEPS = (
    "Reason step by step. Then finish with a line that reads: The answer is X. Keep X as short as"
    " it can be."
)
_READ = "Here are passages that a search engine found. They may help, or not.\n\n{documents}\n\n"
_ASKED = "\n\nQuestion: {question}\n"

DIRECT = _SHORT + _ASKED + "Answer:"
COT = _STEPS + _ASKED + "Reasoning:"
RAG = _READ + _SHORT + _ASKED + "Answer:"
RAG_STEPS = _READ + _STEPS + _ASKED + "Reasoning:"
NEXT = (
    _READ
    + "Write the one sentence of reasoning that comes next. Once the answer is known, that sentence"
    " reads: The answer is X. Keep X as short as it can be."
    + _ASKED
    + "Reasoning so far: {thoughts}\nNext sentence:"
)
CLOSE = _READ + _SHORT + _ASKED + "Reasoning: {thoughts}\nAnswer:"


@dataclass
class Sitting:
    """One question on its way through a method: the documents it reads, its last text, thoughts so
    far, `texts` written."""

    task: Task
    episode: Episode
    documents: list[Document] = field(default_factory=list)
    text: str = ""
    thoughts: list[str] = field(default_factory=list)
    texts: int = 0

    @property
    def question(self) -> str:
        """What is asked."""
        return self.task.fields["question"]

    def hand_in(self, answer: str | None) -> None:
        """End with this answer; None: the text held none."""
        self.episode.final = answer
        self.episode.stopped = "malformed" if answer is None else "final"


def direct(bench: Bench, seats: list[Sitting]) -> None:
    """Zero-shot: one text, no search."""
    for seat in bench.write(seats, DIRECT):
        seat.hand_in(short(seat.text))


def cot(bench: Bench, seats: list[Sitting]) -> None:
    """Chain of thought: one text that reasons first, no search."""
    for seat in bench.write(seats, COT):
        seat.hand_in(concluded(seat.text))


def rag(bench: Bench, seats: list[Sitting]) -> None:
    """Retrieve once with the question, then answer."""
    for seat in bench.write(bench.look(seats, lambda seat: seat.question), RAG):
        seat.hand_in(short(seat.text))


def ircot(bench: Bench, seats: list[Sitting]) -> None:
    """IRCoT: one sentence of reasoning, a search with it, and so on until one concludes; then it
    must answer."""
    seats = bench.look(seats, lambda seat: seat.question)
    for _ in range(ROUNDS):
        going = []
        for seat in bench.write(seats, NEXT):
            thought = sentence(seat.text)
            if not thought or concluded(thought):
                seat.hand_in(concluded(thought))
            else:
                seat.thoughts.append(thought)
                going.append(seat)
        seats = bench.look(going, lambda seat: seat.thoughts[-1])
    for seat in bench.write(seats, CLOSE):
        seat.hand_in(short(seat.text))


def iter_retgen(bench: Bench, seats: list[Sitting]) -> None:
    """Iter-RetGen: retrieve with the question and the text before, write the text anew; the last
    text's answer."""
    for _ in range(ROUNDS):
        for seat in seats:
            seat.documents = []
        seats = bench.look(seats, lambda seat: " ".join(f"{seat.question} {seat.text}".split()))
        seats = bench.write(seats, RAG_STEPS)
    for seat in seats:
        seat.hand_in(concluded(seat.text))


Method = Callable[["Bench", list[Sitting]], None]
METHODS = {"direct": direct, "cot": cot, "rag": rag, "ircot": ircot, "iter-retgen": iter_retgen}
STOP = "\nQuestion:"
"""Where a base model would go on with a question of its own: its text ends before."""
PROMPTS = (DIRECT, COT, RAG, RAG_STEPS, NEXT, CLOSE)


def get(name: str) -> Method:
    """The method called `name`. InputError when there is none."""
    hold(
        name in METHODS,
        f"a method is one of agent, {', '.join(METHODS)}",
        name,
        "use one of these",
    )
    return METHODS[name]


def short(reply: str) -> str | None:
    """The first line that says something, without the word Answer and a full stop."""
    return re.sub(r"(?i)^answer\s*:\s*", "", _first(reply)).rstrip(".").strip() or None


def concluded(reply: str) -> str | None:
    """What follows the last "answer is", up to the line's end; None without one."""
    said = re.split(r"(?i)\banswer is\b\s*:?", reply)
    return (_first(said[-1]).rstrip(" .").strip() or None) if len(said) > 1 else None


def sentence(reply: str) -> str:
    """The first sentence of the first line that says something; of a line that concludes, all of
    it."""
    line = _first(reply)
    return line if concluded(line) else re.split(r"(?<=[.!?])\s+(?=[^a-z])", line, maxsplit=1)[0]


def _first(reply: str) -> str:
    return next((line.strip() for line in reply.splitlines() if line.strip()), "")


def player(
    cfg: Config, folder: Path, search: Search, temperature: float, method: str
) -> Callable[[Sequence[Task]], list[Episode]]:
    """Tasks → episodes by a baseline method, with the engine and the limits of the solver."""
    steps, solver = get(method), cfg.answering
    build.check_model(cfg, cfg.spec.answerer, folder)
    engine, tokenizer = build.engine(solver, folder), build.tokenizer(folder)
    limits, topk = solver.limits.at(None), cfg.retriever.topk
    bench = Bench(engine, tokenizer, search, limits, temperature, topk)
    return lambda tasks: bench.play(steps, tasks)


class Bench:
    """Plays a baseline method; of `limits` it knows `turn_tokens` and `total_tokens`, for each text
    and its prompt."""

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
        rule = "a baseline method needs a policy whose tokenizer can write its prompt"
        none = tokenizer.unk_token_id
        for prompt in PROMPTS:
            written = none is None or none not in ask(tokenizer, prompt)
            lack = f"no token for the words of {prompt[:40]!r}"
            hold(written, rule, lack, "use --method agent with this policy")

    def play(self, method: Method, tasks: Sequence[Task]) -> list[Episode]:
        """Every task's question through `method`; one episode each, in order. `Episode.text`:
        prompts and replies."""
        seats = []
        for task in tasks:
            episode = Episode(task.id, task.game, task.role, task.attempt, task.seed)
            seats.append(Sitting(task, episode))
        method(self, seats)
        return [seat.episode for seat in seats]

    def write(self, seats: Sequence[Sitting], prompt: str) -> list[Sitting]:
        """One text for every seat, in one call; those that have it now. The others have ended, as
        `tokens` or void."""
        able = []
        for seat in seats:
            ids, shown = self._fit(prompt, seat)
            if len(ids) <= self._room:
                able.append((seat, ids, shown))
            else:
                seat.episode.stopped = "tokens"
        seeds = [derive(seat.task.seed, "text", seat.texts) for seat, _, _ in able]
        texts = once(self._engine, seeds, [ids for _, ids, _ in able], self._sampling)
        for (seat, ids, shown), text in zip(able, texts, strict=True):
            if isinstance(text, Fault):
                seat.episode.void(text)
                continue
            seat.episode.log.append(Kind.PROMPT, ids)
            seat.episode.log.append_model(text.ids, text.logprobs, text.version)
            plain = str(self._tokenizer.decode(text.ids, skip_special_tokens=True))
            said = re.sub(CONTROL, " ", plain).split(STOP)[0]
            seat.episode.text += f"{shown}{said}\n\n"
            seat.texts += 1
            # what a reasoning model thinks first is not its reply
            seat.text = said.rpartition("</think>")[2]
        return [seat for seat, _, _ in able if not seat.episode.cause]

    def look(self, seats: Sequence[Sitting], query: Callable[[Sitting], str]) -> list[Sitting]:
        """One search for every seat, one call a corpus; what is new joins its documents. Those that
        were answered."""
        answered = []
        for corpus in dict.fromkeys(seat.task.corpus for seat in seats):
            there = [seat for seat in seats if seat.task.corpus == corpus]
            queries = list(dict.fromkeys(map(query, there)))
            try:
                results = self._search.search(queries, self._topk, corpus)
            except Fault as fault:
                for seat in there:
                    seat.episode.void(fault)
                continue
            shown = dict(zip(queries, results, strict=True))
            for seat in there:
                documents = shown[query(seat)]
                seat.episode.queries.append(query(seat))
                seat.episode.hits.append(len(documents))
                seat.episode.asked.append(len(seat.episode.log))
                seat.episode.documents.extend(documents)
                known = {document.id for document in seat.documents}
                seat.documents += [document for document in documents if document.id not in known]
            answered += there
        return answered

    def _fit(self, prompt: str, seat: Sitting) -> tuple[list[int], str]:
        """The prompt's ids and text, with as much of the documents as there is room for."""

        def written(kept: passages.Results) -> tuple[list[int], str]:
            shown = [
                f"[{n}] {document.title}\n{document.text}"
                for n, document in enumerate(kept[0], start=1)
            ]
            # Without any control string: the corpus must not close the prompt.
            documents = re.sub(CONTROL, " ", "\n\n".join(shown)) or "(none)"
            values = {
                "question": seat.question,
                "thoughts": " ".join(seat.thoughts),
                "documents": documents,
            }
            filled = re.sub(r"\{(\w+)\}", lambda hole: values[hole[1]], prompt)
            return ask(self._tokenizer, filled), filled

        return passages.fit(
            [seat.documents], self._room, self._tokenizer, written, lambda trial: len(trial[0])
        )
