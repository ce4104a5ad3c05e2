"""`ssp board RUN [RUN ...]`: runs as a page in the browser, which only this machine is shown, or
as one file; Grafana's dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from launch.cli import Parser, bind, end_politely, options, run, whole, writable
from ssp.base.errors import InputError, hold
from ssp.base.models import existing
from ssp.base.printable import say
from ssp.record.runfolder import RunFolder

if TYPE_CHECKING:
    from ssp.views.board.data import Board

HOST, PORT = "127.0.0.1", 8600
MOST = 4
"""Runs that lie over each other, at most."""


def main(argv: Sequence[str]) -> int:
    """Serve until Ctrl-C, or write the file. Raises InputError for what is no run, and for a taken
    port."""
    summary = "Show a run in the browser: curves, versions, duels, questions, who waits for whom."
    args = options(argv, "board", summary, flags)
    if not args.runs and args.grafana is None:
        raise InputError(
            "ssp board shows a run", "no RUN", "name a run's folder, or write --grafana FILE.json"
        )
    if args.save is not None and args.save.suffix not in (".html", ".htm"):
        raise InputError("--save names an HTML file", args.save, "let the name end in .html")
    if args.save or args.grafana:
        return write(args.runs, args.save, args.grafana)
    return serve(args.runs, args.port)


def write(runs: Sequence[str], save: Path | None, dashboard: Path | None) -> int:
    """Write a page of runs, Grafana's dashboard, or both. Returns 0."""
    # Here, because --help needs none of it.
    from ssp.telemetry.figures import grafana
    from ssp.views.board import saved

    rule = "--save names a file that can be made, --grafana one that is not there yet"
    with writable(rule, save or dashboard):
        if dashboard is not None:
            with dashboard.open("x", encoding="utf-8") as file:
                file.write(grafana())
            step = (
                "import it in Grafana (Dashboards, New, Import), then choose the Prometheus source"
            )
            say(f"{dashboard}: {step}")
        if save is not None:
            board = looked(runs)
            say(f"{save}: {saved.save(board, save)} questions with their transcripts")
    return 0


def serve(runs: Sequence[str], port: int) -> int:
    """Show runs in the browser until Ctrl-C. Returns 0."""
    from ssp.views.board.server import server

    board = looked(runs)
    end_politely()
    with bind(HOST, port) as listener, suppress(KeyboardInterrupt):
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        say(f"board of {board.run.name}: {url} (Ctrl-C ends it)")
        server(board).run(sockets=[listener])
    return 0


def looked(runs: Sequence[str]) -> Board:
    """The board of the first run, with the others over it. InputError for what is no run, and for
    more runs than lines can be told apart."""
    from ssp.views.board.data import Board

    rule = f"ssp board shows at most {MOST} runs over each other"
    hold(len(runs) <= MOST, rule, f"{len(runs)} runs", "name fewer; ssp compare has tables of many")
    first, *others = [RunFolder(existing(run)) for run in runs]
    board = Board(first, others)
    board.look()
    return board


def flags(parser: Parser) -> None:
    """The options of `ssp board`."""
    add = parser.add_argument
    help = "a run's folder, or its name below runs/; further ones lie over the first"
    add("runs", metavar="RUN", nargs="*", default=[], help=help)
    add("--save", type=Path, metavar="FILE.html", help="write one file that needs nothing else")
    add("--grafana", type=Path, metavar="FILE.json", help="write a dashboard for Grafana")
    add("--port", type=whole(0, 65535), default=PORT, help=f"0 takes a free one (default {PORT})")


if __name__ == "__main__":
    raise SystemExit(run(main))
