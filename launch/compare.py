"""`ssp compare RUN...`: runs beside each other, differences of pairs, and each run's best checkpoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from launch.cli import Parser
from ssp.base.errors import InputError
from ssp.base.models import existing
from ssp.base.printable import say
from ssp.record.runfolder import RunFolder
from ssp.selfplay.best import METRIC, PLAIN, usual
from ssp.telemetry.terminal import Terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it has shown what was asked for. Raises InputError."""
    parser = Parser("compare", "Show runs beside each other.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs' folders, or their names below runs/")
    usually = f"default {METRIC}, or {PLAIN} where a run has none"
    parser.add_argument("--metric", default="", metavar="NAME", help=f"a figure that is evaluated ({usually})")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    args = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    # Here, because --help needs none of it.
    from launch.records import compared
    from ssp.views.compare.pairs import paired
    from ssp.views.compare.runs import Run

    folders = [existing(text).absolute() for text in args.runs]
    twice = next((folder for folder in folders if folders.count(folder) > 1), None)
    if twice is not None:
        raise InputError("a run is compared with others", f"{twice}, twice", "name each run once")
    found = [RunFolder(folder) for folder in folders]
    metric = args.metric or usual(found)
    runs = [Run(folder, metric) for folder in found]
    told = compared.figures(runs, paired(runs))
    if args.json:
        say(json.dumps(told, indent=1))
    else:
        compared.show(Terminal(soft_wrap=True), told)
    return 0


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
