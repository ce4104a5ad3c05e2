"""The bench on which baseline methods are played: many questions at once, over one engine and one search.

Owns the batching of their calls. Promises that a call is made once for everything that waits for it, that documents
leave a prompt from the end until it fits (one alone is cut), that a fault voids what waited for that call and no more (law
2), and that every slot is closed again. Refuses to know what a method asks (`ssp.game.evaluation.methods`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssp.base.episode import Document, Episode, Task
from ssp.base.errors import Fault, InputError
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.config.role import LimitsConfig
from ssp.engines import Engine, Generation, Sampling, StopWords
from ssp.engines.base import FreeEngine
from ssp.game.evaluation.methods import PROMPTS, STOP, Look, Steps, Write
from ssp.game.protocols.renderer import ask
from ssp.game.protocols.template import CONTROL, ENDS
from ssp.game.rollout import Search, passages

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass
class _Seat:
    """One running question: its task, its method, what it waits for."""

    task: Task
    steps: Steps
    episode: Episode
    wish: Write | Look | None = None
    texts: int = 0

    def go(self, answer: str | list[Document] | None) -> None:
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
            raise InputError(
                "a baseline method needs a policy whose tokenizer can write its prompt",
                f"no token for the words of {unknown[0][:40]!r}",
                "use --method agent with this policy",
            )

    def play(self, method: Callable[[str], Steps], tasks: Sequence[Task]) -> list[Episode]:
        """Every task's question through `method`; one episode each, in order. `Episode.text`: prompts and replies."""
        seats = [
            _Seat(
                task, method(task.fields["question"]), Episode(task.id, task.game, task.role, task.attempt, task.seed)
            )
            for task in tasks
        ]
        for seat in seats:
            seat.go(None)
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
        texts = self._generate([seat for seat, _, _ in able], [ids for _, ids, _ in able])
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

    def _generate(self, seats: list[_Seat], prompts: list[list[int]]) -> list[Generation | Fault]:
        """A text a seat, or the fault that hit it: of a lock-step engine, all of them."""
        engine = self._engine
        slots = engine.open([derive(seat.task.seed, "text", seat.texts) for seat in seats])
        try:
            if isinstance(engine, FreeEngine):
                futures = [engine.submit(slot, ids, self._sampling) for slot, ids in zip(slots, prompts, strict=True)]
                return [_result(future) for future in futures]
            return list(engine.step(slots, prompts, self._sampling)) if slots else []
        except Fault as fault:
            return [fault] * len(seats)
        finally:
            engine.close(slots)

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
                seat.go(list(found[query]))

    def _fit(self, wish: Write) -> tuple[list[int], str]:
        """The prompt's ids and text, with as much of the documents as there is room for."""

        def written(kept: passages.Results) -> tuple[list[int], str]:
            values = {**wish.values, "documents": _passages(kept[0])}
            prompt = re.sub(r"\{(\w+)\}", lambda hole: values[hole[1]], wish.prompt)
            return ask(self._tokenizer, prompt), prompt

        return passages.fit([wish.documents], self._room, self._tokenizer, written, lambda trial: len(trial[0]))


def _result(future: Future[Generation]) -> Generation | Fault:
    try:
        return future.result()
    except Fault as fault:
        return fault


def _passages(documents: Sequence[Document]) -> str:
    """The documents, numbered, without any control string: the corpus must not close the prompt."""
    text = "\n\n".join(f"[{n}] {document.title}\n{document.text}" for n, document in enumerate(documents, start=1))
    return re.sub(CONTROL, " ", text) or "(none)"
