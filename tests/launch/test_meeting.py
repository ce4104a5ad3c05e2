"""What nodes tell each other: who is let in, who is waited for, what is heard at the end. No Ray."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ray.exceptions import AuthenticationError, RpcError
from trainruns import free_port

from launch.nodes import code, meeting
from ssp.base.errors import InputError, SspError
from ssp.config.schema import Config

PRINT = {"python": "3.11.7", "ssp/game.py": "ab", "NNODES": "3"}


class Store(meeting.Store):
    """A head's store without Ray. `dead`: what each call raises."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.hosts = {0: "a"}
        self.dead: Exception | None = None

    def put(self, key: str, value: object) -> None:
        self.held[key] = value

    def get(self, key: str) -> Any:
        if self.dead:
            raise self.dead
        return self.held.get(key)

    def ranks(self) -> dict[int, str]:
        if self.dead:
            raise self.dead
        return dict(self.hosts)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(meeting, "BEAT", 0.05)
    monkeypatch.setattr(meeting, "PATIENCE", 0.5)
    yield Store()


def test_the_head_waits_for_all_ranks_and_names_who_is_missing(store: Store) -> None:
    with pytest.raises(SspError, match=r"rank 1, 2 of 3 did not come within twice placement.call_timeout, 0.05"):
        meeting.gather(store, 3, PRINT, 0.05)
    threading.Timer(0.2, lambda: store.hosts.update({1: "b", 2: "c"})).start()
    meeting.gather(store, 3, PRINT, 10.0)
    assert store.held["print"] == PRINT


def test_everybody_hears_the_end(store: Store) -> None:
    looks: list[int] = []
    threading.Timer(0.2, lambda: meeting.dismiss(store, 2)).start()
    assert meeting.stay(store, lambda: looks.append(1)) == 2 and looks
    store.dead = RpcError("gone")
    meeting.dismiss(store, 0)  # nobody hears it


def test_a_head_that_vanishes_is_an_error(store: Store) -> None:
    store.dead = RpcError("Timed out")
    with pytest.raises(SspError, match="vanished without saying goodbye: Timed out"):
        meeting.stay(store, lambda: None)


def test_whoever_comes_first_waits_for_the_head_until_the_deadline(store: Store) -> None:
    said: list[str] = []
    port = free_port()
    with pytest.raises(SspError, match=r"no head at 127.0.0.1:\d+ .* twice placement.call_timeout, 0.2 s: Connection"):
        meeting.await_head("127.0.0.1", port, 0.2, said.append)
    assert said == [f"waiting for the head at 127.0.0.1:{port} (Connection refused)"]
    with socket.create_server(("127.0.0.1", port)):
        meeting.await_head("127.0.0.1", port, 10.0, said.append)


def test_a_head_lets_nodes_in_once_it_has_said_what_they_must_be_like(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "Store", lambda address: store)
    with pytest.raises(SspError, match="the head at a:1 lets no node in"):
        meeting.find_head("a:1", 0.1)
    threading.Timer(0.2, lambda: store.put("print", PRINT)).start()
    assert meeting.find_head("a:1", 10.0) is store
    monkeypatch.setattr(meeting, "STARTING", 0.1)
    store.dead = AuthenticationError("no")
    with pytest.raises(InputError, match="every node has the head's token"):
        meeting.find_head("a:1", 10.0)
    store.dead = RpcError("no route")
    with pytest.raises(SspError, match="the head at a:1 is gone: no route"):
        meeting.find_head("a:1", 10.0)


@pytest.mark.parametrize("first", [AuthenticationError("no"), RpcError("Timed out")])
def test_a_head_that_is_still_starting_is_asked_again(
    store: Store, first: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "Store", lambda address: store)
    store.put("print", PRINT)
    store.dead = first

    def awake() -> None:
        store.dead = None

    threading.Timer(0.3, awake).start()
    assert meeting.find_head("a:1", 10.0) is store


def test_another_code_or_number_of_nodes_or_a_rank_that_is_taken_is_named(store: Store) -> None:
    store.put("print", PRINT)
    meeting.check_in(store, 1, PRINT)
    other = {"python": "3.12.1", "ssp/game.py": "cd", "ssp/new.py": "ef", "NNODES": "4"}
    said = "NNODES is 4 here and 3 on the head; python is 3.12.1 here and 3.11.7 on the head; ssp/game.py is cd here "
    with pytest.raises(InputError, match=f"{said}.*ssp/new.py is ef here and missing on the head"):
        meeting.check_in(store, 1, other)
    store.hosts[1] = "b"
    with pytest.raises(InputError, match="rank 1 is on b already"):
        meeting.check_in(store, 1, PRINT)


def test_the_print_names_code_versions_and_settings() -> None:
    first, second = Config(), Config()
    second.steps, second.ray.dashboard = 99, -1
    here, there = code.printed(first, 2), code.printed(second, 2)
    assert {"python", "ray", "ssp/record/runfolder.py", "actors/crew.py", "launch/nodes/code.py"} <= here.keys()
    assert {name for name in here if here[name] != there[name]} == {"steps"}  # ray.* is each node's own
    with pytest.raises(InputError, match=f"steps is 99 here and {first.steps} on the head"):
        code.check_same(there, here)
