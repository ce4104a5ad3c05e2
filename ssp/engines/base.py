"""What an engine is: slots that remember, segments that are sampled, versions on every token.

Promises, for every implementation: a generation carries exactly the ids that were sampled, their
log-probs, and the version that drew each; `load` forgets every slot, so that no cache outlives its
version (law 1), except in flight. Refuses to know text, tags, roles, rewards."""

from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Protocol, runtime_checkable

import numpy as np

from ssp.base.errors import Fault, InvariantError


class StopWords:
    """Strings that end a segment wherever the borders of tokens lie; the token that completes one
    is the last. `decode`: ids → text. A stop string lies in at most `window` tokens: each token has
    at least one byte."""

    def __init__(self, strings: Sequence[str], decode: Callable[[Sequence[int]], str]) -> None:
        self.strings = tuple(strings)
        self._decode = decode
        self.window = max(len(text.encode()) for text in strings)
        self._endings = {text[-1:] for text in strings}
        self._may_end: dict[int, bool] = {}

    def may_end(self, id: int) -> bool:
        """False for an id that can complete no stop string: its own text has none of their last
        characters."""
        if id not in self._may_end:
            text = self._decode([id])
            # not plain: part of a character, or of a space that joining adds
            plain = text.strip() and "\ufffd" not in text
            ends = any(ending.isspace() or ending in text for ending in self._endings)
            self._may_end[id] = ends or not plain
        return self._may_end[id]

    def hit(self, ids: Sequence[int]) -> bool:
        """True when a stop string ends in the last of the ids sampled so far."""
        text = self._decode(ids[-self.window :])
        return any(word in text for word in self.strings)


def most_rows(n: int) -> int:
    """The number of rows with which a GPU decodes `n`: one of few, since each is recorded once."""
    return max(16, 1 << (n - 1).bit_length())


@dataclass(frozen=True)
class Sampling:
    """How one segment is drawn: temperature (0 = greedy), the most new tokens, and the ids and
    strings that end it."""

    temperature: float
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    stop_words: StopWords | None = None


@dataclass
class Generation:
    """One sampled segment, with its stop id. `stopped` is False when it hit `max_tokens` or the end
    of the context. `logprobs` are natural logs under the full vocabulary at the sampling
    temperature (greedy: at temperature 1). `version` drew the last token. `versions` has one a
    token, and only where weights changed in the middle (`Engine.load` with `keep`)."""

    ids: list[int]
    logprobs: list[float]
    version: int
    stopped: bool
    versions: list[int] | None = None


class Engine(Protocol):
    """Generates for many slots in lock step. Not thread-safe: one caller at a time."""

    version: int

    def load(self, weights: dict[str, np.ndarray], version: int, keep: bool = False) -> None:
        """Replace the weights (HF parameter names, float32) and forget every slot; later steps on
        those are errors. With `keep`, which live engines take (in-flight mode), slots and turns go
        on with the keys and values that they have; `version` draws every token from here on, and no
        slot that opens later sees these keys."""

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots; what a slot draws depends on its seed, its ids and the weights only."""

    def step(
        self, slots: list[int], pending: list[list[int]], samplings: Sampling
    ) -> list[Generation]:
        """Append `pending[i]` to slot i, then sample until a stop id or `max_tokens`; one
        `Sampling` for all slots."""

    def close(self, slots: list[int]) -> None:
        """Forget slots, and abort their turns: the futures raise Fault `aborted`. Forgotten or
        closed ones are fine."""


@runtime_checkable
class FreeEngine(Engine, Protocol):
    """An engine that takes each slot's turn by itself (a server, continuous batching)."""

    def submit(self, slot: int, pending: list[int], sampling: Sampling) -> Future[Generation]:
        """`step` for one slot, at once; the future gives its generation, or raises Fault."""

    def step(
        self, slots: list[int], pending: list[list[int]], samplings: Sampling
    ) -> list[Generation]:
        """One turn of each slot, all at once; raises the first error."""
        check_step(slots, pending, slots)
        turns = zip(slots, pending, strict=True)
        futures = [self.submit(slot, ids, samplings) for slot, ids in turns]
        return [future.result() for future in futures]


@runtime_checkable
class LiveEngine(FreeEngine, Protocol):
    """A free-running engine of our own: its weights can be replaced in the middle of a turn (`load`
    with `keep`)."""

    def stop(self) -> None:
        """End the engine's thread and give its memory back; turns under way are aborted."""


@runtime_checkable
class Sleeper(Protocol):
    """An engine that shares its GPUs with a learner."""

    def sleep(self) -> None:
        """Give the memory back; no turn may be under way. Fault `engine_awake` when too much of it
        stays taken."""

    def wake(self) -> None:
        """Take it again: weights as they were, no cache."""


@dataclass
class Slot:
    """What a slot has read and written, its seed, and how many turns it has had."""

    seed: int
    ids: list[int] = field(default_factory=list)
    turns: int = 0


class Slots:
    """Slots by number."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._numbers = count()

    def open(self, seeds: list[int]) -> list[int]:
        """New empty slots, one a seed."""
        fresh = {next(self._numbers): Slot(seed) for seed in seeds}
        self._slots.update(fresh)
        return list(fresh)

    def close(self, slots: list[int]) -> None:
        """Forget slots."""
        for slot in slots:
            self._slots.pop(slot, None)


def drawn_by(marks: Sequence[tuple[int, int]], tokens: int) -> tuple[int, list[int] | None]:
    """`Generation.version` and `versions` of a turn of `tokens` tokens. `marks`: (tokens drawn
    before, version that draws from there on), the first of them (0, version)."""
    versions = list[int]()
    for (start, version), (end, _) in pairwise([*marks, (tokens, 0)]):
        versions += [version] * (end - start)
    last = versions[-1] if versions else marks[-1][1]
    return last, versions if len(set(versions)) > 1 else None


def check_step(
    slots: Sequence[int], pending: Sequence[Sequence[int]], known: Container[int]
) -> None:
    """InvariantError unless slots are distinct and among the open ones, `known`, with one pending
    list each."""
    distinct = len(set(slots))
    if not len(pending) == len(slots) == distinct:
        counts = f"{len(slots)} slots ({distinct} distinct), {len(pending)} pending lists"
        raise InvariantError(counts)
    gone = [slot for slot in slots if slot not in known]
    if gone:
        raise InvariantError(f"slots {gone[:5]} are not open: closed, or forgotten by load()")


def once(
    engine: Engine, seeds: Sequence[int], prompts: Sequence[list[int]], sampling: Sampling
) -> list[Generation | Fault]:
    """One turn of a new slot for each prompt, or the fault that hit it. A fault of a lock-step
    engine hits all of them."""
    slots = engine.open(list(seeds))
    try:
        if not isinstance(engine, FreeEngine):
            return list(engine.step(slots, list(prompts), sampling)) if slots else []
        turns = zip(slots, prompts, strict=True)
        futures = [engine.submit(slot, ids, sampling) for slot, ids in turns]
        ends = [(future, future.exception()) for future in futures]
        return [error if isinstance(error, Fault) else future.result() for future, error in ends]
    except Fault as fault:
        return [fault] * len(slots)
    finally:
        engine.close(slots)
