"""`ssp compare RUN...`: runs beside each other, differences of pairs, each run's best checkpoint;
--json says the same."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from launch.cli import Parser, run
from ssp.base.errors import InputError
from ssp.base.models import existing
from ssp.base.printable import say
from ssp.record.runfolder import RunFolder
from ssp.selfplay.best import METRIC, PLAIN, usual
from ssp.telemetry.terminal import Terminal, table

Data = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it has shown what was asked for. Raises InputError."""
    parser = Parser("compare", "Show runs beside each other.")
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="runs' folders, or their names below runs/"
    )
    usually = f"default {METRIC}, or {PLAIN} where a run has none"
    parser.add_argument(
        "--metric", default="", metavar="NAME", help=f"a figure that is evaluated ({usually})"
    )
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    args = parser.parse_args(argv)
    # Here, because --help needs none of it.
    from ssp.views.compare.runs import Run, figures

    folders = [existing(text).absolute() for text in args.runs]
    if len(set(folders)) < len(folders):
        raise InputError(
            "a run is compared with others",
            f"{' '.join(args.runs)}: one twice",
            "name each run once",
        )
    found = [RunFolder(folder) for folder in folders]
    metric = args.metric or usual(found)
    told = figures([Run(folder, metric) for folder in found])
    if args.json:
        say(json.dumps(told, indent=1))
    else:
        show(Terminal(soft_wrap=True), told)
    return 0


def show(console: Console, found: Data) -> None:
    """The table of runs, what differs, the pairs, and each run's best checkpoint."""
    console.print(Text(f"{found['metric']}, with 95 % intervals over questions", style="bold"))
    rows = []
    for one in found["runs"]:
        values = [_value(one[name]) for name in ("start", "end", "best")]
        cost = f"{one['seconds']:,.0f}", f"{sum(one['voids'].values()):,}"
        rows.append((one["name"], str(one["steps"]), *values, *cost, one["ended"]))
    console.print(
        table(("run", "steps", "start", "end", "best", "seconds", "voids", "ended"), rows)
    )
    names = [one["name"] for one in found["runs"]]
    for key, values in found["settings"].items():
        said = ", ".join(f"{value!r} ({name})" for name, value in zip(names, values, strict=True))
        console.print(Text(f"{key}: {said}"))
    for versus in found["differences"]:
        for pair in versus["pairs"]:
            said = f"{pair['ours']} - {pair['theirs']} (same seed, same start): {_difference(pair)}"
            console.print(Text(said))
        if versus["mean"] is not None:
            known = sum(pair["difference"] is not None for pair in versus["pairs"])
            said = f"{known} pairs: {_shift(versus['mean'])} on average, the interval over pairs"
            console.print(Text(said, style="bold"))
    if len(names) > 1 and not found["differences"]:
        console.print(
            "no pairs: no two of these runs differ in a setting at the same seed and start"
        )
    for one in found["runs"]:
        console.print(_best(one))


def _value(point: Data) -> str:
    interval = point["interval"]
    return f"{point['value']:.3f}" + (
        f"\n{interval['low']:.2f}-{interval['high']:.2f}" if interval else ""
    )


def _difference(pair: Data) -> str:
    """A pair's difference, with the step that it was taken at; or why there is none."""
    if pair["step"] == 0:
        ours, theirs = pair["ends"]
        return (
            f"no step after the start at which both were evaluated (last steps {ours} and {theirs})"
        )
    if pair["difference"] is None:
        return f"no interval after step {pair['step']} (no question in common, or no accuracy)"
    said = (
        f"{_shift(pair['difference'])} over {pair['questions']:,} questions that both answered"
        f" after step {pair['step']}"
    )
    if pair["ends"] == [pair["step"]] * 2:
        return said
    return f"{said}, the last one at which both were evaluated"


def _shift(interval: Data) -> str:
    return f"{interval['mean']:+.3f} [{interval['low']:+.3f}, {interval['high']:+.3f}]"


def _best(run: Data) -> Text:
    """Where the best value's weights are."""
    best, kept = run["best"], run["checkpoint"]
    if best["step"] == 0:
        where = "that is what it started from"
    elif kept is None:
        where = "its checkpoint is not there (save.every, save.keep)"
    else:
        where = f"its checkpoint is v{kept['version']}, {kept['folder']}"
    said = (
        f"best of {run['evaluations']} evaluations {best['value']:.3f} at step {best['step']};"
        f" {where}"
    )
    return Text(f"{run['name']}: ", style="bold").append(said, style="none")


if __name__ == "__main__":
    raise SystemExit(run(main))
