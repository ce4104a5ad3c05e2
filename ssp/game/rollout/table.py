"""What a turn does to an episode: reading it, answering it, keeping it within its limits. The log holds exactly the ids
that the engine sampled, and each observation encoded once (law 1); a fault voids the episodes it hit and no other (law
2)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ssp.base.episode import STAGE, Document, Episode, Task
from ssp.base.errors import Fault
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.config.role import LimitsConfig, SourceConfig
from ssp.engines.base import Engine, Generation, Sampling
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import passages
from ssp.search.hits import Answers, Search


class Source:
    """The decision for one episode."""

    def __init__(self, cfg: SourceConfig) -> None:
        self._cfg = cfg
        self._asked = 0
        self._before = math.inf

    @property
    def searching(self) -> bool:
        """Whether a search ends the next turn; else the policy goes on writing."""
        return self._cfg.kind != "self" and (self._cfg.kind != "first_k" or self._asked < self._cfg.real)

    @property
    def recalls(self) -> bool:
        """Whether information in the policy's own words is marked as such, and not trained."""
        return self._cfg.kind != "retriever"

    @property
    def measures(self) -> bool:
        """Whether `real` wants the log-probs of the query's tokens."""
        return self._cfg.kind == "entropy"

    def real(self, uncertainty: float = 0.0) -> bool:
        """Whether this search goes out. `uncertainty`: `sampled_entropy` of its query; a tie is not a rise."""
        first, risen = self._asked == 0, uncertainty > self._before
        self._asked += 1
        self._before = uncertainty
        return not self.measures or first or risen


def sampled_entropy(logprobs: Sequence[float]) -> float:
    """Mean of -p log2 p over sampled tokens, in bits, 0 for none: what SSRL calls entropy; it only sees what was drawn."""
    return sum(-math.exp(logprob) * logprob for logprob in logprobs) / math.log(2) / max(1, len(logprobs))


@dataclass(frozen=True)
class Settings:
    """How a role plays: its limits, who answers its searches, sampling temperature, documents a query."""

    limits: LimitsConfig
    temperature: float
    topk: int
    source: SourceConfig = field(default_factory=SourceConfig)


@dataclass
class Seat:
    """One running episode: its task, its slot, the ids that the engine has not read yet. It is over once
    `episode.stopped` says why. `asked`: what it searches for now. `ended`: the turn closed with an end of turn. `turns`
    counts searches and invalid turns."""

    task: Task
    episode: Episode
    slot: int
    pending: list[int]
    source: Source
    turns: int = 0
    asked: tuple[str, ...] = ()
    ended: bool = False


Found = dict[str, dict[str, list[Document]] | Fault]
"""Corpus → query → documents, or the fault that hit the whole call."""


@dataclass(frozen=True)
class Shown:
    """An observation as it goes into a log: its documents a query, its ids; [`begin`, `end`) of these are its
    own, the others its frame, which stays when the observation is dropped. `cuts`: queries of which it does not show all."""

    results: list[list[Document]]
    ids: list[int]
    begin: int
    end: int
    cuts: int = 0


class Table:
    """The seats of one rollout, and what happens to them."""

    def __init__(
        self, engine: Engine, renderer: Renderer, search: Search, tasks: Sequence[Task], settings: Settings
    ) -> None:
        self.engine, self._renderer, self._search = engine, renderer, search
        self._protocol, self._role = renderer.protocol, tasks[0].role
        self._settings, self._limits = settings, settings.limits
        self._ends = [[end] for end in renderer.ends]
        self._stops = {searching: renderer.stops(self._role, searching) for searching in (True, False)}
        # With them what the answers tell: seconds of their stages, under STAGE.
        self.seconds = {"generate": 0.0, "search": 0.0}
        self._adding = threading.Lock()
        prompts = renderer.encode([renderer.prompt(task.role, task.fields) for task in tasks])
        slots = engine.open([task.seed for task in tasks])
        self.seats = []
        rows = zip(tasks, slots, prompts, renderer.decode_all(prompts), strict=True)
        for task, slot, ids, shown in rows:
            episode = Episode(task.id, task.game, task.role, task.attempt, seed=task.seed, response_at=len(shown))
            episode.log.append(Kind.PROMPT, ids)
            self.seats.append(Seat(task, episode, slot, ids, Source(settings.source)))

    def sampling(self, seat: Seat) -> Sampling:
        """How the seat's next turn is drawn."""
        ids, words = self._stops[seat.source.searching]
        return Sampling(self._settings.temperature, self._limits.turn_tokens, ids, words)

    def may_go_on(self, seat: Seat) -> bool:
        """Whether it is not over and the next turn fits; with overflow=drop the oldest observations make room."""
        if seat.episode.stopped:
            return False
        log = seat.episode.log
        most = self._limits.total_tokens - self._limits.turn_tokens
        length = len(log.context()) if log.drops else len(log)
        if length > most and self._limits.overflow == "drop":
            gone = {start for _, start, _ in log.drops}
            for kind, start, end in log.stretches():
                if length > most and kind is Kind.OBSERVATION and start not in gone:
                    log.drop(start, end)
                    length -= end - start
            self.engine.close([seat.slot])  # which reads the context anew
            (seat.slot,) = self.engine.open([derive(seat.task.seed, "overflow", len(log.drops))])
            seat.pending = log.context()
        if length > most:
            seat.episode.stopped = "tokens"
        return length <= most

    def read(self, seat: Seat, generation: Generation) -> None:
        """Log a turn and see what it asks for: that is `seat.asked` from now on, unless the episode is over."""
        episode = seat.episode
        begin = len(episode.log)
        drawn_by = generation.version if generation.versions is None else generation.versions
        episode.log.append_model(generation.ids, generation.logprobs, drawn_by)
        turn = self._renderer.decode(generation.ids)
        seat.pending, seat.asked, seat.ended = [], (), generation.ids[-1:] in self._ends
        if seat.source.recalls:  # information in the policy's own words
            places = self._places(generation.ids)
            for block in self._protocol.parse(turn):
                if block.kind == self._protocol.observation_form.tag:
                    first, last = passages.tokens(places, block.begin, block.end)
                    episode.log.recall(begin + first, begin + last)
        if not generation.stopped:
            episode.stopped, episode.cut = "tokens", True
            return
        action = self._protocol.action(self._role, turn)
        if action.final is not None:
            episode.final, episode.stopped = action.final, "final"
        elif not action.queries or not seat.source.searching:  # nobody answers a search with which self-search ends
            self._invalid(seat)
        elif seat.turns >= self._limits.searches:
            episode.stopped = "turns"
        else:
            seat.turns += 1
            if seat.source.real(self._uncertainty(seat, turn, generation) if seat.source.measures else 0.0):
                seat.asked = action.queries

    def _invalid(self, seat: Seat) -> None:
        """A turn that neither searches nor hands in: told so, as long as it may be."""
        seat.episode.invalid += 1
        if seat.episode.invalid > self._limits.retries or not self._protocol.retry:
            seat.episode.stopped = "malformed"
        elif seat.turns >= self._limits.searches:
            seat.episode.stopped = "turns"
        else:
            seat.turns += 1
            self._show(seat, self._shown([], self._renderer.retry(self._role), seat.ended))

    def find(self, seats: Sequence[Seat]) -> Found:
        """Answer what `seats` ask, one call a corpus. Safe in a thread of its own; changes no episode."""
        began = time.perf_counter()
        asked: dict[str, dict[str, None]] = {}
        stages: list[Answers] = []
        for seat in seats:
            asked.setdefault(seat.task.corpus, {}).update(dict.fromkeys(seat.asked))
        found: Found = {}
        for corpus, unique in asked.items():
            queries = list(unique)
            try:
                answers = self._search.search(queries, self._settings.topk, corpus)
            except Fault as fault:
                found[corpus] = fault
                continue
            found[corpus] = dict(zip(queries, answers, strict=True))
            if isinstance(answers, Answers):
                stages.append(answers)
        with self._adding:
            self.seconds["search"] += time.perf_counter() - began
            for answers in stages:
                for stage, seconds in answers.seconds.items():
                    self.seconds[STAGE + stage] = self.seconds.get(STAGE + stage, 0.0) + seconds
        return found

    def show(self, seats: Sequence[Seat], found: Found) -> None:
        """Log what was found for what each seat asked."""
        fitted: dict[tuple[str, tuple[str, ...], bool], Shown] = {}
        for seat in seats:
            answers, episode, asked = found[seat.task.corpus], seat.episode, seat.asked
            seat.asked = ()
            if isinstance(answers, Fault):
                episode.void(answers.cause)
                continue
            key = seat.task.corpus, asked, seat.ended
            if key not in fitted:  # the attempts at one question often ask the same
                fitted[key] = self._fit([answers[query] for query in asked], seat.ended)
            if self._show(seat, fitted[key]):
                results = fitted[key].results
                episode.queries.extend(asked)
                episode.hits.extend(map(len, results))
                episode.cuts += fitted[key].cuts
                episode.documents.extend(document for documents in results for document in documents)

    def _show(self, seat: Seat, shown: Shown) -> bool:
        """Log an observation; False, and the end of the episode, when it does not fit."""
        seat.pending, log = shown.ids, seat.episode.log
        if self._limits.overflow == "stop" and len(log) + len(shown.ids) > self._limits.total_tokens:
            seat.episode.stopped = "tokens"
            return False
        log.append(Kind.TEMPLATE, shown.ids[: shown.begin])
        log.append(Kind.OBSERVATION, shown.ids[shown.begin : shown.end])
        log.append(Kind.TEMPLATE, shown.ids[shown.end :])
        return True

    def _fit(self, results: list[list[Document]], ended: bool) -> Shown:
        """What is shown of `results`, in at most `observation_tokens` where their frame leaves room."""

        def show(kept: passages.Results) -> Shown:
            return self._shown(kept, self._protocol.observation(*kept), ended)

        most, tokenizer = self._limits.observation_tokens, self._renderer.tokenizer
        shown = passages.fit(results, most, tokenizer, show, lambda trial: len(trial.ids))
        return replace(shown, cuts=sum(kept != found for kept, found in zip(shown.results, results, strict=True)))

    def _shown(self, results: list[list[Document]], text: str, ended: bool) -> Shown:
        before, inner, after = self._renderer.framed(text, ended)
        if not self._protocol.observation_form.as_turn:  # nothing joins the opened turn, as nothing joins the prompt
            frame, ids = self._renderer.encode([before, inner])
            return Shown(results, frame + ids, len(frame), len(frame) + len(ids))
        (ids,) = self._renderer.encode([before + inner + after])
        return Shown(results, ids, *passages.tokens(self._places(ids), len(before), len(before + inner)))

    def _places(self, ids: Sequence[int]) -> list[int]:
        return passages.ends(ids, self._renderer.decode)

    def _uncertainty(self, seat: Seat, turn: str, generation: Generation) -> float:
        """Mean entropy of the tokens of the query with which the turn ends; tool calls without tags count whole."""
        search = self._protocol.last_search(turn)
        place = search.inner if search is not None else (0, len(turn))
        first, last = passages.tokens(self._places(generation.ids), *place)
        return sampled_entropy(generation.logprobs[first:last])

    def close(self) -> None:
        """Give every slot back."""
        self.engine.close([seat.slot for seat in self.seats])

    def episodes(self) -> list[Episode]:
        """The episodes, in the tasks' order, with their text."""
        episodes = [seat.episode for seat in self.seats]
        texts = self._renderer.decode_all([episode.log.ids for episode in episodes])
        for episode, text in zip(episodes, texts, strict=True):
            episode.text = text
        return episodes
