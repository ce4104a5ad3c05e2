"""How nodes meet before Ray is involved: who is let in, who is waited for, what is heard at the end. No Ray."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from trainruns import free_port, until

from launch.nodes import code, meeting, token
from launch.nodes.meeting import JOINED, LEAVING, Gone, Line, Meeting, Member
from ssp.base.errors import InputError, SspError
from ssp.config.schema import Config

PRINT = {"python": "3.11.7", "ssp/game.py": "ab", "NNODES": "3"}


class Head:
    """A meeting of three nodes on loopback, and what it said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.port = free_port()
        self.meeting = Meeting(("127.0.0.1", self.port), 3, self.said.append)

    def open(self) -> None:
        self.meeting.open("10.0.0.1:6379", PRINT, "secret")

    def meet(self, rank: int, print_: code.Print = PRINT, seconds: float = 10.0) -> Member:
        return Member.meet(("127.0.0.1", self.port), rank, print_, seconds, self.said.append)

    def says(self, words: str) -> None:
        until(f"it says {words}", lambda: any(words in text for text in self.said), 10.0)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    made = Head()
    yield made
    made.meeting.end(0)


@pytest.fixture
def head(closed: Head) -> Head:
    closed.open()
    return closed


def staying(member: Member) -> tuple[threading.Thread, list[Any]]:
    """`member.stay` in a thread, and what it ended with; the member closes as the command does."""
    ended: list[Any] = []

    def stay() -> None:
        try:
            ended.append(member.stay(lambda: None))
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
    with pytest.raises(SspError, match=r"rank 1, 2 of 3 did not come within twice placement.call_timeout, 0.05"):
        head.meeting.wait(0.05)  # they are let in, and their Ray is not up yet
    for one in members:
        one.tell(JOINED)
    head.meeting.wait(10.0)
    head.meeting.end(2)
    for thread, ended in threads:
        thread.join(10.0)
        assert ended == [2]
    assert not [line for line in head.said if "lost" in line or "left" in line]


def test_whoever_comes_first_waits_for_the_head_until_the_deadline(closed: Head) -> None:
    nowhere = ("127.0.0.1", free_port())
    with pytest.raises(
        SspError, match=r"no head at 127.0.0.1:\d+ .* twice placement.call_timeout, 0.2 s: Connection refused"
    ):
        Member.meet(nowhere, 1, PRINT, 0.2, closed.said.append)
    assert "waiting for the head at 127.0.0.1" in closed.said[0]
    threading.Timer(0.5, closed.open).start()
    closed.meet(1).close()


@pytest.mark.parametrize("secret", ["another", ""])
def test_a_node_without_the_heads_token_is_told_what_to_copy(head: Head, secret, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", secret)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(InputError, match="every node has the head's token") as refused:
        head.meet(1)
    assert f"scp 127.0.0.1:.ray/auth_token {tmp_path / 'token'}" in str(refused.value)
    assert "RAY_AUTH_TOKEN_PATH" in refused.value.next_step and "secret" not in str(refused.value)


def test_a_stranger_that_knows_no_token_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers at the head's address must prove that it has the token too."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with Line(server.accept()[0]) as there:
                there.tell(nonce="1")
                there.hear(5.0)
                there.tell(ray="10.6.6.6:6379", proof="0")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(InputError, match="does not have this node's token"):
            Member.meet(server.getsockname(), 1, PRINT, 10.0, lambda message: None)


def test_another_code_or_number_of_nodes_is_named(head: Head) -> None:
    other = {"python": "3.12.1", "ssp/game.py": "cd", "ssp/new.py": "ef", "NNODES": "4"}
    said = "NNODES is 4 here and 3 on the head; python is 3.12.1 here and 3.11.7 on the head; ssp/game.py differs; "
    with pytest.raises(InputError, match=f"{said}ssp/new.py is not on the head"):
        head.meet(1, other)


def test_a_rank_is_one_process(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "TAKEN", 0.5)
    first = head.meet(1)
    with pytest.raises(InputError, match="rank 1 is on .*, and came again"):
        head.meet(1)
    monkeypatch.setattr(meeting, "TAKEN", 10.0)  # one whose death is noticed meanwhile gives its place to a new process
    threading.Timer(0.5, first.close).start()
    head.meet(1).close()


def test_a_rank_that_is_lost_or_leaves_may_come_back(head: Head) -> None:
    head.meet(1).close()
    head.says("is lost: it closed the connection; its place is kept")
    leaving = head.meet(1)
    leaving.tell(LEAVING)
    leaving.close()
    head.says("has left: it was asked to")
    back = head.meet(1)
    back.tell(JOINED)
    head.says("is there")
    back.close()


def test_a_rank_that_dies_as_it_is_let_in_may_come_back(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head's answer finds nobody: the place must be free for the next process."""
    told = Line.tell

    def tell(self: Line, **message: Any) -> None:
        if "ray" in message:
            monkeypatch.setattr(Line, "tell", told)
            raise Gone("Connection reset by peer")
        told(self, **message)

    monkeypatch.setattr(Line, "tell", tell)
    head.meet(1, seconds=5.0).close()


def test_a_head_that_vanishes_is_an_error(head: Head) -> None:
    thread, ended = staying(head.meet(1))
    with socket.fromfd(head.meeting._seats[1].line.fileno(), socket.AF_INET, socket.SOCK_STREAM) as line:
        # That of a machine which is dead is the system's to notice.
        options = [line.getsockopt(socket.IPPROTO_TCP, option) for option in meeting.KEEPALIVE]
        assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) and options == [5, 5, 3, 20_000]
        line.shutdown(socket.SHUT_RDWR)
    thread.join(10.0)
    assert "vanished without saying goodbye" in str(ended[0])


def test_other_programs_silence_and_long_messages_are_no_nodes(head: Head) -> None:
    with socket.create_connection(("127.0.0.1", head.port)) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\n\r\n")
        browser.settimeout(5.0)
        with suppress(ConnectionResetError):
            while browser.recv(4096):
                pass
    with socket.create_server(("127.0.0.1", 0)) as server:
        for sent, said in (
            (b"", "said nothing for 0.5 s"),
            (b"\0\0\0\2[]", "not launch.cluster"),
            (b"\0\0\0\2{]", "not launch.cluster"),
            ((meeting.LONGEST + 1).to_bytes(4, "big"), "bad message length"),
        ):
            with Line(socket.create_connection(server.getsockname())) as there, server.accept()[0] as connection:
                connection.sendall(sent)
                with pytest.raises(Gone, match=said):
                    there.hear(0.5)


def test_a_message_that_breaks_off_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects and says no more after a few bytes keeps no thread; nor does who reads nothing."""
    monkeypatch.setattr(meeting, "GREETING", 0.2)
    here, there = socket.create_server(("127.0.0.1", 0)), socket.socket()
    there.connect(here.getsockname())
    line = Line(here.accept()[0])
    there.sendall(b"\0\0\0\x09{")
    with pytest.raises(Gone, match="broke off in a message for 0.2 s"):
        line.hear(5.0)
    with pytest.raises(Gone):
        for _ in range(100):
            line.tell(much="x" * 1_000_000)
    line.close()
    there.close()
    here.close()


def test_the_print_names_code_versions_and_settings() -> None:
    first, second = Config(), Config()
    second.steps, second.ray.dashboard = 99, -1
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
