"""Crews: workers of one kind, by number. The one seam between the game and its transport.

A kind of worker is a Protocol. Its async methods are all that such a worker is asked for, and what
a call is allowed stands at the method (`call`). `crew[i]` is worker i as that Protocol, whether it
is an actor or an object in this process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from inspect import isawaitable, iscoroutinefunction
from itertools import pairwise
from typing import Any, Generic, ParamSpec, TypeVar

W = TypeVar("W")
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class CrewCall:
    """A method of a worker, and what its transport may do.

    `payload`: it returns `(payload, report)`, and the payload stays where it arose, by reference.
    `repeats`: a call that is lost is made again. `computes`: it needs the worker's GPU. `work`:
    what the timeline calls it, "" where it asks or tells something. `beside`: it is answered while
    the worker works."""

    name: str
    payload: bool = False
    repeats: bool = False
    computes: bool = False
    work: str = ""
    beside: bool = False


def call(**allowed: Any) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a method of a worker's Protocol with what `CrewCall` says; without this mark nothing is
    allowed."""

    def mark(method: Callable[P, T]) -> Callable[P, T]:
        setattr(method, "allowed", CrewCall(method.__name__, **allowed))  # noqa: B010
        return method

    return mark


@cache
def calls(kind: Any) -> dict[str, CrewCall]:
    """All calls of a Protocol by name."""
    methods: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        methods |= vars(base)
    allowed = {}
    for name, method in methods.items():
        if iscoroutinefunction(method):
            allowed[name] = getattr(method, "allowed", CrewCall(name))
    return allowed


class Crew(Generic[W]):
    """Workers 0..`size` - 1 of one kind."""

    def __init__(self, kind: type[W], name: str) -> None:
        self.kind, self.name = kind, name
        self.allowed = calls(kind)  # type: ignore[arg-type]  # a Protocol is hashable

    @property
    def size(self) -> int:
        """How many there are."""
        raise NotImplementedError

    def __getitem__(self, worker: int) -> W:
        return _Worker(self, worker)  # type: ignore[return-value]  # it has every call of the Protocol

    @property
    def first(self) -> W:
        """The one worker of a crew of one."""
        return self[0]

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        """The transport of one call. Raises Fault("<name>_died" | "<name>_deadline") when the
        worker fails."""
        raise NotImplementedError


class _Worker:
    """One worker of a crew: its calls go to the crew's transport."""

    def __init__(self, crew: Crew[Any], worker: int) -> None:
        self._crew, self._worker = crew, worker

    def __getattr__(self, name: str) -> Callable[..., Any]:
        allowed = self._crew.allowed.get(name)
        if allowed is None:
            raise AttributeError(f"{self._crew.kind.__name__} has no call {name}")
        self.__dict__[name] = partial(self._crew.perform, self._worker, allowed)
        return self.__dict__[name]


class LocalCrew(Crew[W]):
    """Workers in this process; a call runs at once. Payload references are the payloads
    themselves."""

    def __init__(self, kind: type[W], name: str, make: Callable[[int], Any], size: int = 1) -> None:
        super().__init__(kind, name)
        self.workers = [make(i) for i in range(size)]

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.workers)

    async def perform(self, worker: int, call: CrewCall, *args: Any) -> Any:
        """Run the method and return its value."""
        answer = getattr(self.workers[worker], call.name)(*args)
        return await answer if isawaitable(answer) else answer


class Around(Crew[W]):
    """A crew whose calls something happens around."""

    def __init__(self, inner: Crew[W]) -> None:
        super().__init__(inner.kind, inner.name)
        self.inner = inner

    @property
    def size(self) -> int:
        """Workers of the crew within."""
        return self.inner.size


def split(items: Sequence[T], parts: int) -> list[list[T]]:
    """Contiguous, nearly equal parts in order, never an empty one (law 7: the split depends on
    counts only)."""
    parts = min(parts, len(items))
    if parts == 0:
        return []
    bounds = [round(i * len(items) / parts) for i in range(parts + 1)]
    return [list(items[start:end]) for start, end in pairwise(bounds)]
