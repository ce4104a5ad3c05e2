"""Where the nodes of a run meet: the side of every other node.

Owns the search for the head and the wait for the run's end. Promises that the order of starting does not matter (it asks
again until the deadline), that a refusal is the head's own paragraph, and that a head which is gone without goodbye is
an error. Refuses to know what a node starts.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from launch.nodes import code, token
from launch.nodes.line import BEAT, Gone, Line
from launch.nodes.meeting import END, GREETING, JOINED, LEAVING, RAY, REFUSED, WAIT
from ssp.base.errors import InputError, SspError


class Member:
    """This node at the meeting. `ray`: the address that it joins; `own`: its own address on the way to the head."""

    def __init__(self, line: Line, ray: str, own: str) -> None:
        self._line, self.ray, self.own = line, ray, own
        self._over = threading.Event()
        self._ended: int | None = None
        self._gone: Gone | None = None
        # From now on, also while this node's Ray is starting: a side that is silent counts as dead.
        threading.Thread(target=self._listen, daemon=True, name="member").start()

    @classmethod
    def meet(
        cls,
        head: tuple[str, int],
        rank: int,
        nodes: int,
        print_: code.Print,
        seconds: float,
        say: Callable[[str], None],
    ) -> Member:
        """Ask for a place until the head gives one. InputError when it refuses, SspError when no head is there in time."""
        deadline, told, why = time.monotonic() + seconds, False, ""
        while time.monotonic() < deadline:
            try:
                connection = socket.create_connection(head, timeout=min(10.0, seconds))
            except OSError as error:
                why = error.strerror or str(error)
            else:
                own = str(connection.getsockname()[0])
                line = Line(connection)
                try:
                    return cls(line, _greeted(line, head[0], rank, nodes, print_), own)
                except Gone as error:
                    why = str(error)
                except BaseException:
                    line.close()
                    raise
                line.close()
            if not told:
                told = True
                say(f"waiting for the head at {head[0]}:{head[1]} ({why})")
            time.sleep(BEAT)
        raise SspError(
            f"no head at {head[0]}:{head[1]} (the port above MASTER_PORT) within ray.nodes_timeout={seconds:g} s: {why}. "
            "Next: check that rank 0 runs, MASTER_ADDR, MASTER_PORT and the firewall"
        )

    def joined(self) -> None:
        """Say that this node is up. SspError when the head is gone."""
        try:
            self._line.send({JOINED: True})
        except Gone as error:
            raise _vanished(error) from error

    def stay(self, check: Callable[[], None]) -> int:
        """Wait for the run's end and return rank 0's exit code; `check` is called each second.

        SspError when the head vanishes without goodbye.
        """
        while not self._over.wait(BEAT):
            check()
        if self._ended is None:
            raise _vanished(self._gone) from self._gone
        return self._ended

    def leave(self, why: str) -> None:
        """Say goodbye, if anybody listens."""
        with suppress(Gone):
            self._line.send({LEAVING: why})

    def close(self) -> None:
        """Free the place."""
        self._line.close()

    def _listen(self) -> None:
        try:
            while self._ended is None:
                self._ended = self._line.poll().get(END)
        except Gone as error:
            self._gone = error
        self._over.set()


def _vanished(error: Gone | None) -> SspError:
    return SspError(
        f"the head vanished without saying goodbye: {error}. Next: see what rank 0 printed, and start all nodes again; "
        "with resume=auto the run goes on from its checkpoint"
    )


def _greeted(line: Line, host: str, rank: int, nodes: int, print_: code.Print) -> str:
    """Ray's address, once the head has let this node in. Gone when it shall ask again, InputError when it is refused."""
    said = line.receive(GREETING)
    secret, nonce = token.read(), secrets.token_hex(16)
    if not secret:
        raise token.differs(host, f"no token in {token.path()}")
    line.send({
        "rank": rank, "nodes": nodes, "host": socket.gethostname(), "print": print_, "nonce": nonce,
        "proof": token.proof(secret, "member", str(said.get("nonce"))),
    })  # fmt: skip
    answer = line.receive(GREETING)
    if REFUSED in answer:
        raise InputError(*map(str, answer[REFUSED]))
    if WAIT in answer:
        raise Gone("another process still has this rank")
    if answer.get("proof") != token.proof(secret, "head", nonce):
        raise token.differs(host, "what answers there does not have this node's token")
    return str(answer[RAY])
