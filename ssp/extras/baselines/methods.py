"""Baseline methods: the same policy and search, without a tag protocol. After FlashRAG's baselines,
with which ReSearch compares.

A method is a small function; it lets all its questions write and look together (`Bench.write`,
`Bench.look`)."""

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
from ssp.game.protocols.bare import ask
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
    """One question on its way through a method: the documents that it has, its last text, its
    thoughts so far, and how many texts it has written."""

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


def direct(bench: Bench, sittings: list[Sitting]) -> None:
    """Zero-shot: one text, no search."""
    for sitting in bench.write(sittings, DIRECT):
        sitting.hand_in(short(sitting.text))


def cot(bench: Bench, sittings: list[Sitting]) -> None:
    """Chain of thought: one text that reasons first, no search."""
    for sitting in bench.write(sittings, COT):
        sitting.hand_in(concluded(sitting.text))


def rag(bench: Bench, sittings: list[Sitting]) -> None:
    """Retrieve once with the question, then answer."""
    looked = bench.look(sittings, lambda sitting: sitting.question)
    for sitting in bench.write(looked, RAG):
        sitting.hand_in(short(sitting.text))


def ircot(bench: Bench, sittings: list[Sitting]) -> None:
    """IRCoT: one sentence of reasoning, a search with it, and so on until one concludes; then it
    must answer."""
    sittings = bench.look(sittings, lambda sitting: sitting.question)
    for _ in range(ROUNDS):
        going = []
        for sitting in bench.write(sittings, NEXT):
            thought = sentence(sitting.text)
            if not thought or concluded(thought):
                sitting.hand_in(concluded(thought))
            else:
                sitting.thoughts.append(thought)
                going.append(sitting)
        sittings = bench.look(going, lambda sitting: sitting.thoughts[-1])
    for sitting in bench.write(sittings, CLOSE):
        sitting.hand_in(short(sitting.text))


def iter_retgen(bench: Bench, sittings: list[Sitting]) -> None:
    """Iter-RetGen: retrieve with the question and the last text, write a new text, and so on; the
    answer is that of the last text."""

    def query(sitting: Sitting) -> str:
        return " ".join(f"{sitting.question} {sitting.text}".split())

    for _ in range(ROUNDS):
        for sitting in sittings:
            sitting.documents = []
        sittings = bench.look(sittings, query)
        sittings = bench.write(sittings, RAG_STEPS)
    for sitting in sittings:
        sitting.hand_in(concluded(sitting.text))


Method = Callable[["Bench", list[Sitting]], None]
METHODS = {"direct": direct, "cot": cot, "rag": rag, "ircot": ircot, "iter-retgen": iter_retgen}
STOP = "\nQuestion:"
"""Where a base model would go on with a question of its own: its text ends before."""
PROMPTS = (DIRECT, COT, RAG, RAG_STEPS, NEXT, CLOSE)


def get(name: str) -> Method:
    """The method called `name`. InputError when there is none."""
    rule = f"a method is one of agent, {', '.join(METHODS)}"
    hold(name in METHODS, rule, name, "use one of these")
    return METHODS[name]


def short(reply: str) -> str | None:
    """The first line that says something, without the word Answer and a full stop."""
    answer = re.sub(r"(?i)^answer\s*:\s*", "", _first_line(reply))
    return answer.rstrip(".").strip() or None


def concluded(reply: str) -> str | None:
    """What follows the last "answer is", up to the line's end; None without one."""
    parts = re.split(r"(?i)\banswer is\b\s*:?", reply)
    if len(parts) == 1:
        return None
    return _first_line(parts[-1]).rstrip(" .").strip() or None


def sentence(reply: str) -> str:
    """The first sentence of the first line that says something; all of a line that concludes."""
    line = _first_line(reply)
    if concluded(line):
        return line
    return re.split(r"(?<=[.!?])\s+(?=[^a-z])", line, maxsplit=1)[0]


def _first_line(reply: str) -> str:
    """The first line that says something."""
    stripped = map(str.strip, reply.splitlines())
    return next(filter(None, stripped), "")


def player(
    cfg: Config, folder: Path, search: Search, temperature: float, method: str
) -> Callable[[Sequence[Task]], list[Episode]]:
    """Tasks → episodes by a baseline method, with the engine and the limits of the role that
    answers."""
    steps = get(method)
    build.check_model(cfg, cfg.spec.answerer, folder)
    engine = build.engine(cfg.answering, folder)
    tokenizer = build.tokenizer(folder)
    limits = cfg.answering.limits.at(None)
    bench = Bench(engine, tokenizer, search, limits, temperature, cfg.retriever.topk)
    return lambda tasks: bench.play(steps, tasks)


class Bench:
    """Plays a baseline method. Of `limits`, `turn_tokens` bounds each text, and `total_tokens` the
    text with its prompt."""

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
        vocabulary = tokenizer.get_vocab()
        ends = {vocabulary[end] for end in (*ENDS, tokenizer.eos_token) if end in vocabulary}
        words = StopWords([STOP], lambda ids: str(tokenizer.decode(list(ids))))
        self._sampling = Sampling(temperature, limits.turn_tokens, tuple(sorted(ends)), words)

        rule = "a baseline method needs a policy whose tokenizer can write its prompt"
        unknown = tokenizer.unk_token_id
        for prompt in PROMPTS:
            writable = unknown is None or unknown not in ask(tokenizer, prompt)
            lack = f"no token for the words of {prompt[:40]!r}"
            hold(writable, rule, lack, "use --method agent with this policy")

    def play(self, method: Method, tasks: Sequence[Task]) -> list[Episode]:
        """One episode for each task, in order: its question through `method`. `Episode.text` holds
        prompts and replies."""
        sittings = []
        for task in tasks:
            episode = Episode(task.id, task.game, task.role, task.attempt, task.seed)
            sittings.append(Sitting(task, episode))
        method(self, sittings)
        return [sitting.episode for sitting in sittings]

    def write(self, sittings: Sequence[Sitting], prompt: str) -> list[Sitting]:
        """One text for every sitting, in one call. Returns those that have it; the others have
        ended, as `tokens` or void."""
        able = []
        for sitting in sittings:
            ids, shown = self._fit(prompt, sitting)
            if len(ids) <= self._room:
                able.append((sitting, ids, shown))
            else:
                sitting.episode.stopped = "tokens"
        seeds = [derive(sitting.task.seed, "text", sitting.texts) for sitting, _, _ in able]
        texts = once(self._engine, seeds, [ids for _, ids, _ in able], self._sampling)
        for (sitting, ids, shown), text in zip(able, texts, strict=True):
            episode = sitting.episode
            if isinstance(text, Fault):
                episode.void(text)
                continue
            episode.log.append(Kind.PROMPT, ids)
            episode.log.append_model(text.ids, text.logprobs, text.version)
            plain = str(self._tokenizer.decode(text.ids, skip_special_tokens=True))
            said = re.sub(CONTROL, " ", plain).split(STOP)[0]
            episode.text += f"{shown}{said}\n\n"
            sitting.texts += 1
            # what a reasoning model thinks first is not its reply
            sitting.text = said.rpartition("</think>")[2]
        return [sitting for sitting, _, _ in able if not sitting.episode.cause]

    def look(self, sittings: Sequence[Sitting], query: Callable[[Sitting], str]) -> list[Sitting]:
        """One search for every sitting, in one call for each corpus; what is new joins its
        documents. Returns those that were answered; the others are void."""
        answered = []
        for corpus in dict.fromkeys(sitting.task.corpus for sitting in sittings):
            there = [sitting for sitting in sittings if sitting.task.corpus == corpus]
            queries = list(dict.fromkeys(map(query, there)))
            try:
                results = self._search.search(queries, self._topk, corpus)
            except Fault as fault:
                for sitting in there:
                    sitting.episode.void(fault)
                continue
            shown = dict(zip(queries, results, strict=True))
            for sitting in there:
                episode, asked = sitting.episode, query(sitting)
                episode.queries.append(asked)
                episode.hits.append(len(shown[asked]))
                episode.asked.append(len(episode.log))
                episode.documents.extend(shown[asked])
                known = {document.id for document in sitting.documents}
                sitting.documents += [one for one in shown[asked] if one.id not in known]
            answered += there
        return answered

    def _fit(self, prompt: str, sitting: Sitting) -> tuple[list[int], str]:
        """The prompt's ids and text, with as much of the documents as there is room for."""

        def written(results: passages.Results) -> tuple[list[int], str]:
            shown = []
            for number, document in enumerate(results[0], start=1):
                shown.append(f"[{number}] {document.title}\n{document.text}")
            values = {
                "question": sitting.question,
                "thoughts": " ".join(sitting.thoughts),
                # without any control string: the corpus must not close the prompt
                "documents": re.sub(CONTROL, " ", "\n\n".join(shown)) or "(none)",
            }
            filled = re.sub(r"\{(\w+)\}", lambda hole: values[hole[1]], prompt)
            return ask(self._tokenizer, filled), filled

        def size(trial: tuple[list[int], str]) -> int:
            return len(trial[0])

        return passages.fit([sitting.documents], self._room, self._tokenizer, written, size)
