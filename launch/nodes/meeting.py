"""Where the nodes of a run meet, the head's side and that of every other node: before Ray, which
would take in any node that has the token, and at the end, of which Ray tells nobody.

Owns who is there: a rank is one living connection, of JSON objects. Promises that a node is let in
only with the head's token, code and settings, and a head believed only with the node's token; that
the order of starting does not matter; that the head waits for all ranks with a deadline, and a rank
which died may come back at any time; that every node hears how the run ended, and a head that is
gone without goodbye is an error. Refuses to know what a node starts."""

from __future__ import annotations

import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from launch.nodes import code, token
from ssp.base.errors import InputError, SspError

LONGEST = 4_000_000
"""Bytes of one message: a print of the code takes 40 KB."""

KEEPALIVE = {
    socket.TCP_KEEPIDLE: 5,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 20_000,
}
"""A machine that is dead, or behind a cut network, is noticed by the system within 20 s, however
busy ours is."""

TAKEN = 25.0
"""Seconds in which the place of a dead process is free for a new one; after them two have the same
rank."""

GREETING, ANSWER = 20.0, 60.0
"""Seconds in which whoever connects says who it is, and hears whether it is let in."""

FAREWELL = 10.0
"""Seconds that nodes get to leave once they have heard that the run has ended."""

BEAT = 1.0
"""Seconds between two looks."""

JOINED, LEAVING = "joined", "leaving"
"""What a node that was let in says: its Ray is up; it was asked to leave."""


class Gone(Exception):
    """The other side has closed, died, fallen silent, or does not speak this language; the message
    says which."""


class Line(Connection):
    """Messages over a connected socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        seconds = struct.pack("@ll", *divmod(int(GREETING * 1e6), 1_000_000))
        # a message that has begun does not wait for ever
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, seconds)
        super().__init__(connection.detach())

    def tell(self, **message: Any) -> None:
        """Raises Gone."""
        try:
            self.send_bytes(json.dumps(message).encode())
        except OSError as error:
            raise Gone(str(error)) from error

    def hear(self, seconds: float | None = None) -> dict[str, Any]:
        """The next message; Gone when none comes within `seconds` (None: however long it takes)."""
        try:
            if not self.poll(seconds):
                raise Gone(f"it said nothing for {seconds:g} s")
            message = json.loads(self.recv_bytes(LONGEST))
        except EOFError:
            raise Gone("it closed the connection") from None
        except BlockingIOError:
            raise Gone(f"it broke off in a message for {GREETING:g} s") from None
        except OSError as error:
            raise Gone(str(error)) from error
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise Gone("what answers there is not launch.cluster")
        return message


@dataclass
class _Seat:
    """A rank that was let in, and whether its Ray node is up."""

    host: str
    line: Line
    joined: bool = False


class Meeting:
    """The head's meeting point, listening from the start; `open` lets the others in."""

    def __init__(self, address: tuple[str, int], nodes: int, say: Callable[[str], None]) -> None:
        self._nodes, self._say = nodes, say
        self._seats: dict[int, _Seat] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._listener = socket.create_server(address, backlog=nodes + 8)

    def open(self, ray: str, print_: code.Print, secret: str) -> None:
        """Let nodes in from now on. `ray`: the address that they join."""
        self._ray, self._print, self._secret = ray, print_, secret
        threading.Thread(target=self._accept, daemon=True, name="meeting").start()

    def wait(self, seconds: float) -> None:
        """Until every rank is there. SspError naming who is missing after `seconds`."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._missing(), seconds):
                raise SspError(
                    f"rank {', '.join(map(str, self._missing()))} of {self._nodes} did not come"
                    f" within twice placement.call_timeout, {seconds:g} s. Next: see what was"
                    " printed there, and start again"
                )

    def end(self, exit_code: int) -> None:
        """Tell everybody that the run has ended, and wait until they have left, a few seconds at
        most."""
        with self._changed:
            self._ended = True
            for seat in self._seats.values():
                with suppress(Gone):
                    seat.line.tell(end=exit_code)
            self._changed.wait_for(lambda: not self._seats, FAREWELL)
        with suppress(OSError):  # without it the thread in accept() would keep the port
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _missing(self) -> list[int]:
        return [
            rank
            for rank in range(1, self._nodes)
            if rank not in self._seats or not self._seats[rank].joined
        ]

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                line = Line(self._listener.accept()[0])
                threading.Thread(
                    target=self._serve, args=(line,), daemon=True, name="member"
                ).start()

    def _serve(self, line: Line) -> None:
        """One connection, to its end."""
        rank, left = 0, False
        try:
            rank, host = self._let_in(line)
            while True:
                message = line.hear()
                left |= LEAVING in message
                if JOINED in message:
                    with self._changed:
                        self._seats[rank].joined = True
                        self._changed.notify_all()
                    self._say(f"rank {rank} ({host}) is there")
        except Gone as error:
            if rank and not self._ended:
                gone = (
                    "has left: it was asked to"
                    if left
                    else f"is lost: {error}; its place is kept for a new process"
                )
                self._say(f"rank {rank} ({host}) {gone}")
        finally:
            with self._changed:  # it may have died as it got its seat
                self._seats = {
                    rank: seat for rank, seat in self._seats.items() if seat.line is not line
                }
                self._changed.notify_all()
            line.close()

    def _let_in(self, line: Line) -> tuple[int, str]:
        """Check who it is and give it its seat: its rank and host. Gone when it was refused."""
        nonce = secrets.token_hex(16)
        line.tell(nonce=nonce)
        said = line.hear(GREETING)
        if said.get("proof") != token.proof(self._secret, "member", nonce):
            line.tell(proof="")
            raise Gone("it has another token")
        proof, rank, host = (
            token.proof(self._secret, "head", said["nonce"]),
            int(said["rank"]),
            str(said["host"]),
        )
        try:
            code.check_same(said["print"], self._print, host)
            self._take(rank, host, line)
        except InputError as error:
            line.tell(proof=proof, refused=[error.rule, str(error.found), error.next_step])
            raise Gone(error.rule) from error
        line.tell(proof=proof, ray=self._ray)
        return rank, host

    def _take(self, rank: int, host: str, line: Line) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended or rank not in self._seats, TAKEN):
                found = f"rank {rank} is on {self._seats[rank].host}, and came again from {host}"
                next_step = f"start this one with another RANK below NNODES={self._nodes}"
                raise InputError("each node has a RANK of its own", found, next_step)
            if self._ended:
                raise Gone("the run has ended")
            self._seats[rank] = _Seat(host, line)


class Member:
    """This node at the meeting. `ray`: the address that it joins; `own`: its own address on the way
    to the head."""

    def __init__(self, head: tuple[str, int], rank: int, print_: code.Print) -> None:
        """Ask for a place, once. Gone when nobody gives one, InputError when the head refuses."""
        try:
            connection = socket.create_connection(head, timeout=10.0)
        except OSError as error:
            raise Gone(error.strerror or str(error)) from error
        self.own = str(connection.getsockname()[0])
        self._line = Line(connection)
        try:
            self.ray = self._greeted(head[0], rank, print_)
        except BaseException:
            self.close()
            raise

    @classmethod
    def meet(
        cls,
        head: tuple[str, int],
        rank: int,
        print_: code.Print,
        seconds: float,
        say: Callable[[str], None],
    ) -> Member:
        """Ask until the head gives a place. SspError when no head is there within `seconds`,
        InputError when it refuses."""
        deadline, told, why = time.monotonic() + seconds, False, ""
        while time.monotonic() < deadline:
            try:
                return cls(head, rank, print_)
            except Gone as error:
                why = str(error)
            if not told:
                told = True
                say(f"waiting for the head at {head[0]}:{head[1]} ({why})")
            time.sleep(BEAT)
        raise SspError(
            f"no head at {head[0]}:{head[1]} (the port above MASTER_PORT) within twice"
            f" placement.call_timeout, {seconds:g} s: {why}. Next: check that rank 0 runs,"
            " MASTER_ADDR, MASTER_PORT and the firewall"
        )

    def tell(self, what: str) -> None:
        """Say JOINED or LEAVING, if anybody listens."""
        with suppress(Gone):
            self._line.tell(**{what: True})

    def stay(self, check: Callable[[], None]) -> int:
        """Wait for the run's end and return rank 0's exit code; `check` is called each second.
        SspError when the head vanishes without goodbye."""
        try:
            while not self._line.poll(BEAT):
                check()
            return int(self._line.hear()["end"])
        except Gone as error:
            raise SspError(
                f"the head vanished without saying goodbye: {error}. Next: see what rank 0 printed,"
                " and start all nodes again; with resume=auto the run goes on from its checkpoint"
            ) from error

    def close(self) -> None:
        """Free the place."""
        self._line.close()

    def _greeted(self, host: str, rank: int, print_: code.Print) -> str:
        """Ray's address, once the head has let this node in."""
        asked, secret, nonce = self._line.hear(GREETING), token.read(), secrets.token_hex(16)
        if not secret:
            raise token.differs(host, f"no token in {token.path()}")
        proof = token.proof(secret, "member", str(asked.get("nonce")))
        self._line.tell(
            rank=rank, host=socket.gethostname(), print=print_, nonce=nonce, proof=proof
        )
        answer = self._line.hear(ANSWER)
        if answer.get("proof") != token.proof(secret, "head", nonce):
            raise token.differs(host, "what answers there does not have this node's token")
        if "refused" in answer:
            raise InputError(*map(str, answer["refused"]))
        return str(answer["ray"])
