"""A server on loopback whose JSON replies are a function of the JSON that is posted to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], tuple[int, Any]]
"""What was posted → status and reply; bytes are sent as they are."""


@contextmanager
def answering(answer: Answer, keys: list[str | None] | None = None) -> Iterator[str]:
    """Its base address. `keys`: hears of each request's Authorization."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if keys is not None:
                keys.append(self.headers.get("Authorization"))
            status, reply = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
