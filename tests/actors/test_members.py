"""The replicas of shards as one process sees them, over actors that are made up: each may start, leave, hang, die."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError
from trainruns import until

from actors import members as module
from actors.members import SHARD, Members, actor_name

PARTS, PATIENCE = 2, 0.2


class Ref:
    """An object that comes, or not."""

    def __init__(self, value: Any = None, error: Exception | None = None, comes: bool = True) -> None:
        self._future: futures.Future[Any] = futures.Future()
        if error is not None:
            self._future.set_exception(error)
        elif comes:
            self._future.set_result(value)

    def future(self) -> Any:
        return self._future


class Actor:
    """One replica. `how`: up, hung (nothing is answered), down (calls are lost), dead."""

    def __init__(self, name: str) -> None:
        self.name, self.how, self.killed = name, "up", 0

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *args: self._answer())

    def _answer(self) -> Ref:
        if self.how == "dead":
            return Ref(error=ActorDiedError())
        if self.how == "down":
            return Ref(error=RayError("it restarts"))
        return Ref(self.name, comes=self.how != "hung")


class FakeRay:
    def __init__(self) -> None:
        self.actors: dict[str, Actor] = {}
        self.util = SimpleNamespace(list_named_actors=self._named)

    def _named(self, all_namespaces: bool) -> list[dict[str, str]]:
        return [{"name": name, "namespace": "here"} for name in list(self.actors)]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(namespace="here")

    def get_actor(self, name: str) -> Actor:
        if name not in self.actors:
            raise ValueError(name)
        return self.actors[name]

    def get(self, ref: Ref, timeout: float) -> Any:
        try:
            return ref.future().result(timeout)
        except futures.TimeoutError:
            raise GetTimeoutError from None

    def wait(self, refs: list[Ref], num_returns: int, timeout: float) -> tuple[list[Ref], list[Ref]]:
        futures.wait([ref.future() for ref in refs], timeout, futures.FIRST_COMPLETED)
        done = [ref for ref in refs if ref.future().done()][:num_returns]
        return done, [ref for ref in refs if ref not in done]

    def kill(self, actor: Actor, no_restart: bool) -> None:
        assert not no_restart
        actor.killed += 1
        actor.how = "up"


@contextmanager
def seen(*names: str) -> Iterator[tuple[FakeRay, Members]]:
    fake = FakeRay()
    fake.actors = {name: Actor(name) for name in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ray", fake)
        patch.setattr(module, "REFRESH", 0.01)
        patch.setattr(module, "PROBE", 0.002)
        yield fake, Members("run", SHARD, PARTS, PATIENCE)


def ask(found: Members, seconds: float = 30.0) -> dict[int, str]:
    return found.ask("search", dict.fromkeys(range(PARTS), ()), time.monotonic() + seconds)


def name(part: int, replica: int) -> str:
    return actor_name("run", SHARD, part, replica)


def count(found: Members, part: int) -> int:
    return found.up[part]


def test_one_that_left_is_another_one_when_its_name_is_used_anew() -> None:
    with seen(name(0, 0), name(1, 0)) as (fake, found):
        until("both are up", lambda: found.up == {0: 1, 1: 1})
        fake.actors[name(0, 0)].how = "dead"
        assert ask(found, 0.05) == {1: name(1, 0)}
        fake.actors[name(0, 0)] = Actor(name(0, 0))
        assert ask(found)[0] == name(0, 0)


def test_one_that_hangs_is_killed() -> None:
    with seen(name(0, 0), name(1, 0)) as (fake, found):
        hung = fake.actors[name(0, 0)]
        until("both are up", lambda: found.up == {0: 1, 1: 1})
        hung.how = "hung"
        assert ask(found, 0.05) == {1: name(1, 0)}
        until("it is killed once", lambda: found.up and hung.killed == 1)
        assert ask(found)[0] == name(0, 0)


HOW = st.sampled_from(["join", "down", "hung", "up", "gone", "dead"])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(HOW, st.integers(0, PARTS - 1), st.integers(0, 2)), max_size=8))
def test_whatever_replicas_do_those_that_are_up_answer_and_no_others(events: list[tuple[str, int, int]]) -> None:
    with seen(name(0, 0), name(1, 0)) as (fake, found):
        for how, part, replica in events:
            it = name(part, replica)
            if how == "join" and it not in fake.actors:
                fake.actors[it] = Actor(it)
            elif how == "gone" and it in fake.actors:
                fake.actors.pop(it).how = "dead"
            elif it in fake.actors and how != "join" and fake.actors[it].how != "dead":
                fake.actors[it].how = how
            ask(found, 0.02)  # what has changed is noticed by a call, or by the next look
            until("it is as it should be", lambda: up(fake) == up_of(found, fake))
            answers = ask(found, 30.0 if all(up(fake).values()) else 0.05)
            assert all(fake.actors[answer].how == "up" for answer in answers.values())
            assert set(answers) == {part for part, there in up(fake).items() if there}


def up(fake: FakeRay) -> dict[int, int]:
    """What should be known: how many answer."""
    good = [it.name for it in fake.actors.values() if it.how == "up"]
    return {part: sum(it.startswith(name(part, 0)[:-1]) for it in good) for part in range(PARTS)}


def up_of(found: Members, fake: FakeRay) -> dict[int, int]:
    ask(found, 0.01)
    return found.up
