"""What a turn does to an episode: reading it, answering it, keeping it within its limits. The log
holds exactly the ids that were sampled, and each observation encoded once (law 1); a fault voids
the episodes it hit and no other (law 2)."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ssp.base.episode import STAGE, Document, Episode, Mistake, Task
from ssp.base.errors import Fault
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind
from ssp.engines.base import Engine, Generation, Sampling
from ssp.game.protocols.calls import TOOL, Call
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import passages
from ssp.game.rollout.settings import Settings, Source, sampled_entropy
from ssp.game.rollout.tools import ToolRequest, note
from ssp.search.hits import Answers, Search


@dataclass
class Seat:
    """One running episode: its task, its slot, the ids that the engine has not read yet. It is over
    once `episode.stopped` says why. `asked`: the calls that wait for an answer. `ended`: the turn
    closed with an end of turn. `turns` counts turns with calls and invalid turns. `seen` and
    `read_to`: see `Asked`."""

    task: Task
    episode: Episode
    slot: int
    pending: list[int]
    source: Source
    turns: int = 0
    asked: tuple[Call, ...] = ()
    ended: bool = False
    seen: dict[str, Document] = field(default_factory=dict)
    read_to: dict[str, int] = field(default_factory=dict)


Found = list[list[list[Document]] | Fault]
"""What a seat each is shown for its calls, or the fault that hit one of them."""


@dataclass(frozen=True)
class Shown:
    """An observation as it goes into a log: its documents a query, its ids; [`begin`, `end`) of
    these are its own, the others its frame, which stays when the observation is dropped."""

    results: list[list[Document]]
    ids: list[int]
    begin: int
    end: int


class Table:
    """The seats of one rollout, and what happens to them."""

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        search: Search,
        tasks: Sequence[Task],
        settings: Settings,
    ) -> None:
        self.engine, self._renderer, self._search = engine, renderer, search
        self._protocol, self._prompt = renderer.protocol, tasks[0].asked_as
        self._settings, self._limits = settings, settings.limits
        self._ends = [[end] for end in renderer.ends]
        self._stops = {
            searching: renderer.stops(self._prompt, searching) for searching in (True, False)
        }
        # With them what the answers tell: seconds of their stages, under STAGE.
        self.seconds = {"generate": 0.0, "search": 0.0}
        self._adding = threading.Lock()
        prompts = renderer.encode([renderer.prompt(task.asked_as, task.fields) for task in tasks])
        slots = engine.open([task.seed for task in tasks])
        self.seats = []
        for task, slot, ids, shown in zip(
            tasks, slots, prompts, renderer.decode_all(prompts), strict=True
        ):
            episode = Episode(
                task.id, task.game, task.role, task.attempt, seed=task.seed, response_at=len(shown)
            )
            episode.log.append(Kind.PROMPT, ids)
            self.seats.append(Seat(task, episode, slot, ids, Source(settings.source)))

    def sampling(self, seat: Seat) -> Sampling:
        """How the seat's next turn is drawn."""
        ids, words = self._stops[seat.source.searching]
        return Sampling(self._settings.temperature, self._limits.turn_tokens, ids, words)

    def may_go_on(self, seat: Seat) -> bool:
        """Whether it is not over and the next turn fits; with overflow=drop the oldest observations
        make room."""
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
        """Log a turn and see what it asks for: that is `seat.asked` from now on, unless the episode
        is over."""
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
        action = self._protocol.action(self._prompt, turn)
        searches = any(call.tool == TOOL for call in action.calls)
        if action.final is not None:
            episode.final, episode.stopped = action.final, "final"
        elif not action.calls or (searches and not seat.source.searching):
            # which self-search answers itself
            self._invalid(seat)
        elif seat.turns >= self._limits.searches:
            episode.stopped = "turns"
        else:
            seat.turns += 1
            real = not searches or seat.source.real(
                self._uncertainty(seat, turn, generation) if seat.source.measures else 0.0
            )
            seat.asked = action.calls if real else ()

    def _invalid(self, seat: Seat) -> None:
        """A turn that neither searches nor hands in: told so, as long as it may be."""
        seat.episode.invalid += 1
        if seat.episode.invalid > self._limits.retries or not self._protocol.retry:
            seat.episode.stopped = "malformed"
        elif seat.turns >= self._limits.searches:
            seat.episode.stopped = "turns"
        else:
            seat.turns += 1
            self._show(seat, self._shown([], self._renderer.retry(self._prompt), seat.ended))

    def find(self, seats: Sequence[Seat]) -> Found:
        """Answer what `seats` ask: one search a corpus, and all calls of other tools at once. Safe
        in a thread of its own; changes no episode."""
        began = time.perf_counter()
        asked: dict[str, dict[str, None]] = {}
        others: list[ToolRequest] = []
        for seat in seats:
            queries = [call.text for call in seat.asked if call.tool == TOOL]
            asked.setdefault(seat.task.corpus, {}).update(dict.fromkeys(queries))
            others += self._others(seat)
        told = iter(self._settings.tools.run(others) if others else ())
        found = {corpus: self._searched(list(unique), corpus) for corpus, unique in asked.items()}
        answers = Found()
        for seat in seats:
            searched = found[seat.task.corpus]
            each = [
                (searched if isinstance(searched, Fault) else searched[call.text])
                if call.tool == TOOL
                else next(told)
                for call in seat.asked
            ]
            fault = next((one for one in each if isinstance(one, Fault)), None)
            answers.append(fault or [one for one in each if not isinstance(one, Fault)])
        with self._adding:
            self.seconds["search"] += time.perf_counter() - began
        return answers

    def _others(self, seat: Seat) -> list[ToolRequest]:
        """The seat's calls of other tools."""
        task, done = seat.task, len(seat.episode.queries)
        return [
            ToolRequest(
                call,
                f"{task.game}/{task.role}/{task.seed}/{done + number}",
                seat.seen,
                seat.read_to,
            )
            for number, call in enumerate(seat.asked)
            if call.tool != TOOL
        ]

    def _searched(self, queries: list[str], corpus: str) -> dict[str, list[Document]] | Fault:
        try:
            answers = self._search.search(queries, self._settings.topk, corpus) if queries else []
        except Fault as fault:
            return fault
        if isinstance(answers, Answers):
            with self._adding:
                for stage, seconds in answers.seconds.items():
                    self.seconds[STAGE + stage] = self.seconds.get(STAGE + stage, 0.0) + seconds
        return dict(zip(queries, answers, strict=True))

    def show(self, seats: Sequence[Seat], found: Found) -> None:
        """Log what was found for what each seat asked."""
        fitted: dict[tuple[str, tuple[Call, ...], bool], Shown] = {}
        for seat, answers in zip(seats, found, strict=True):
            episode, asked = seat.episode, seat.asked
            seat.asked = ()
            if isinstance(answers, Fault):
                episode.void(answers)
                continue
            key = seat.task.corpus, asked, seat.ended
            shared = all(call.tool == TOOL for call in asked)
            # the attempts at one question often search for the same
            if not (shared and key in fitted):
                fitted[key] = self._fit(answers, seat.ended)
            if self._show(seat, fitted[key]):
                self._note(seat, asked, answers, fitted[key])

    def _note(
        self, seat: Seat, asked: tuple[Call, ...], found: list[list[Document]], shown: Shown
    ) -> None:
        """What a seat has asked and seen now."""
        episode = seat.episode
        results = [
            [d for d in documents if not isinstance(d, Mistake)] for documents in shown.results
        ]
        if self._protocol.offers:
            episode.tools.extend(call.tool for call in asked)
        episode.queries.extend(call.text for call in asked)
        episode.hits.extend(map(len, results))
        episode.asked.extend([len(episode.log)] * len(asked))
        episode.cuts += sum(
            call.tool == TOOL and kept != all_
            for call, kept, all_ in zip(asked, shown.results, found, strict=True)
        )
        episode.documents.extend(document for documents in results for document in documents)
        for call, kept, all_ in zip(asked, results, found, strict=True):
            note(call, all_, kept, seat.seen, seat.read_to)

    def _show(self, seat: Seat, shown: Shown) -> bool:
        """Log an observation; False, and the end of the episode, when it does not fit."""
        seat.pending, log = shown.ids, seat.episode.log
        if (
            self._limits.overflow == "stop"
            and len(log) + len(shown.ids) > self._limits.total_tokens
        ):
            seat.episode.stopped = "tokens"
            return False
        log.append(Kind.TEMPLATE, shown.ids[: shown.begin])
        log.append(Kind.OBSERVATION, shown.ids[shown.begin : shown.end])
        log.append(Kind.TEMPLATE, shown.ids[shown.end :])
        return True

    def _fit(self, results: list[list[Document]], ended: bool) -> Shown:
        """What is shown of `results`, in at most `observation_tokens` where their frame leaves
        room."""

        def show(kept: passages.Results) -> Shown:
            return self._shown(kept, self._protocol.observation(*kept), ended)

        most, tokenizer = self._limits.observation_tokens, self._renderer.tokenizer
        return passages.fit(results, most, tokenizer, show, lambda trial: len(trial.ids))

    def _shown(self, results: list[list[Document]], text: str, ended: bool) -> Shown:
        before, inner, after = self._renderer.framed(text, ended)
        # nothing joins the opened turn, as nothing joins the prompt
        if not self._protocol.observation_form.as_turn:
            frame, ids = self._renderer.encode([before, inner])
            return Shown(results, frame + ids, len(frame), len(frame) + len(ids))
        (ids,) = self._renderer.encode([before + inner + after])
        return Shown(
            results, ids, *passages.tokens(self._places(ids), len(before), len(before + inner))
        )

    def _places(self, ids: Sequence[int]) -> list[int]:
        return passages.ends(ids, self._renderer.decode)

    def _uncertainty(self, seat: Seat, turn: str, generation: Generation) -> float:
        """Mean entropy of the tokens of the query with which the turn ends; tool calls without tags
        count whole."""
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
