"""`ssp board RUN`: a run as a page in the browser, which only this machine is shown, or as one
file; Grafana's dashboard."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from launch.cli import Parser, bind, end_politely, options, run, whole, writable
from ssp.base.errors import InputError
from ssp.base.models import existing
from ssp.base.printable import say
from ssp.record.runfolder import RunFolder

HOST, PORT = "127.0.0.1", 8600


def main(argv: Sequence[str]) -> int:
    """Serve until Ctrl-C, or write the file. Raises InputError for what is no run, and for a taken
    port."""
    summary = "Show a run in the browser: curves, versions, duels, questions, who waits for whom."
    args = options(argv, "board", summary, flags)
    if not args.run and args.grafana is None:
        raise InputError(
            "ssp board shows a run", "no RUN", "name a run's folder, or write --grafana FILE.json"
        )
    if args.save is not None and args.save.suffix not in (".html", ".htm"):
        raise InputError("--save names an HTML file", args.save, "let the name end in .html")
    if args.save or args.grafana:
        return write(args.run, args.save, args.grafana)
    return serve(args.run, args.port)


def write(run: str, save: Path | None, dashboard: Path | None) -> int:
    """Write a run's page, Grafana's dashboard, or both. Returns 0."""
    # Here, because --help needs none of it.
    from ssp.telemetry.figures import grafana
    from ssp.views.board import saved
    from ssp.views.board.data import Board

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
            board = Board(RunFolder(existing(run)))
            board.look()
            say(f"{save}: {saved.save(board, save)} questions with their transcripts")
    return 0


def serve(run: str, port: int) -> int:
    """Show a run in the browser until Ctrl-C. Returns 0."""
    from ssp.views.board.data import Board
    from ssp.views.board.server import server

    board = Board(RunFolder(existing(run)))
    board.look()
    end_politely()
    with bind(HOST, port) as listener, suppress(KeyboardInterrupt):
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        say(f"board of {board.run.name}: {url} (Ctrl-C ends it)")
        server(board).run(sockets=[listener])
    return 0


def flags(parser: Parser) -> None:
    """The options of `ssp board`."""
    add = parser.add_argument
    add("run", metavar="RUN", nargs="?", default="", help="a run's folder, or its name below runs/")
    add("--save", type=Path, metavar="FILE.html", help="write one file that needs nothing else")
    add("--grafana", type=Path, metavar="FILE.json", help="write a dashboard for Grafana")
    add("--port", type=whole(0, 65535), default=PORT, help=f"0 takes a free one (default {PORT})")


if __name__ == "__main__":
    raise SystemExit(run(main))
