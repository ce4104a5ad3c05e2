"""One connection between two nodes: JSON objects, a line each.

Owns bytes, bounds and what silence means. Promises that a peer which is dead, or a network that is cut, is `Gone` after
`SILENCE` seconds, and at once when its socket closes. Refuses to know what the objects mean.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any

LONGEST = 4_000_000
"""Bytes of one message: a print of the code takes 40 KB."""

BEAT = 1.0
SILENCE = 30.0
"""Seconds between signs of life, and without any until the peer counts as dead."""

Message = dict[str, Any]


class Gone(Exception):
    """The other side has closed, died, fallen silent, or does not speak this language; the message says which."""


class Line:
    """Messages over a connected socket, for one thread; `send` may be called by several."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._buffer, self._sending = connection, b"", threading.Lock()
        self._beaten = self.heard = time.monotonic()

    def send(self, message: Message) -> None:
        """Raises Gone."""
        try:
            with self._sending:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Gone(str(error)) from error

    def receive(self, seconds: float) -> Message:
        """The next message; Gone when none came within `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            message = self.poll(left)
            if message:
                return message
        raise Gone(f"it said nothing for {seconds:g} s")

    def poll(self, seconds: float = BEAT) -> Message:
        """The next message, or {} after `seconds`; signs of life are given and taken here."""
        now = time.monotonic()
        if now - self._beaten >= BEAT:
            self._beaten = now
            self.send({})
        if b"\n" not in self._buffer:
            try:
                watch = select.poll()  # not select(), which takes no descriptor above 1023
                watch.register(self._socket, select.POLLIN)
                ready = watch.poll(1000 * min(seconds, BEAT))
            except (OSError, ValueError) as error:  # closed by another thread
                raise Gone("it was closed here") from error
            if ready:
                self._read()
        if time.monotonic() - self.heard > SILENCE:
            raise Gone(f"it said nothing for {SILENCE:g} s")
        if b"\n" not in self._buffer:
            return {}
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise Gone("what answers there is not launch.cluster")
        return message

    def close(self) -> None:
        """Say no more."""
        # close() alone would not wake a thread that waits for it.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(65536)
        except OSError as error:
            raise Gone(str(error)) from error
        if not data or len(self._buffer) > LONGEST:
            raise Gone("it closed the connection" if not data else "what answers there is not launch.cluster")
        self._buffer += data
        self.heard = time.monotonic()
