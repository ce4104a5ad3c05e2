"""`ssp board RUN`: a run as a page in the browser, while it plays and afterwards; or as one HTML file.

Owns the command. Promises that a run is only read, and that nobody but this machine is answered.
Refuses to know what is shown (`ssp.board`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from launch import policy
from launch.cli import Parser, end_politely, whole
from launch.serve import bind
from ssp.board.data import Board
from ssp.board.server import Server, save
from ssp.errors import InputError
from ssp.runfolder import RunFolder

HOST, PORT = "127.0.0.1", 8600


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C, or write the file. Raises InputError for what is no run, and for a taken port."""
    parser = Parser("board", "Show a run in the browser: curves, versions, duels, questions, who waits for whom.")
    parser.add_argument("run", metavar="RUN", help="a run's folder, or its name below runs/")
    parser.add_argument(
        "--save", type=Path, metavar="FILE.html", help="write one file that needs nothing else, and end"
    )
    parser.add_argument("--port", type=whole(0, 65535), default=PORT, help=f"0 takes a free one (default {PORT})")
    args = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    if args.save is not None and args.save.suffix not in (".html", ".htm"):
        raise InputError("--save names an HTML file", args.save, "let the name end in .html")
    board = Board(RunFolder(policy.existing(args.run)))
    board.look()
    if args.save is not None:
        print(f"{args.save}: {save(board, args.save)} questions with their transcripts")
        return 0
    end_politely()
    with bind(HOST, args.port) as listener:
        print(f"board of {board.run.name}: http://{HOST}:{listener.getsockname()[1]} (Ctrl-C ends it)", flush=True)
        try:
            Server(board, listener).serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
