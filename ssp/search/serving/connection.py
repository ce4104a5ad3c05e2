"""A connection of the search server: uvicorn's, with the bounds of a request's head that it leaves out.

Owns the time and the size of a head. Promises that a connection on which no whole head arrives in `HEAD_SECONDS` is closed,
and that a head above `MAX_HEAD` bytes is a 400. Refuses to know requests: uvicorn's own settings end idle connections, and
the app bounds bodies and how many requests are under way.
"""

from __future__ import annotations

from asyncio import TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 20.0
"""From the connection, or the first byte after a reply, to the end of the request's head."""
MAX_HEAD = 64 * 2**10


class Connection(HttpToolsProtocol):
    """What uvicorn makes for each connection (its setting `http`)."""

    _head = 0
    _begun = False
    _late: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Also waits for the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Also waits no longer."""
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Also counts what belongs to a head that is not whole yet."""
        begun = self._begun
        super().data_received(data)
        if self.transport.is_closing():
            return
        if begun and self._begun:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.send_400_response("The request's head is too large.")
                return
        if self._begun or self.cycle is None or self.cycle.response_complete:
            self._wait()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._begun, self._head = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header more. ValueError, which uvicorn answers with 400, for one too many."""
        self._head += len(name) + len(value) + len(": \r\n")
        if self._head > MAX_HEAD:
            raise ValueError(f"the head is above {MAX_HEAD} bytes")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._begun = False
        self._arrived()
        super().on_headers_complete()

    def _wait(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _arrived(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
