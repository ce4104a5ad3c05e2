"""The rollout: tasks in, episodes out, by turns of policy and search (laws 1, 2, 8).

Owns the turn loop and its limits; training, evaluation and `ask` all use it. Promises that the log holds exactly the
ids that the engine sampled and each observation encoded once, that a fault voids the episodes it hit and no other, and
that every slot is closed again. Refuses to know rewards, verdicts, weights, or where engine and search live.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Protocol as Interface

from ssp.config.schema import LimitsConfig
from ssp.engines.base import Engine, Generation, Sampling
from ssp.episode import Document, Episode, Task
from ssp.errors import Fault, InputError, InvariantError
from ssp.protocols import Protocol
from ssp.tokenlog import Kind

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Search(Interface):
    """What answers searches."""

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """At most `k` documents for each query, best first. Fault when the service fails."""


@dataclass(frozen=True)
class Limits:
    """Limits of one episode: searches, new tokens a turn, tokens an observation, tokens in all."""

    searches: int
    turn_tokens: int
    observation_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, config: LimitsConfig) -> Limits:
        """From a role's `limits` block."""
        return cls(config.searches, config.turn_tokens, config.observation_tokens, config.total_tokens)


@dataclass
class _Seat:
    """One running episode: its task, its slot, the ids that the engine has not read yet."""

    task: Task
    episode: Episode
    slot: int
    pending: list[int]


def rollout(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    protocol: Protocol,
    search: Search,
    tasks: Sequence[Task],
    limits: Limits,
    temperature: float,
    topk: int,
) -> tuple[list[Episode], dict[str, float]]:
    """Play all `tasks` (of one role) to the end, in lock step; episodes in their order, and seconds by part.

    Ends of an episode (`stopped`): `final` (it handed in), `turns` (it searched once more than `limits.searches`),
    `tokens` (a turn or the whole is too long), `malformed` (a turn that neither searches nor hands in), `fault` (void:
    a Fault of search hits the episodes of that call, one of the engine all that were running). `Episode.documents` are
    those that the policy was shown. Seconds: `generate`, `search`. InputError: a stop string that is not one token.
    """
    if not tasks:
        return [], {"generate": 0.0, "search": 0.0}
    if len({task.role for task in tasks}) > 1:
        raise InvariantError("the tasks of one rollout belong to one role")
    table = _Table(engine, tokenizer, protocol, search, limits, temperature, topk, tasks)
    try:
        running = table.seats
        while running:
            running = table.turn(running)
    finally:
        table.close()
    return table.episodes(), table.seconds


class _Table:
    """The state of one rollout."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: PreTrainedTokenizerBase,
        protocol: Protocol,
        search: Search,
        limits: Limits,
        temperature: float,
        topk: int,
        tasks: Sequence[Task],
    ) -> None:
        self._engine, self._tokenizer, self._protocol, self._search = engine, tokenizer, protocol, search
        self._limits, self._topk, self._role = limits, topk, tasks[0].role
        self._sampling = Sampling(temperature, limits.turn_tokens, self._stop_ids())
        self.seconds = {"generate": 0.0, "search": 0.0}
        prompts = self._encode([protocol.render(task.role, task.fields) for task in tasks])
        slots = engine.open([task.seed for task in tasks])
        self.seats = []
        for task, slot, prompt in zip(tasks, slots, prompts, strict=True):
            episode = Episode(task.id, task.game, task.role, task.attempt, seed=task.seed)
            episode.log.append(Kind.PROMPT, prompt)
            self.seats.append(_Seat(task, episode, slot, prompt))

    def turn(self, seats: list[_Seat]) -> list[_Seat]:
        """One turn of every seat: generate, then search; returns the seats that go on."""
        able = [seat for seat in seats if self._has_room(seat)]
        searching: dict[str, list[tuple[_Seat, str]]] = {}
        for seat, text, generation in self._generate(able):
            query = self._read(seat.episode, text, generation)
            if query is not None:
                searching.setdefault(seat.task.corpus, []).append((seat, query))
        going = [seat for corpus, asked in searching.items() for seat in self._observe(corpus, asked)]
        slots = {seat.slot for seat in going}
        return [seat for seat in able if seat.slot in slots]

    def _has_room(self, seat: _Seat) -> bool:
        fits = len(seat.episode.log) + self._limits.turn_tokens <= self._limits.total_tokens
        if not fits:
            seat.episode.stopped = "tokens"
        return fits

    def _generate(self, seats: list[_Seat]) -> list[tuple[_Seat, str, Generation]]:
        """Sample one turn a seat and log it; the turn's text is decoded from its own ids."""
        if not seats:
            return []
        began = time.perf_counter()
        try:
            generations = self._engine.step(
                [seat.slot for seat in seats], [seat.pending for seat in seats], self._sampling
            )
        except Fault as fault:
            for seat in seats:
                seat.episode.void(fault.cause)
            return []
        finally:
            self.seconds["generate"] += time.perf_counter() - began
        for seat, generation in zip(seats, generations, strict=True):
            seat.episode.log.append_model(generation.ids, generation.logprobs, generation.version)
        texts = self._decode([generation.ids for generation in generations])
        return list(zip(seats, texts, generations, strict=True))

    def _read(self, episode: Episode, text: str, generation: Generation) -> str | None:
        """The turn's search, or None when the episode is over; then it says why."""
        final, query = self._protocol.final(self._role, text), self._protocol.query(text)
        if not generation.stopped:
            episode.stopped = "tokens"
        elif final is not None:
            episode.final, episode.stopped = final, "final"
        elif query is None:
            episode.stopped = "malformed"
        elif len(episode.queries) >= self._limits.searches:
            episode.stopped = "turns"
        else:
            episode.queries.append(query)
            return query
        return None

    def _observe(self, corpus: str, asked: list[tuple[_Seat, str]]) -> list[_Seat]:
        """Answer the searches of one corpus in one call; returns the seats that got an observation."""
        began = time.perf_counter()
        queries = list(dict.fromkeys(query for _, query in asked))
        try:
            answers = self._search.search(queries, self._topk, corpus)
        except Fault as fault:
            for seat, _ in asked:
                seat.episode.void(fault.cause)
            return []
        finally:
            self.seconds["search"] += time.perf_counter() - began
        if len(answers) != len(queries):
            raise InvariantError(f"search gave {len(answers)} answers to {len(queries)} queries")
        shown = dict(zip(queries, self._fit(answers), strict=True))
        for seat, query in asked:
            documents, ids = shown[query]
            seat.episode.documents.extend(documents)
            seat.episode.log.append(Kind.OBSERVATION, ids)
            seat.pending = ids
        return [seat for seat, _ in asked]

    def _fit(self, answers: list[list[Document]]) -> list[tuple[list[Document], list[int]]]:
        """Documents and observation ids; over `observation_tokens` whole documents go, from the end."""
        encoded = self._encode([self._protocol.observation(documents) for documents in answers])
        fitted = []
        for documents, ids in zip(answers, encoded, strict=True):
            while len(ids) > self._limits.observation_tokens and documents:
                documents = documents[:-1]
                ids = self._encode([self._protocol.observation(documents)])[0]
            fitted.append((documents, ids))
        return fitted

    def close(self) -> None:
        """Give every slot back."""
        self._engine.close([seat.slot for seat in self.seats])

    def episodes(self) -> list[Episode]:
        """The episodes, with their whole text."""
        episodes = [seat.episode for seat in self.seats]
        for episode, text in zip(episodes, self._decode([episode.log.ids for episode in episodes]), strict=True):
            episode.text = text
        return episodes

    def _encode(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        return ids

    def _decode(self, ids: list[list[int]]) -> list[str]:
        # spaces are never cleaned up: " ?" must stay what the policy wrote
        texts: list[str] = self._tokenizer.batch_decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return texts

    def _stop_ids(self) -> tuple[int, ...]:
        stops = self._protocol.stops(self._role)
        encoded = self._encode(list(stops))
        broken = [
            stop for stop, ids in zip(stops, encoded, strict=True) if len(ids) != 1 or self._decode([ids]) != [stop]
        ]
        if broken:
            raise InputError(
                f"every stop string of protocol {self._protocol.id} is one token of the model's tokenizer",
                f"{', '.join(broken)} is not",
                "use a model that was made for this protocol",
            )
        return tuple(ids[0] for ids in encoded)
