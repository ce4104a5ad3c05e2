"""Where the nodes of a run meet: the head's side.

Owns who is there: a rank is one living connection. Promises that a node is let in only with the head's token, code and
settings, that the head waits for all ranks with a deadline, that a rank which died may come back at any time, and that
every node hears how the run ended. Refuses to know what a node starts.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from launch.nodes import code, token
from launch.nodes.line import BEAT, Gone, Line, Message
from ssp.base.errors import InputError, SspError

GREETING = 20.0
"""Seconds in which whoever connects says who it is."""

ALIVE = 5 * BEAT
"""A rank that was heard within these seconds is there; after them another process may take its place."""

FAREWELL = 10.0
"""Seconds that nodes get to leave once they have heard that the run has ended."""

REFUSED, WAIT, RAY, JOINED, LEAVING, END = "refused", "wait", "ray", "joined", "leaving", "end"


@dataclass
class _Seat:
    """A rank that was let in, and whether its Ray node is up."""

    host: str
    line: Line
    joined: bool = False
    why: str = field(default="", init=False)


class Meeting:
    """The head's meeting point, listening from the start; `open` lets the others in."""

    def __init__(self, address: tuple[str, int], nodes: int, say: Callable[[str], None]) -> None:
        """InputError when the address cannot be listened at."""
        self._nodes, self._say = nodes, say
        self._seats: dict[int, _Seat] = {}
        self._changed = threading.Condition()
        self._ended: int | None = None
        try:
            self._listener = socket.create_server(address, backlog=nodes + 8)
        except OSError as error:
            raise InputError(
                "the nodes meet at the port above MASTER_PORT, which must be free",
                f"{address[0]}:{address[1]}: {error.strerror}",
                "set MASTER_PORT to another port on every node",
            ) from error

    def open(self, ray: str, print_: code.Print, secret: str) -> None:
        """Let nodes in from now on. `ray`: the address that they join."""
        self._ray, self._print, self._secret = ray, print_, secret
        threading.Thread(target=self._accept, daemon=True, name="meeting").start()

    def wait(self, seconds: float) -> None:
        """Until every rank is there. SspError naming who is missing after `seconds`."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._missing(), seconds):
                raise SspError(
                    f"rank {', '.join(map(str, self._missing()))} of {self._nodes} did not come within "
                    f"ray.nodes_timeout={seconds:g} s. Next: see what was printed there, and start again"
                )

    def end(self, exit_code: int) -> None:
        """Tell everybody that the run has ended, and wait until they have left, a few seconds at most."""
        with self._changed:
            self._ended = exit_code
            seats = list(self._seats.values())
        for seat in seats:
            with suppress(Gone):
                seat.line.send({END: exit_code})
        with self._changed:
            self._changed.wait_for(lambda: not self._seats, FAREWELL)
        # Without it the thread in accept() would keep the port.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _missing(self) -> list[int]:
        here = {rank for rank, seat in self._seats.items() if seat.joined}
        return [rank for rank in range(1, self._nodes) if rank not in here]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Line(connection),), daemon=True, name="member").start()

    def _serve(self, line: Line) -> None:
        """One connection, to its end."""
        try:
            rank, seat = self._let_in(line)
        except Gone:
            with self._changed:  # it may have died as it got its seat
                self._seats = {rank: seat for rank, seat in self._seats.items() if seat.line is not line}
            line.close()
            return
        try:
            while True:
                message = line.poll()
                if JOINED in message:
                    with self._changed:
                        seat.joined = True
                        self._changed.notify_all()
                    self._say(f"rank {rank} ({seat.host}) is there")
                seat.why = message.get(LEAVING, seat.why)
        except Gone as error:
            with self._changed:
                if self._seats.get(rank) is seat:
                    del self._seats[rank]
                self._changed.notify_all()
            if self._ended is None:
                self._say(f"rank {rank} ({seat.host}) has left: {seat.why}" if seat.why else
                          f"rank {rank} ({seat.host}) is lost: {error}; its place is kept for a new process")  # fmt: skip
        finally:
            line.close()

    def _let_in(self, line: Line) -> tuple[int, _Seat]:
        """Check who it is and give it its seat. Gone when it was refused, or shall ask again."""
        nonce = secrets.token_hex(16)
        line.send({"nonce": nonce})
        said = line.receive(GREETING)
        rank, host = said.get("rank"), str(said.get("host"))
        if not isinstance(rank, int) or not 0 < rank < self._nodes:
            raise Gone("what came is not launch.cluster")
        if said.get("proof") != token.proof(self._secret, "member", nonce):
            raise self._refuse(line, token.differs(host, f"the token of rank {rank} ({host}) is another one"))
        try:
            if said.get("nodes") != self._nodes:
                raise InputError("NNODES is the same on every node", f"{said.get('nodes')}", f"set it to {self._nodes}")
            code.check_same(said["print"], self._print, host)
            self._take(rank, host, line)
        except InputError as error:
            raise self._refuse(line, error) from error
        line.send({RAY: self._ray, "proof": token.proof(self._secret, "head", str(said.get("nonce")))})
        return rank, self._seats[rank]

    def _take(self, rank: int, host: str, line: Line) -> None:
        with self._changed:
            there = self._seats.get(rank)
            if self._ended is not None or (there and time.monotonic() - there.line.heard > ALIVE):
                line.send({WAIT: True})
                raise Gone("it may come again in a moment")
            if there:
                rule, found = (
                    "each node has a RANK of its own",
                    f"rank {rank} is on {there.host}, and came again from {host}",
                )
                raise InputError(rule, found, f"start this one with another RANK below NNODES={self._nodes}")
            self._seats[rank] = _Seat(host, line)

    @staticmethod
    def _refuse(line: Line, error: InputError) -> Gone:
        message: Message = {REFUSED: [error.rule, str(error.found), error.next_step]}
        line.send(message)
        return Gone(error.rule)
