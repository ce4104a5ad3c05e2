"""The board over HTTP, and as one file. The page asks nobody but this server, which answers only
who names it by an address of this machine; a question's text can never become script; a saved page
is whole and needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from ssp.base.errors import InputError, SspError
from ssp.base.files import whole
from ssp.base.models import called
from ssp.record.runfolder import RunFolder
from ssp.views.board.data import Board, details

if TYPE_CHECKING:  # a tenth of a second, which a run that leaves its page does without
    import uvicorn

PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
NOTHING = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
"""Of what the page may load: nothing, but for what is added to it here."""
INLINED = re.compile(r'<(?:link rel="stylesheet" href|script src)="(\w+)\.(css|js)">(?:</script>)?')
KEPT, BYTES = 400, 3_000_000
"""Of a saved page: questions with transcripts, and their characters, at most."""
SPARE = 10
"""Times as long as the last look took passes before the next one."""


def save(board: Board, path: Path) -> int:
    """Write the board, as it is after `look`, as one HTML file; returns in how many questions'
    transcripts it has."""
    blocks, part = [], board.since(0)
    while part["rows"]:
        blocks.append(f'<script type="application/json" class="rows">{_plain(part)}</script>')
        part = board.since(part["seq"])
    names, used, kept = board.chosen(KEPT), 0, 0
    found = details(board, names, games=1)
    for name in (name for name in names if name in found):
        text = _plain(found[name])
        used += len(text)
        if used > BYTES:
            break
        blocks.append(f'<script type="application/json" class="detail" id="{name}">{text}</script>')
        kept += 1
    hashes = []

    def inlined(match: re.Match[str]) -> str:
        text = (PAGE / f"{match[1]}.{match[2]}").read_text(encoding="utf-8")
        hashes.append(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
        return f"<{(tag := 'style' if match[2] == 'css' else 'script')}>{text}</{tag}>"

    page = INLINED.sub(inlined, (PAGE / "index.html").read_text(encoding="utf-8"))
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    policy = f"{NOTHING}; script-src {allowed}; style-src {allowed}"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    page = page.replace("<!-- policy -->", meta).replace("<!-- data -->", "\n".join(blocks))
    with whole(path) as aside:
        aside.write_text(page, encoding="utf-8")
    return kept


def leave_page(run: RunFolder) -> list[str]:
    """Write report.html into a run's folder at its end; returns what a person is told. The run is
    over and saved: what goes wrong here is told, and nothing else."""
    page = run.path / "report.html"
    try:
        with closing(Board(run)) as board:
            board.look()
            save(board, page)
        said = f"report: {page}"
    except (SspError, OSError, sqlite3.Error) as error:
        said = f"report: not written: {error}"
    return [said, f"board: ssp board {called(run.path)}"]


def _plain(data: Any) -> str:
    """JSON that an HTML page can hold: nothing in it opens or closes a tag."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


class App:
    """One board as an ASGI app; requests are answered one after the other."""

    def __init__(self, board: Board) -> None:
        self.board, self._next = board, 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        status, kind, body = 403, "text/plain", b"ask for localhost or 127.0.0.1"
        if re.fullmatch(
            rb"(?i)(localhost|127\.0\.0\.1)(:\d*)?", dict(scope["headers"]).get(b"host", b"")
        ):
            status, kind, body = 405, "text/plain", b"GET only"
            if scope["method"] == "GET":
                status, kind, body = self.answer(
                    scope["path"], parse_qs(scope["query_string"].decode("latin-1"))
                )
        headers = {
            "content-type": f"{kind}; charset=utf-8",
            "content-length": str(len(body)),
            "content-security-policy": (
                f"{NOTHING}; script-src 'self'; style-src 'self'; connect-src 'self'"
            ),
            "x-content-type-options": "nosniff",
            "cache-control": "no-store",
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})

    def answer(self, path: str, asked: dict[str, list[str]]) -> tuple[int, str, bytes]:
        """Status, type and body of a GET."""
        name = path.removeprefix("/") or "index.html"
        if re.fullmatch(r"\w+\.(html|css|js)", name) and (PAGE / name).is_file():
            return 200, TYPES[Path(name).suffix], (PAGE / name).read_bytes()
        try:
            if path == "/data.json":
                since = asked.get("since", ["0"])[0]
                if not since.isdecimal() or len(since) > 18:
                    raise InputError(
                        "since is the number of an earlier answer", since, "leave it out for all"
                    )
                began = time.monotonic()
                if began >= self._next:  # what plays there needs the machine
                    self.board.look()
                    self._next = time.monotonic() + SPARE * (time.monotonic() - began)
                return 200, "application/json", _plain(self.board.since(int(since))).encode()
            if path == "/question.json":
                found = details(self.board, asked.get("id", []))
                return (200 if found else 404), "application/json", _plain(found).encode()
        except InputError as error:
            return 400, "application/json", _plain({"error": str(error)}).encode()
        return 404, "text/plain", b"not found"


def server(board: Board) -> uvicorn.Server:
    """The board's server: `run(sockets=[...])` until a signal, or until `should_exit`."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(App(board), log_level="warning", ws="none", lifespan="off", access_log=False)
    )
