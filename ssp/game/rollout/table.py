"""What a turn does to an episode: it is read, answered, and kept within its limits. The log holds
the ids that were sampled, and each observation encoded once (law 1). A fault voids the episodes
that it hits, and no other (law 2)."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ssp.base.episode import STAGE, Document, Episode, Task
from ssp.base.errors import Fault
from ssp.base.seeds import derive
from ssp.base.tokenlog import Kind, TokenLog
from ssp.engines.base import Engine, Generation, Sampling
from ssp.game.protocols.calls import TOOL, Call
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import passages
from ssp.game.rollout.settings import Settings, Source, sampled_entropy
from ssp.game.rollout.tools import ToolRequest, note
from ssp.search.hits import Answers, Search


@dataclass
class Seat:
    """One running episode, over once `episode.stopped` says why.

    `slot`: the engine's. `pending`: ids that the engine has not read yet. `turns`: turns with calls
    and invalid ones so far. `begin`: where the last turn begins in the log. `asked`: the calls that
    wait for an answer. `ended`: whether the last turn closed with an end of turn. `forgot`: whether
    thoughts of it left the context. `last`: whether the next turn was told to be the last one.
    `seen` and `read_to`: see `ToolRequest`."""

    task: Task
    episode: Episode
    slot: int
    pending: list[int]
    source: Source
    turns: int = 0
    begin: int = 0
    asked: tuple[Call, ...] = ()
    ended: bool = False
    forgot: bool = False
    last: bool = False
    seen: dict[str, Document] = field(default_factory=dict)
    read_to: dict[str, int] = field(default_factory=dict)


Found = list[list[list[Document]] | Fault]
"""For each seat the documents that answer its calls, or the fault that hit one of them."""


@dataclass(frozen=True)
class Shown:
    """An observation as it goes into a log. `results`: the documents of each call. Of the ids,
    [`begin`, `end`) are the observation's own; the others frame it, and stay when it is dropped."""

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
        self._stops = {
            searching: renderer.stops(self._prompt, searching) for searching in (True, False)
        }
        self._last = ""
        if self._limits.overflow == "answer":
            self._last = renderer.last(self._prompt)
        self._told = len(renderer.encode([self._last])[0])
        # A search adds the seconds of its stages, under STAGE.
        self.seconds = {"generate": 0.0, "search": 0.0}
        self._adding = threading.Lock()
        prompts = renderer.encode([renderer.prompt(task.asked_as, task.fields) for task in tasks])
        texts = renderer.decode_all(prompts)
        slots = engine.open([task.seed for task in tasks])
        self.seats = []
        for task, slot, ids, text in zip(tasks, slots, prompts, texts, strict=True):
            episode = Episode(task.id, task.game, task.role, task.attempt, seed=task.seed)
            episode.response_at = len(text) - len(renderer.opening)
            episode.log.append(Kind.PROMPT, ids)
            seat = Seat(task, episode, slot, ids, Source(settings.source))
            self.seats.append(seat)

    def sampling(self, seat: Seat) -> Sampling:
        """How the seat's next turn is drawn."""
        ids, words = self._stops[seat.source.searching]
        return Sampling(self._settings.temperature, self._limits.turn_tokens, ids, words)

    def may_go_on(self, seat: Seat) -> bool:
        """Whether the episode is not over and its next turn fits. With overflow=drop the oldest
        observations make room."""
        if seat.episode.stopped:
            self._settings.tools.done(seat.task.id)
            return False
        log = seat.episode.log
        most = self._limits.total_tokens - self._limits.turn_tokens
        length = _length(log)
        if length > most and self._limits.overflow == "drop":
            dropped = {start for _, start, _ in log.drops}
            for kind, start, end in log.stretches():
                if length > most and kind is Kind.OBSERVATION and start not in dropped:
                    log.drop(start, end)
                    length -= end - start
            self._reopen(seat)
        if length > most:
            seat.episode.stopped = "tokens"
        return length <= most

    def _reopen(self, seat: Seat) -> None:
        """Let the engine read the context anew."""
        log = seat.episode.log
        self.engine.close([seat.slot])
        (seat.slot,) = self.engine.open([derive(seat.task.seed, "overflow", len(log.drops))])
        seat.pending = log.context()

    def read(self, seat: Seat, generation: Generation) -> None:
        """Log a turn and read what it asks for: `seat.asked` from now on, unless the episode is
        over."""
        episode = seat.episode
        begin = len(episode.log)
        drawn_by = generation.version if generation.versions is None else generation.versions
        episode.log.append_model(generation.ids, generation.logprobs, drawn_by)
        turn = self._renderer.decode(generation.ids)
        seat.pending, seat.asked, seat.begin = [], (), begin
        seat.ended = bool(generation.ids) and generation.ids[-1] in self._renderer.ends
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
            self._invalid(seat, turn)  # of self-search, a search is
        elif seat.last or seat.turns >= self._limits.searches:
            episode.stopped = "tokens" if seat.last else "turns"
        else:
            seat.turns += 1
            if not searches or self._goes_out(seat.source, turn, generation):
                seat.asked = action.calls
                self._forget(seat, turn)

    def _invalid(self, seat: Seat, turn: str) -> None:
        """End the episode for a turn that neither searches nor hands in, or tell it so."""
        episode = seat.episode
        episode.invalid += 1
        if episode.invalid > self._limits.retries or not self._protocol.retry:
            episode.stopped = "malformed"
        elif seat.last or seat.turns >= self._limits.searches:
            episode.stopped = "tokens" if seat.last else "turns"
        else:
            seat.turns += 1
            self._forget(seat, turn)
            shown = self._shown([], self._renderer.retry(self._prompt), seat.ended)
            if self._closes(seat, shown):
                shown = self._shown([], self._last, seat.ended)
            self._show(seat, shown)

    def find(self, seats: Sequence[Seat]) -> Found:
        """Answer what `seats` ask, by one search a corpus, and all calls of other tools at once. It
        changes no episode, and is safe in a thread of its own."""
        began = time.perf_counter()
        queries: dict[str, dict[str, None]] = {}
        others = []
        for seat in seats:
            of_corpus = queries.setdefault(seat.task.corpus, {})
            for number, call in enumerate(seat.asked, len(seat.episode.queries)):
                if call.tool == TOOL:
                    of_corpus[call.text] = None
                else:
                    place = f"{seat.task.game}/{seat.task.role}/{seat.task.seed}/{number}"
                    kept = seat.seen, seat.read_to
                    others.append(ToolRequest(call, place, *kept, seat.task.id))
        told = iter(self._settings.tools.run(others) if others else ())
        hits = {corpus: self._searched(list(unique), corpus) for corpus, unique in queries.items()}

        answers = Found()
        for seat in seats:
            searched = hits[seat.task.corpus]
            fault: Fault | None = None
            results = []
            for call in seat.asked:
                if call.tool != TOOL:
                    result = next(told)
                elif isinstance(searched, Fault):
                    result = searched
                else:
                    result = searched[call.text]
                if not isinstance(result, Fault):
                    results.append(result)
                elif fault is None:
                    fault = result
            answers.append(results if fault is None else fault)
        with self._adding:
            self.seconds["search"] += time.perf_counter() - began
        return answers

    def _searched(self, queries: list[str], corpus: str) -> dict[str, list[Document]] | Fault:
        """Query → its documents, of one search."""
        if not queries:
            return {}
        try:
            answers = self._search.search(queries, self._settings.topk, corpus)
        except Fault as fault:
            return fault
        if isinstance(answers, Answers):
            with self._adding:
                for stage, seconds in answers.seconds.items():
                    self.seconds[STAGE + stage] = self.seconds.get(STAGE + stage, 0.0) + seconds
        return dict(zip(queries, answers, strict=True))

    def show(self, seats: Sequence[Seat], answered: Found) -> None:
        """Log the answers to each seat's calls."""
        fitted: dict[tuple[str, tuple[Call, ...], bool], Shown] = {}
        for seat, answers in zip(seats, answered, strict=True):
            asked = seat.asked
            seat.asked = ()
            if isinstance(answers, Fault):
                seat.episode.void(answers)
                continue
            # The attempts at one question often search for the same.
            key = seat.task.corpus, asked, seat.ended
            shared = all(call.tool == TOOL for call in asked)
            if not shared or key not in fitted:
                fitted[key] = self._fit(answers, seat.ended)
            shown = fitted[key]
            if self._closes(seat, shown):
                shown = self._closing(seat, answers)
            if not self._show(seat, shown):
                continue
            for call, documents, kept in zip(asked, answers, shown.results, strict=True):
                if self._protocol.offers:
                    seat.episode.tools.append(call.tool)
                note(seat.episode, call, documents, kept, seat.seen, seat.read_to)

    def _show(self, seat: Seat, shown: Shown) -> bool:
        """Log an observation; False, and the end of the episode, when it does not fit."""
        log = seat.episode.log
        seat.pending = shown.ids
        length = _length(log) + len(shown.ids)
        if self._limits.overflow in ("stop", "skip") and length > self._limits.total_tokens:
            seat.episode.stopped = "tokens"
            return False
        log.append(Kind.TEMPLATE, shown.ids[: shown.begin])
        log.append(Kind.OBSERVATION, shown.ids[shown.begin : shown.end])
        log.append(Kind.TEMPLATE, shown.ids[shown.end :])
        if seat.forgot:
            self._reopen(seat)
        return True

    def _closes(self, seat: Seat, shown: Shown) -> bool:
        """Whether behind `shown` only one more turn fits, which overflow=answer tells the
        policy."""
        if not self._last:
            return False
        room = self._limits.total_tokens - _length(seat.episode.log) - len(shown.ids)
        seat.last = room < 2 * self._limits.turn_tokens + self._told
        return seat.last

    def _closing(self, seat: Seat, answers: list[list[Document]]) -> Shown:
        """The observation before the last turn: with the answers where they fit, else without."""
        shown = self._fit(answers, seat.ended, self._last)
        room = self._limits.total_tokens - _length(seat.episode.log) - len(shown.ids)
        if room < self._limits.turn_tokens:
            shown = self._shown([[] for _ in answers], self._last, seat.ended)
        return shown

    def _forget(self, seat: Seat, turn: str) -> None:
        """Leave out of the context what the layout no longer shows of `turn`, the last one."""
        seat.forgot = False
        if self._renderer.forgets is None:
            return
        before, _ = self._renderer.forgets
        log = seat.episode.log
        places = self._places(log.ids[seat.begin :])
        _, gone = passages.tokens(places, 0, self._renderer.forgotten(turn))
        if before + gone:
            log.forget(seat.begin - before, seat.begin + gone)
            seat.forgot = True

    def _fit(self, results: list[list[Document]], ended: bool, last: str = "") -> Shown:
        """The observation of as much of `results` as fits into `observation_tokens`, their frame
        included; behind it `last`."""

        def show(kept: passages.Results) -> Shown:
            text = self._protocol.observation(*kept)
            if last:
                text = f"{text.rstrip()}\n\n{last}\n"
            return self._shown(kept, text, ended)

        most = self._limits.observation_tokens + (self._told if last else 0)
        tokenizer = self._renderer.tokenizer
        return passages.fit(results, most, tokenizer, show, lambda trial: len(trial.ids))

    def _shown(self, results: list[list[Document]], text: str, ended: bool) -> Shown:
        before, inner, after = self._renderer.framed(text, ended)
        if self._protocol.observation_form.as_turn:
            (ids,) = self._renderer.encode([before + inner + after])
            begin = len(before)
            own = passages.tokens(self._places(ids), begin, begin + len(inner))
            return Shown(results, ids, *own)
        # No token joins the text to the opened turn, as none joins the prompt to it.
        frame, ids = self._renderer.encode([before, inner])
        ids = frame + ids
        return Shown(results, ids, len(frame), len(ids))

    def _places(self, ids: Sequence[int]) -> list[int]:
        return passages.ends(ids, self._renderer.decode)

    def _goes_out(self, source: Source, turn: str, generation: Generation) -> bool:
        """Whether the searches with which `turn` ends are answered. Where the source wants to know,
        it is told the entropy of the last query's tokens; of a call without tags all tokens
        count."""
        if not source.measures:
            return source.real()
        search = self._protocol.last_search(turn)
        begin, end = search.inner if search is not None else (0, len(turn))
        first, last = passages.tokens(self._places(generation.ids), begin, end)
        return source.real(sampled_entropy(generation.logprobs[first:last]))

    def close(self) -> None:
        """Let the tools forget, and give every slot back."""
        for seat in self.seats:
            self._settings.tools.done(seat.task.id)
        self.engine.close([seat.slot for seat in self.seats])

    def episodes(self) -> list[Episode]:
        """The episodes with their texts, in the order of the tasks."""
        episodes = [seat.episode for seat in self.seats]
        texts = self._renderer.decode_all([episode.log.ids for episode in episodes])
        for episode, text in zip(episodes, texts, strict=True):
            episode.text = text
        return episodes


def _length(log: TokenLog) -> int:
    """Tokens of the context that there is."""
    return len(log.context()) if log.drops else len(log)
