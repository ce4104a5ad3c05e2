"""How nodes meet before Ray is involved: who is let in, who is waited for, what is heard at the end. No Ray."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from trainruns import free_port, until

from launch.nodes import code, line, meeting, member, token
from launch.nodes.meeting import Meeting
from launch.nodes.member import Member
from ssp.base.errors import InputError, SspError
from ssp.config.schema import Config

PRINT = {"python": "3.11.7", "ssp/game.py": "ab"}


class Head:
    """A meeting of three nodes on loopback, and what it said."""

    def __init__(self, opened: bool = True) -> None:
        self.said: list[str] = []
        self.port = free_port()
        self.meeting = Meeting(("127.0.0.1", self.port), 3, self.said.append)
        if opened:
            self.open()

    def open(self) -> None:
        self.meeting.open("10.0.0.1:6379", PRINT, "secret")

    def meet(self, rank: int, print_: code.Print = PRINT, nodes: int = 3, seconds: float = 10.0) -> Member:
        return Member.meet(("127.0.0.1", self.port), rank, nodes, print_, seconds, lambda message: None)


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    made = Head()
    yield made
    made.meeting.end(0)


def staying(member: Member, check: Callable[[], None] = lambda: None) -> tuple[threading.Thread, list[Any]]:
    """`member.stay` in a thread, and what it ended with; the member closes as the command does."""
    ended: list[Any] = []

    def stay() -> None:
        try:
            ended.append(member.stay(check))
        except SspError as error:
            ended.append(error)
        member.close()

    thread = threading.Thread(target=stay)
    thread.start()
    return thread, ended


def test_all_come_and_hear_the_end(head: Head) -> None:
    members = [head.meet(1), head.meet(2)]
    threads = [staying(member) for member in members]
    assert {(member.ray, member.own) for member in members} == {("10.0.0.1:6379", "127.0.0.1")}
    with pytest.raises(SspError, match=r"rank 1, 2 of 3 did not come within ray.nodes_timeout=0.05"):
        head.meeting.wait(0.05)  # they are let in, and their Ray is not up yet
    for one in members:
        one.joined()
    head.meeting.wait(10.0)
    head.meeting.end(2)
    for thread, ended in threads:
        thread.join(10.0)
        assert ended == [2]
    assert not [line for line in head.said if "lost" in line or "left" in line]


def test_whoever_comes_first_waits_for_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    said: list[str] = []
    port, found = free_port(), []
    early = threading.Thread(
        target=lambda: found.append(Member.meet(("127.0.0.1", port), 1, 2, PRINT, 20.0, said.append))
    )
    early.start()
    until("it says that it waits", lambda: said, 10.0)
    late = Meeting(("127.0.0.1", port), 2, said.append)
    late.open("10.0.0.1:6379", PRINT, "secret")
    early.join(20.0)
    assert found[0].ray == "10.0.0.1:6379" and "waiting for the head at 127.0.0.1" in said[0]
    found[0].close()
    late.end(0)


def test_no_head_within_the_deadline() -> None:
    with pytest.raises(
        SspError, match=r"no head at 127.0.0.1:\d+ .* within ray.nodes_timeout=0.2 s: Connection refused"
    ):
        Member.meet(("127.0.0.1", free_port()), 1, 2, PRINT, 0.2, lambda message: None)


@pytest.mark.parametrize("secret", ["another", ""])
def test_a_node_without_the_heads_token_is_told_what_to_copy(head: Head, secret, monkeypatch, tmp_path) -> None:
    # One process has one environment, so it is the head that holds another token here.
    head.meeting._secret = "the head's"
    monkeypatch.setenv("RAY_AUTH_TOKEN", secret)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(InputError, match="every node has the head's token") as refused:
        head.meet(1)
    assert f"scp 127.0.0.1:.ray/auth_token {tmp_path / 'token'}" in str(refused.value) or secret
    assert "RAY_AUTH_TOKEN_PATH" in refused.value.next_step and "the head's," not in str(refused.value)


def test_a_stranger_that_knows_no_token_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers at the head's address must prove that it has the token too."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            there = line.Line(server.accept()[0])
            there.send({"nonce": "1"})
            there.receive(5.0)
            there.send({meeting.RAY: "10.6.6.6:6379", "proof": "0"})

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(InputError, match="does not have this node's token"):
            Member.meet(server.getsockname(), 1, 2, PRINT, 10.0, lambda message: None)


def test_another_code_or_number_of_nodes_is_named(head: Head) -> None:
    other = {"python": "3.12.1", "ssp/game.py": "cd", "ssp/new.py": "ef"}
    with pytest.raises(
        InputError, match="python is 3.12.1 here and 3.11.7 on the head; ssp/game.py differs; ssp/new.py is not"
    ):
        head.meet(1, other)
    with pytest.raises(InputError, match="NNODES is the same on every node. Found: 4. Next: set it to 3"):
        head.meet(1, nodes=4)


def test_a_rank_is_one_process(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    first = head.meet(1)
    _, _ = staying(first)
    with pytest.raises(InputError, match="rank 1 is on .*, and came again"):
        head.meet(1)
    # One that has fallen silent keeps its place until it counts as dead; then a new process gets it.
    monkeypatch.setattr(meeting, "ALIVE", -1.0)
    with pytest.raises(SspError, match="another process still has this rank"):
        head.meet(1, seconds=0.5)


def test_a_rank_that_is_lost_may_come_back(head: Head) -> None:
    head.meet(1).close()
    until("the head has noticed", lambda: any("rank 1" in text and "lost" in text for text in head.said), 10.0)
    leaving = head.meet(1)
    leaving.leave("it was asked to")
    leaving.close()
    until("the head has heard", lambda: any("has left: it was asked to" in text for text in head.said), 10.0)
    back = head.meet(1)
    back.joined()
    until("it is there", lambda: any("rank 1" in text and "is there" in text for text in head.said), 10.0)
    back.close()


def test_a_rank_that_dies_as_it_is_let_in_may_come_back(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head's answer finds nobody: the place must be free for the next process."""
    told = line.Line.send

    def send(self: line.Line, message: line.Message) -> None:
        if meeting.RAY in message:
            monkeypatch.undo()
            monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
            raise line.Gone("Connection reset by peer")
        told(self, message)

    monkeypatch.setattr(line.Line, "send", send)
    head.meet(1, seconds=5.0).close()


def test_a_node_whose_ray_starts_slowly_is_not_lost(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives signs of life from the moment that it is let in, and hears the end whenever that comes."""
    monkeypatch.setattr(line, "SILENCE", 2.0)
    for module in (line, member):  # ten signs of life in that time: a busy machine may be late with some
        monkeypatch.setattr(module, "BEAT", 0.2)
    slow = head.meet(1)
    time.sleep(2.5)
    slow.joined()
    until("it is there", lambda: any("rank 1" in text and "is there" in text for text in head.said), 10.0)
    assert not any("lost" in text for text in head.said)
    ending = threading.Thread(target=head.meeting.end, args=(130,))
    ending.start()
    assert slow.stay(lambda: None) == 130
    slow.close()
    ending.join(10.0)


def test_a_head_that_vanishes_is_an_error(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    thread, ended = staying(head.meet(1))
    head.meeting._seats[1].line._socket.shutdown(socket.SHUT_RDWR)
    thread.join(10.0)
    assert "vanished without saying goodbye" in str(ended[0])
    monkeypatch.setattr(line, "SILENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = line.Line(socket.create_connection(server.getsockname()))
        with pytest.raises(line.Gone, match="said nothing for 0.5 s"):
            while True:
                silent.poll()


def test_other_programs_and_long_messages_are_no_nodes(head: Head) -> None:
    with socket.create_connection(("127.0.0.1", head.port)) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\n\r\n")
        browser.settimeout(5.0)
        while browser.recv(4096):
            pass
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = line.Line(socket.create_connection(server.getsockname()))
        connection, _ = server.accept()
        threading.Thread(target=lambda: connection.sendall(b"x" * (line.LONGEST + 100_000)), daemon=True).start()
        with pytest.raises(line.Gone, match="not launch.cluster"):
            there.receive(10.0)
        there.close()


def test_the_print_names_code_versions_and_settings() -> None:
    first, second = Config(), Config()
    second.steps, second.ray.cpus = 99, 7
    here, there = code.printed(first), code.printed(second)
    assert {"python", "ray", "ssp/record/runfolder.py", "actors/crew.py", "launch/nodes/code.py"} <= here.keys()
    assert {name for name in here if here[name] != there[name]} == {"steps"}  # ray.* is each node's own
    assert code.digest(here) != code.digest(there)
    with pytest.raises(InputError, match=f"steps is 99 here and {first.steps} on the head"):
        code.check_same(there, here, "host")


def test_the_token_is_made_once_and_kept_to_its_owner(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "ray" / "token"))
    assert token.read() == ""
    made = token.make()
    assert len(made) == 64 and token.make() == token.read() == made
    assert token.path().stat().st_mode & 0o777 == 0o600
    token.path().write_text("")  # of one that died as it wrote; whoever made it first let others read it
    token.path().chmod(0o644)
    assert token.make() != made and token.path().stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(InputError, match="unset RAY_AUTH_MODE"):
        token.require()
