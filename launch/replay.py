"""`ssp replay RUN:EPISODE`: an episode of a run again, forced along its record. Writes nothing;
what is left out is said."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from launch import policy
from launch.cli import Parser, number, run, whole
from launch.inspect import find
from launch.shown import transcript
from ssp.base.episode import ROLES
from ssp.base.errors import InputError, hold
from ssp.base.models import existing
from ssp.capacity.memory import threads
from ssp.record.runfolder import RunFolder
from ssp.telemetry.terminal import Terminal, table
from ssp.views.replay.compared import BOUNDS, Result

if TYPE_CHECKING:  # what --help does without
    from ssp.views.replay.record import Found, Records


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when an episode comes out of its record otherwise. Raises
    InputError."""
    args = _parser().parse_args(argv)
    if args.all and len(args.episodes) != 1:
        raise InputError(
            "--all is for one run", f"{len(args.episodes)} names", "give the run's folder alone"
        )
    hold(
        args.all or not (args.limit or args.role),
        "--limit and --role are for --all",
        "no --all",
        "leave them out",
    )
    from ssp.views.replay.forced import Forced

    console, same = Terminal(soft_wrap=True), True
    for records, found in _meant(console, args):
        threads.use(threads.player(records.cfg, records.cfg.spec.answerer))
        checked = Forced(records, args.bound).check(found)
        _show(console, found, checked)
        same = same and all(result.same for results in checked for result in results)
    return int(not same)


def _meant(console: Console, args: Namespace) -> list[tuple[Records, list[Found]]]:
    """The episodes that were typed, by run; with --all those of the run whose weights are still
    there."""
    from ssp.views.replay.record import KEEP, Records, Weights, chosen

    if not args.all:
        runs: dict[Path, list[Found]] = {}
        for text in args.episodes:
            one = find(text)
            runs.setdefault(one.run.path, []).append(one)
        return [(Records(found[0].run, args.trust_code), found) for found in runs.values()]
    records = Records(RunFolder(existing(args.episodes[0])), args.trust_code)
    # it wrote something
    rows = [row for row in records.played(args.role) if (row["policy_version_min"] or -1) > 0]
    there = Weights(records.run, records.cfg, records.versions).there(rows)
    rule = "episodes are replayed with the checkpoint of their version"
    hold(there, rule, f"{len(rows)} episodes, none of a version that is there", KEEP)
    if len(there) < len(rows):
        left = f"{len(rows) - len(there):,} of {len(rows):,} episodes are left out"
        console.print(Text(f"{left}: their checkpoints are gone (save.keep)"))
    return [(records, records.found(chosen(there, args.limit)))]


def _show(console: Console, found: Sequence[Found], results: Sequence[Sequence[Result]]) -> None:
    """What was compared of one episode, or a line each of many; and what of all."""
    if len(found) == 1:
        for result in results[0]:
            console.print(transcript.comparison(result))
    else:
        rows = [_line(one, compared) for one, compared in zip(found, results, strict=True)]
        console.print(table(("episode", "role", "versions", "sampled", "largest", "result"), rows))
    flat = [result for compared in results for result in compared]
    logprobs = [result for result in flat if result.what == "log-probs"]
    untold = sum(result.untold for result in flat)
    largest, count = (
        max((result.largest for result in logprobs), default=0.0),
        sum(one.count for one in logprobs),
    )
    differing = [(one, _first(compared)) for one, compared in zip(found, results, strict=True)]
    differing = [(one, first) for one, first in differing if first is not None]
    said = (
        f"{len(found) - len(differing):,} of {len(found):,} the same; largest difference of"
        f" {count:,} log-probs "
    )
    more = f"; {untold:,} comparisons could not be made" if untold else ""
    style = "bold red" if differing else "bold yellow" if untold else "bold green"
    console.print(Text(f"{said}{largest:.2g}{more}", style=style))
    for one, first in differing[:1]:
        console.print(Text(f"first difference, in {one.episode.id}: {first}", style="bold red"))


def _first(compared: Sequence[Result]) -> Result | None:
    """What differs first: at the earliest token, then what has no place."""
    differing = [result for result in compared if not result.same]
    return min(differing, key=lambda result: (result.at is None, result.at or 0), default=None)


def _line(one: Found, compared: Sequence[Result]) -> tuple[str, ...]:
    (measured,) = [result for result in compared if result.what == "log-probs"]
    untold = ", ".join(result.what for result in compared if result.untold)
    result = str(_first(compared) or (f"same, but {untold} not compared" if untold else "same"))
    role, versions = (
        one.entry.get("role", one.episode.role),
        ", ".join(f"v{version}" for version in one.versions),
    )
    return one.episode.id, role, versions, str(measured.count), f"{measured.largest:.1e}", result


def _parser() -> Parser:
    parser = Parser("replay", "Play an episode of a run again from its record, and compare.")
    parser.add_argument(
        "episodes", nargs="+", metavar="RUN:EPISODE", help="with --all the RUN alone"
    )
    policy.trust_flag(parser)
    said = ", ".join(f"{bound:g} for {dtype}" for dtype, bound in BOUNDS.items())
    parser.add_argument(
        "--bound",
        type=number(0),
        metavar="X",
        help=f"of log-probs (default by engine.dtype: {said})",
    )
    parser.add_argument(
        "--all", action="store_true", help="every episode of RUN whose checkpoint is there"
    )
    parser.add_argument(
        "--limit", type=whole(1), metavar="N", help="with --all: so many, spread over the run"
    )
    parser.add_argument(
        "--role", choices=[*ROLES, "eval"], default="", help="with --all: of this role only"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(run(main))
