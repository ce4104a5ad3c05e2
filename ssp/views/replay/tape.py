"""The rollout along a record: an engine, a search and a renderer that give what is in the log.
Turns end where the rollout's own stops and limits end them, and observations are framed and encoded
anew: ids, mask, drops and the end are made again."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ssp.base.episode import Document, Episode, Task
from ssp.base.errors import Fault
from ssp.engines.base import Generation, Sampling
from ssp.game.protocols.calls import TOOL, Call
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, rollout
from ssp.game.rollout.tools import ToolRequest
from ssp.search.known import MISSING


def along(record: Episode, task: Task, renderer: Renderer, settings: Settings) -> Episode:
    """The episode that the rollout makes of `task` when the policy writes and the search finds what
    is on record. A search that is not on record ends it as `tokens` when the record ended so (what
    it found did not fit), else void."""
    tape = _Tape(record)
    (episode,), _ = rollout(
        tape, _Framed(renderer, tape), tape, [task], replace(settings, tools=tape)
    )
    if episode.cause == MISSING and record.stopped == "tokens":
        episode.outcome = None
        episode.cause = ""
        episode.stopped = "tokens"
    return episode


class _Tape:
    """A lock-step engine, a search and tools over one episode's record. `at`: the token that comes
    next."""

    def __init__(self, record: Episode) -> None:
        self.version = record.log.version_span[1]
        self.log = record.log
        self._record = record
        self.at = self._asked = self._answered = 0

    def load(self, weights: object, version: int, keep: bool = False) -> None:
        """It has none."""

    def open(self, seeds: list[int]) -> list[int]:
        """One slot, also where the context is read anew: the log goes on."""
        return [0 for _ in seeds]

    def close(self, slots: list[int]) -> None:
        """Nothing to forget."""

    def step(
        self, slots: list[int], pending: list[list[int]], samplings: Sampling
    ) -> list[Generation]:
        """The next turn of the log, up to what ends a turn."""
        log = self.log
        words = samplings.stop_words
        start = self.at = self.unread
        self._asked = self._answered
        end = min(len(log), start + samplings.max_tokens)
        stopped = False
        while not stopped and self.at < end and log.versions[self.at] >= 0:
            last = log.ids[self.at]
            self.at += 1
            stopped = last in samplings.stop_ids
            if words is not None and words.may_end(last):
                begin = max(start, self.at - words.window)
                stopped = stopped or words.hit(log.ids[begin : self.at])
        drawn = slice(start, self.at)
        logprobs = log.logprobs[drawn]
        versions = log.versions[drawn]
        return [Generation(log.ids[drawn], logprobs, self.version, stopped, versions)]

    @property
    def unread(self) -> int:
        """Where the policy's next token stands, or the log's end."""
        at = self.at
        while at < len(self.log) and self.log.versions[at] < 0:
            at += 1
        return at

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        """The documents that were shown, by id. Fault `not_recorded` past the record's end."""
        places = []
        for query in queries:
            place = next(self._places(Call(TOOL, query)), None)
            if place is None:
                raise Fault(MISSING, f"the search for {query!r}")
            places.append(place)
        return [self._documents(place) for place in places]

    def run(self, asked: Sequence[ToolRequest]) -> list[list[Document] | Fault]:
        """The documents that each call of a tool gave, by id: none where the tool complained. A
        Fault stands for a call that is not on record."""
        # the same call twice takes its places one after the other
        places = {one.call: self._places(one.call) for one in asked}
        answers: list[list[Document] | Fault] = []
        for place in [next(places[one.call], None) for one in asked]:
            answers.append(Fault(MISSING) if place is None else self._documents(place))
        return answers

    def done(self, episode: str) -> None:
        """Nothing to forget."""

    def _places(self, call: Call) -> Iterator[int]:
        """Where calls equal to this one stand on record, from the turn's beginning on."""
        calls = self._record.calls
        return (place for place in range(self._asked, len(calls)) if calls[place] == call)

    def _documents(self, place: int) -> list[Document]:
        record = self._record
        self._answered = max(self._answered, place + 1)
        begin = sum(record.hits[:place])
        return record.documents[begin : begin + record.hits[place]]


class _Framed(Renderer):
    """A renderer whose observations are the log's own text: only the ids of their documents are
    known."""

    def __init__(self, renderer: Renderer, tape: _Tape) -> None:
        self.__dict__ |= renderer.__dict__
        self._tape = tape

    def framed(self, text: str, ended: bool) -> tuple[str, str, str]:
        """As the renderer frames `text`; an observation is the log's own."""
        before, shown, after = super().framed(text, ended)
        if text and text in [self.retry(role) for role in self.protocol.roles]:
            return before, shown, after
        logged = self.decode(self._tape.log.ids[self._tape.at : self._tape.unread])
        return before, logged.removeprefix(before).removesuffix(after), after
