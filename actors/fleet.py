"""Search from inside a player, over the retriever actors of its run, and the start, joining and
leaving of these.

A search gives the answer of the whole index, or one that says which share of it was searched, or a
Fault (law 2). Players find replicas by their names (`actors.members`)."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from actors.crew import last_line
from actors.members import ENCODER, SHARD, Members, actor_name, living, names
from actors.retriever import EncoderActor, ShardActor, placed
from ssp.base.episode import Document
from ssp.base.errors import Fault, InputError, InvariantError, SspError, hold
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.search.hits import Hits, Knobs, Rows, Search, Vectors
from ssp.search.router import DOWN, Corpus, Router

INLINE = 100_000
"""Bytes above which an argument is handed over once for all shards, through the object store."""


class RayFleet:
    """`ssp.search.router.Fleet`: one corpus over shard actors, which have their members' patience
    for a call."""

    def __init__(self, members: Members, corpus: str, spans: Sequence[tuple[int, int]]) -> None:
        self._members, self._corpus, self.spans = members, corpus, list(spans)

    @property
    def up(self) -> dict[int, int]:
        """Living replicas of each shard, as this process knows them now."""
        return self._members.up

    def search(
        self, texts: Sequence[str], vectors: Vectors | None, k: int, knobs: Knobs, kind: str
    ) -> dict[int, list[Hits]]:
        """The rankings of every shard that answered in time. Raises what a shard's own code
        raised."""
        large = vectors is not None and vectors.nbytes > INLINE
        order = (self._corpus, list(texts), ray.put(vectors) if large else vectors, k, knobs, kind)
        return self._members.ask(
            "search", dict.fromkeys(range(len(self.spans)), order), self._members.deadline
        )

    def fetch(self, rows: Mapping[int, Rows]) -> dict[int, list[Document]]:
        """The documents of `rows`, of every shard that answered in time."""
        orders = {part: (self._corpus, some) for part, some in rows.items()}
        found = self._members.ask("fetch", orders, self._members.deadline)
        return {
            part: [Document(*pair) for pair in zip(*both, strict=True)]
            for part, both in found.items()
        }


class RayModels:
    """`ssp.search.shard.Encoder` of one corpus, and `Reranker`, over encoder actors."""

    def __init__(self, members: Members, corpus: str) -> None:
        self._members, self._corpus = members, corpus

    def encode_queries(self, texts: Sequence[str]) -> tuple[Vectors, dict[str, float]]:
        """`[n, d] float32`, and the actor's seconds by stage. Fault(retriever_down) when none
        answers in time."""
        vectors, seconds = self._ask("encode_queries", self._corpus, list(texts))
        return vectors, seconds

    def scores(
        self, queries: Sequence[str], documents: Sequence[Sequence[Document]]
    ) -> list[list[float]]:
        """One score a document. Fault(retriever_down) when none answers in time."""
        return self._ask("scores", list(queries), documents)

    def _ask(self, method: str, *args: Any) -> Any:
        found = self._members.ask(method, {0: args}, self._members.deadline)
        if not found:
            raise Fault(DOWN, "no encoder answered in time")
        return found[0]


@dataclass(frozen=True)
class FleetPart:
    """Retriever actors that hold the same: what their names begin with, class and arguments, and
    the seats in a plan (process and number) of those that a run starts with."""

    name: str
    actor: Any
    args: tuple[Any, ...]
    seats: list[tuple[str, int]]


def parts(cfg: Config) -> list[FleetPart]:
    """The shards and encoders of a run."""
    n, replicas = cfg.retriever.shards, range(cfg.retriever.replicas)
    shards = [
        FleetPart(
            f"{SHARD}-{k}", ShardActor, (cfg, k), [("retriever", i * n + k) for i in replicas]
        )
        for k in range(n)
    ]
    encoders = [("encoder", i) for i in range(corpora.encoders(cfg))]
    return [*shards, FleetPart(f"{ENCODER}-0", EncoderActor, (cfg,), encoders)]


def size(cfg: Config) -> int:
    """How many actors that is."""
    return sum(len(part.seats) for part in parts(cfg))


def start(cfg: Config, run: str) -> list[Any]:
    """Start the shards and encoders of `run`, and give their handles; who searches finds them by
    name."""
    named = [
        (f"{run}-{part.name}-{i}", part) for part in parts(cfg) for i in range(len(part.seats))
    ]
    return [part.actor.options(name=name, **placed(cfg)).remote(*part.args) for name, part in named]


def ready(actors: Sequence[Any], seconds: float) -> None:
    """Wait until they all answer. SspError with what one of them says that it cannot start for, or
    after `seconds`."""
    try:
        ray.get([actor.ping.remote() for actor in actors], timeout=seconds)
    except RayError as error:
        _, known, said = str(error).strip().rpartition(f"{SspError.__module__}.")
        late = isinstance(error, GetTimeoutError)
        why = f"no answer within {seconds:g} s" if late else said if known else last_line(error)
        raise SspError(f"a retriever actor did not start: {why}") from error


def stop(run: str, actors: Sequence[Any]) -> None:
    """End what `start` gave, and the replicas that joined."""
    for actor in actors:
        ray.kill(actor, no_restart=True)
    for name in names(run, SHARD):
        with suppress(ValueError):
            ray.kill(ray.get_actor(name), no_restart=True)


def connect_search(cfg: Config, run: str) -> Search:
    """The search that a player uses: the retriever actors of `run`, behind what is searched
    elsewhere. Waits until every shard has said what it holds, and for an encoder; SspError when one
    does not within placement.call_timeout."""
    return corpora.with_remote(cfg, connect_router(cfg, run))


def connect_router(cfg: Config, run: str) -> Router:
    """As `connect_search`, without what is searched elsewhere."""
    block, named = cfg.retriever, corpora.named(cfg)
    shards = Members(run, SHARD, block.shards, block.timeout)
    held = _first(shards, "describe", block.shards if named else 0, cfg.ray.start_timeout)
    models = None
    if corpora.encoders(cfg):
        models = Members(run, ENCODER, 1, block.timeout)
        _first(models, "ping", 1, cfg.ray.start_timeout)
    opened: dict[str, Corpus] = {}
    for name, path in named.items():
        parts = [part[name] for part in held]
        if len({(part.retriever, part.total, part.kind) for part in parts}) != 1:
            raise InvariantError(f"the shards of {name} were not made of one corpus: {parts}")
        options = corpora.options(block, parts[0].kind, path)
        fleet = RayFleet(shards, name, [part.span for part in parts])
        asked = None if models is None else RayModels(models, name)
        opened[name] = Corpus(parts[0].retriever, fleet, options, asked, asked)
    # Encoding, searching, fetching and reranking have a time-out each.
    return Router(opened, block.cache, 4 * block.timeout)


def join(cfg: Config, run: str, shard: int) -> str:
    """Add a replica of `shard` to a run that is under way, wait until it is ready, and return its
    name. `cfg`: the run's own, with absolute paths. InputError when there is no such run or shard;
    SspError when it does not start, and then it is gone. Whoever calls this may end: the replica
    stays until it leaves or the run ends."""
    space, there = _replicas(run, shard)
    name = next(
        name
        for i in range(len(there) + 1)
        if (name := actor_name(run, SHARD, shard, i)) not in there
    )
    start: Any = ShardActor
    actor = start.options(name=name, namespace=space, lifetime="detached", **placed(cfg)).remote(
        cfg, shard
    )
    try:
        ready([actor], cfg.ray.start_timeout)
    except SspError:
        ray.kill(actor, no_restart=True)
        raise
    return name


def leave(run: str, shard: int, replica: int) -> None:
    """Take a replica out of a run: it ends, and another one is asked what it has not answered.
    InputError when it is not there, or the only one of its shard."""
    space, there = _replicas(run, shard)
    name = actor_name(run, SHARD, shard, replica)
    rule, found = "a replica leaves a shard that has another one", f"{name}, of {', '.join(there)}"
    hold(
        name in there and len(there) >= 2, rule, found, "add one first (join), or name one of these"
    )
    ray.kill(ray.get_actor(name, namespace=space), no_restart=True)


def _replicas(run: str, shard: int) -> tuple[str, list[str]]:
    """Namespace and names of the replicas of one shard."""
    there = [(space, name) for space, name, part in living(run, SHARD) if part == shard]
    if len({space for space, _ in there}) != 1:
        found = f"{run}, shard {shard}: {', '.join(name for _, name in there) or 'none'}"
        raise InputError(
            "a replica belongs to a shard of one running run", found, "see ray list actors"
        )
    return there[0][0], [name for _, name in there]


def _first(members: Members, method: str, parts: int, seconds: float) -> list[Any]:
    """The first answers, of actors that may still be starting."""
    found = members.ask(method, {part: () for part in range(parts)}, time.monotonic() + seconds)
    if len(found) < parts:
        missing = ", ".join(str(part) for part in range(parts) if part not in found)
        said = (
            f"{members.kind} {missing} did not answer within placement.call_timeout={seconds:g} s"
        )
        raise SspError(f"{said}. Next: see its log in Ray's dashboard, or raise it")
    return list(found.values())
