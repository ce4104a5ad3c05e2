"""`ssp board RUN`: a run as a page in the browser, while it plays and afterwards; or as one HTML file. `ssp board --grafana
FILE`: the dashboard of all figures that Ray's metrics hold.

Promises that a run is only read, and that nobody but this machine is answered.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.cli import Parser, end_politely, whole
from ssp.base.errors import InputError
from ssp.base.models import existing
from ssp.base.printable import say
from ssp.record.runfolder import RunFolder

HOST, PORT = "127.0.0.1", 8600


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C, or write the file. Raises InputError for what is no run, and for a taken port."""
    parser = Parser("board", "Show a run in the browser: curves, versions, duels, questions, who waits for whom.")
    parser.add_argument("run", metavar="RUN", nargs="?", default="", help="a run's folder, or its name below runs/")
    parser.add_argument(
        "--save", type=Path, metavar="FILE.html", help="write one file that needs nothing else, and end"
    )
    parser.add_argument("--grafana", type=Path, metavar="FILE.json", help="write a dashboard for Grafana, and end")
    parser.add_argument("--port", type=whole(0, 65535), default=PORT, help=f"0 takes a free one (default {PORT})")
    args = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    if args.grafana is not None:
        return _grafana(args.grafana)
    if not args.run:
        raise InputError("ssp board shows a run", "no RUN", "name a run's folder, or write --grafana FILE.json")
    if args.save is not None and args.save.suffix not in (".html", ".htm"):
        raise InputError("--save names an HTML file", args.save, "let the name end in .html")
    # Here, because --help needs none of it.
    from launch.cli import bind
    from ssp.views.board.data import Board
    from ssp.views.board.server import Server, save

    board = Board(RunFolder(existing(args.run)))
    board.look()
    if args.save is not None:
        try:
            kept = save(board, args.save)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise InputError(
                "--save names a file that can be made", f"{args.save} ({error})", "give another"
            ) from error
        say(f"{args.save}: {kept} questions with their transcripts")
        return 0
    end_politely()
    with bind(HOST, args.port) as listener:
        say(f"board of {board.run.name}: http://{HOST}:{listener.getsockname()[1]} (Ctrl-C ends it)")
        try:
            Server(board, listener).serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def _grafana(file: Path) -> int:
    """Write the dashboard; a file that is there stays."""
    from ssp.telemetry.published import grafana

    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(grafana())
    except FileExistsError as error:
        raise InputError(
            "--grafana names a file that does not exist yet", file, "give another, or remove it"
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError("--grafana names a file that can be made", f"{file} ({error})", "give another") from error
    say(f"{file}: import it in Grafana (Dashboards, New, Import), then choose the Prometheus source")
    return 0


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
