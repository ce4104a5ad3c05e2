"""`ssp compare RUN...`: runs beside each other, differences of pairs, each run's best checkpoint;
--json says the same."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from launch.cli import Parser, options, run
from ssp.base.errors import InputError
from ssp.base.models import existing
from ssp.base.printable import say
from ssp.record.runfolder import RunFolder
from ssp.selfplay.best import METRIC, PLAIN, usual
from ssp.telemetry.terminal import Terminal, table

Data = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Run the command; 0 when it has shown what was asked for. Raises InputError."""
    summary = "Show runs beside each other."
    args = options(argv, "compare", summary, flags)
    # Here, because --help needs none of it.
    from ssp.views.compare.runs import Run, figures

    folders = [existing(text).absolute() for text in args.runs]
    if len(set(folders)) < len(folders):
        typed = " ".join(args.runs)
        rule = "a run is compared with others"
        raise InputError(rule, f"{typed}: one twice", "name each run once")
    runs = [RunFolder(folder) for folder in folders]
    metric = args.metric or usual(runs)
    told = figures([Run(folder, metric) for folder in runs])
    if args.json:
        say(json.dumps(told, indent=1))
    else:
        show(Terminal(soft_wrap=True), told)
    return 0


def show(console: Console, told: Data) -> None:
    """Print the table of runs, what differs, the pairs, and each run's best checkpoint."""
    runs = told["runs"]
    console.print(Text(f"{told['metric']}, with 95 % intervals over questions", style="bold"))
    rows = []
    for run_ in runs:
        row = [run_["name"], str(run_["steps"])]
        for name in ("start", "end", "best"):
            value = f"{run_[name]['value']:.3f}"
            interval = run_[name]["interval"]
            if interval:
                value += f"\n{interval['low']:.2f}-{interval['high']:.2f}"
            row.append(value)
        cost = f"{run_['seconds']:,.0f}", f"{sum(run_['voids'].values()):,}"
        rows.append([*row, *cost, run_["ended"]])
    headings = ("run", "steps", "start", "end", "best", "seconds", "voids", "ended")
    console.print(table(headings, rows))

    names = [run_["name"] for run_ in runs]
    for key, values in told["settings"].items():
        each = ", ".join(f"{value!r} ({name})" for name, value in zip(names, values, strict=True))
        console.print(Text(f"{key}: {each}"))
    for versus in told["differences"]:
        for pair in versus["pairs"]:
            who = f"{pair['ours']} - {pair['theirs']} (same seed, same start)"
            console.print(Text(f"{who}: {_difference(pair)}"))
        if versus["mean"] is not None:
            known = sum(pair["difference"] is not None for pair in versus["pairs"])
            mean = f"{known} pairs: {_shift(versus['mean'])} on average, the interval over pairs"
            console.print(Text(mean, style="bold"))
    if len(names) > 1 and not told["differences"]:
        console.print(
            "no pairs: no two of these runs differ in a setting at the same seed and start"
        )
    for run_ in runs:
        console.print(_best(run_))


def _difference(pair: Data) -> str:
    """A pair's difference, with the step that it was taken at; or why there is none."""
    step = pair["step"]
    if step == 0:
        ours, theirs = pair["ends"]
        last = f"last steps {ours} and {theirs}"
        return f"no step after the start at which both were evaluated ({last})"
    if pair["difference"] is None:
        return f"no interval after step {step} (no question in common, or no accuracy)"
    said = f"{_shift(pair['difference'])} over {pair['questions']:,} questions that both answered"
    said += f" after step {step}"
    if pair["ends"] == [step, step]:
        return said
    return f"{said}, the last one at which both were evaluated"


def _shift(interval: Data) -> str:
    return f"{interval['mean']:+.3f} [{interval['low']:+.3f}, {interval['high']:+.3f}]"


def _best(run: Data) -> Text:
    """Where the best value's weights are."""
    best = run["best"]
    kept = run["checkpoint"]
    if best["step"] == 0:
        where = "that is what it started from"
    elif kept is None:
        where = "its checkpoint is not there (save.every, save.keep)"
    else:
        where = f"its checkpoint is v{kept['version']}, {kept['folder']}"
    said = f"best of {run['evaluations']} evaluations {best['value']:.3f} at step {best['step']}"
    said += f"; {where}"
    return Text(f"{run['name']}: ", style="bold").append(said, style="none")


def flags(parser: Parser) -> None:
    """The options of `ssp compare`."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="runs' folders, or their names below runs/")
    usually = f"default {METRIC}, or {PLAIN} where a run has none"
    add("--metric", default="", metavar="NAME", help=f"a figure that is evaluated ({usually})")
    add("--json", action="store_true", help="everything as JSON")


if __name__ == "__main__":
    raise SystemExit(run(main))
