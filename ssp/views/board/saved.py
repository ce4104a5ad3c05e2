"""The board as one file, whole, which needs nothing else; a question's text can never become
script."""

import base64
import hashlib
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from ssp.base.errors import SspError
from ssp.base.files import whole
from ssp.base.models import called
from ssp.record.runfolder import RunFolder
from ssp.views.board.data import Board
from ssp.views.board.transcripts import details

PAGE = Path(__file__).parent / "page"
NOTHING = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
"""The policy of what the page may load: nothing, but for what is added to it here."""
INLINED = re.compile(r'<(?:link rel="stylesheet" href|script src)="(\w+)\.(css|js)">(?:</script>)?')
KEPT, BYTES = 400, 3_000_000
"""Questions with transcripts in a saved page, and their characters, at most."""


def save(board: Board, path: Path) -> int:
    """Write the board, as it is after `look`, as one HTML file; returns how many questions have
    their transcripts in it."""
    blocks = []
    part = board.since(0)
    while part["rows"]:
        blocks.append(f'<script type="application/json" class="rows">{plain(part)}</script>')
        part = board.since(part["seq"])
    names = board.chosen(KEPT)
    transcripts = details(board, names, games=1)
    used = kept = 0
    for name in names:
        if name not in transcripts:
            continue
        text = plain(transcripts[name])
        used += len(text)
        if used > BYTES:
            break
        blocks.append(f'<script type="application/json" class="detail" id="{name}">{text}</script>')
        kept += 1
    hashes = []

    def inlined(match: re.Match[str]) -> str:
        text = (PAGE / f"{match[1]}.{match[2]}").read_text(encoding="utf-8")
        hashes.append(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
        tag = "style" if match[2] == "css" else "script"
        return f"<{tag}>{text}</{tag}>"

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


def plain(data: Any) -> str:
    """JSON that an HTML page can hold: nothing in it opens or closes a tag."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
