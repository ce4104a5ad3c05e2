"""Servers on loopback whose replies are a function of what is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], tuple[int, Any]]
"""What was posted → status and reply; bytes are sent as they are."""


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@contextmanager
def server(reply: Callable[[Asked], tuple[int, Mapping[str, str], bytes]]) -> Iterator[str]:
    """Its base address. `reply`: status, headers, body; status 0: no HTTP, these bytes and then the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, content = reply(Asked(self.command, self.path, self.headers, body))
            try:
                if status:
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(content)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                self.wfile.write(content)
            except OSError:  # who asked had enough
                pass

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # as many connect at once

    with Server(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{made.server_port}"
        finally:
            made.shutdown()


@contextmanager
def answering(answer: Answer, keys: list[str | None] | None = None) -> Iterator[str]:
    """A server of JSON, its base address. `keys`: hears of each request's Authorization."""

    def reply(asked: Asked) -> tuple[int, Mapping[str, str], bytes]:
        if keys is not None:
            keys.append(asked.headers.get("Authorization"))
        status, said = answer(json.loads(asked.body))
        return status, {}, said if isinstance(said, bytes) else json.dumps(said).encode()

    with server(reply) as base:
        yield base
