"""Search from inside a player, over the retriever actors of its run, and how these start, join and
leave.

A search gives the answer of the whole index, or one that says which share of it was searched, or a
Fault (law 2). Players look up replicas by their names (`actors.members`)."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from actors.crew import last_line
from actors.members import ENCODER, SHARD, Members, actor_name, living, names
from actors.retriever import EncoderActor, ShardActor, placed
from ssp.base.episode import Document
from ssp.base.errors import Fault, InvariantError, SspError, hold
from ssp.base.values import Seconds
from ssp.config.schema import Config
from ssp.game import corpora
from ssp.search.hits import Hits, Knobs, Rows, Search, Vectors
from ssp.search.router import DOWN, Corpus, Replies, Router

INLINE = 100_000
"""An argument of more bytes goes to all shards through the object store, once."""
SPARE = 100
"""Documents of a search that may come along though no answer shows them: of S shards that give k a
query, all but k. Read from memory, some 400 cost what a second call of each shard does; from a disk,
fewer."""


class RayFleet:
    """`ssp.search.router.Fleet`: one corpus over shard actors."""

    def __init__(self, members: Members, corpus: str, spans: Sequence[tuple[int, int]]) -> None:
        self._members = members
        self._corpus = corpus
        self.spans = list(spans)

    @property
    def up(self) -> dict[int, int]:
        """Living replicas of each shard, as this process knows them now."""
        return self._members.up

    def search(
        self,
        texts: Sequence[str],
        vectors: Vectors | None,
        k: int,
        knobs: Knobs,
        kind: str,
        final: bool,
    ) -> Replies:
        """The rankings of every shard that answered in time, and of a small `final` search the
        documents, by row. Raises what a shard's own code raised."""
        given: Any = vectors
        if vectors is not None and vectors.nbytes > INLINE:
            given = ray.put(vectors)
        carry = final and (len(self.spans) - 1) * len(texts) * k <= SPARE
        args = (self._corpus, list(texts), given, k, knobs, kind, carry)
        orders = dict.fromkeys(range(len(self.spans)), args)
        answers = self._members.ask("search", orders, self._members.deadline)

        replies: dict[int, list[Hits]] = {}
        documents: dict[int, Document] = {}
        for part, (rankings, columns) in answers.items():
            replies[part] = rankings
            if carry:
                rows = rankings[0].named().tolist()
                documents.update(zip(rows, map(Document, *columns), strict=True))
        return replies, documents

    def fetch(self, rows: Mapping[int, Rows]) -> dict[int, list[Document]]:
        """The documents of `rows`, from every shard that answered in time."""
        orders = {part: (self._corpus, wanted) for part, wanted in rows.items()}
        answers = self._members.ask("fetch", orders, self._members.deadline)
        return {part: list(map(Document, *columns)) for part, columns in answers.items()}


class RayModels:
    """`ssp.search.shard.Encoder` of one corpus, and `Reranker`, over encoder actors."""

    def __init__(self, members: Members, corpus: str) -> None:
        self._members = members
        self._corpus = corpus

    def encode_queries(self, texts: Sequence[str]) -> tuple[Vectors, Seconds]:
        """Vectors, float32 [n, d], and the actor's seconds by stage. Fault `retriever_down` when
        none answers in time."""
        vectors, seconds = self._ask("encode_queries", self._corpus, list(texts))
        return vectors, seconds

    def scores(
        self, queries: Sequence[str], documents: Sequence[Sequence[Document]]
    ) -> list[list[float]]:
        """One score a document. Fault `retriever_down` when none answers in time."""
        return self._ask("scores", list(queries), documents)

    def _ask(self, method: str, *args: Any) -> Any:
        answers = self._members.ask(method, {0: args}, self._members.deadline)
        if not answers:
            raise Fault(DOWN, "no encoder answered in time")
        return answers[0]


@dataclass(frozen=True)
class FleetPart:
    """Retriever actors that hold the same. `name`: how their names begin; `actor`: their class;
    `seats`: places in a plan (process and number) of those that a run starts with."""

    name: str
    actor: Any
    args: tuple[Any, ...]
    seats: list[tuple[str, int]]


def parts(cfg: Config) -> list[FleetPart]:
    """The shards and encoders of a run."""
    shards = cfg.retriever.shards
    replicas = cfg.retriever.replicas
    fleet = []
    for shard in range(shards):
        seats = [("retriever", replica * shards + shard) for replica in range(replicas)]
        fleet.append(FleetPart(f"{SHARD}-{shard}", ShardActor, (cfg, shard), seats))
    encoders = [("encoder", i) for i in range(corpora.encoders(cfg))]
    return [*fleet, FleetPart(f"{ENCODER}-0", EncoderActor, (cfg,), encoders)]


def size(cfg: Config) -> int:
    """The number of shard and encoder actors of a run."""
    return sum(len(part.seats) for part in parts(cfg))


def start(cfg: Config, run: str) -> list[Any]:
    """Start the shards and encoders of `run`; returns their handles. Who searches looks them up by
    name."""
    handles = []
    for part in parts(cfg):
        for i in range(len(part.seats)):
            actor = part.actor.options(name=f"{run}-{part.name}-{i}", **placed(cfg))
            handles.append(actor.remote(*part.args))
    return handles


def ready(actors: Sequence[Any], seconds: float) -> None:
    """Wait until they all answer. SspError after `seconds`, or with what one of them says that it
    cannot start for."""
    try:
        ray.get([actor.ping.remote() for actor in actors], timeout=seconds)
    except RayError as error:
        _, ours, said = str(error).strip().rpartition(f"{SspError.__module__}.")
        if isinstance(error, GetTimeoutError):
            why = f"no answer within {seconds:g} s"
        else:
            why = said if ours else last_line(error)
        raise SspError(f"a retriever actor did not start: {why}") from error


def stop(run: str, actors: Sequence[Any]) -> None:
    """End the actors that `start` gave, and the replicas that joined."""
    for actor in actors:
        ray.kill(actor, no_restart=True)
    for name in names(run, SHARD):
        with suppress(ValueError):
            ray.kill(ray.get_actor(name), no_restart=True)


def connect_search(cfg: Config, run: str) -> Search:
    """The search that a player uses: the retriever actors of `run`, and what is searched elsewhere.
    Waits until every shard has said what it holds, and for an encoder; SspError when one does not
    answer within placement.call_timeout."""
    return corpora.with_remote(cfg, connect_router(cfg, run))


def connect_router(cfg: Config, run: str) -> Router:
    """As `connect_search`, without what is searched elsewhere."""
    block = cfg.retriever
    named = corpora.named(cfg)
    shards = Members(run, SHARD, block.shards, block.timeout)
    descriptions = _first(shards, "describe", block.shards if named else 0, cfg.ray.start_timeout)
    encoders = None
    if corpora.encoders(cfg):
        encoders = Members(run, ENCODER, 1, block.timeout)
        _first(encoders, "ping", 1, cfg.ray.start_timeout)
    routes = {}
    for name, path in named.items():
        parts = [description[name] for description in descriptions]
        facts = {(part.retriever, part.total, part.kind) for part in parts}
        if len(facts) != 1:
            raise InvariantError(f"the shards of {name} were not made of one corpus: {parts}")
        retriever, _, kind = facts.pop()
        options = corpora.options(block, kind, path)
        fleet = RayFleet(shards, name, [part.span for part in parts])
        models = None if encoders is None else RayModels(encoders, name)
        routes[name] = Corpus(retriever, fleet, options, models, models)
    # Encoding, searching, fetching and reranking have a time-out each.
    return Router(routes, block.cache, 4 * block.timeout)


def join(cfg: Config, run: str, shard: int) -> str:
    """Add a replica of `shard` to a run that is under way, wait until it is ready, and return its
    name. `cfg`: the run's own, with absolute paths. InputError when there is no such run or shard;
    SspError when it does not start, and then it is gone. The replica stays until it leaves or the
    run ends, also when the process that calls this ends."""
    namespace, taken = _replicas(run, shard)
    names = (actor_name(run, SHARD, shard, i) for i in count())
    name = next(name for name in names if name not in taken)
    start: Any = ShardActor
    named = start.options(name=name, namespace=namespace, lifetime="detached", **placed(cfg))
    actor = named.remote(cfg, shard)
    try:
        ready([actor], cfg.ray.start_timeout)
    except SspError:
        ray.kill(actor, no_restart=True)
        raise
    return name


def leave(run: str, shard: int, replica: int) -> None:
    """Take a replica out of a run: it ends, and another one is asked what it has not answered.
    InputError when it is not there, or the only one of its shard."""
    namespace, there = _replicas(run, shard)
    name = actor_name(run, SHARD, shard, replica)
    rule = "a replica leaves a shard that has another one"
    step = "add one first (join), or name one of these"
    stays = name in there and len(there) >= 2
    hold(stays, rule, f"{name}, of {', '.join(there)}", step)
    ray.kill(ray.get_actor(name, namespace=namespace), no_restart=True)


def _replicas(run: str, shard: int) -> tuple[str, list[str]]:
    """Namespace and names of the replicas of one shard."""
    replicas = [(space, name) for space, name, part in living(run, SHARD) if part == shard]
    namespaces = {space for space, _ in replicas}
    there = [name for _, name in replicas]
    rule = "a replica belongs to a shard of one running run"
    what = f"{run}, shard {shard}: {', '.join(there) or 'none'}"
    hold(len(namespaces) == 1, rule, what, "see ray list actors")
    return namespaces.pop(), there


def _first(members: Members, method: str, parts: int, seconds: float) -> list[Any]:
    """The first answers of actors that may still be starting, one a part. SspError after
    `seconds`."""
    orders: dict[int, tuple[Any, ...]] = dict.fromkeys(range(parts), ())
    answers = members.ask(method, orders, time.monotonic() + seconds)
    missing = ", ".join(str(part) for part in orders if part not in answers)
    if missing:
        late = (
            f"{members.kind} {missing} did not answer within placement.call_timeout={seconds:g} s"
        )
        raise SspError(f"{late}. Next: see its log in Ray's dashboard, or raise it")
    return list(answers.values())
