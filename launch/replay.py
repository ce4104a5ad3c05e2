"""`ssp replay RUN:EPISODE`: replays an episode along its record. Writes nothing, and says what it
leaves out."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from launch import policy
from launch.cli import Parser, number, options, run, whole
from launch.inspect import find
from launch.shown import transcript
from ssp.base.episode import EVAL
from ssp.base.errors import hold
from ssp.base.models import existing
from ssp.capacity.memory import threads
from ssp.record.runfolder import RunFolder
from ssp.telemetry.terminal import Terminal, table
from ssp.views.replay.compared import BOUNDS, Result

if TYPE_CHECKING:  # what --help does without
    from ssp.views.replay.record import RecordedEpisode, Records


def main(argv: Sequence[str]) -> int:
    """Run the command. Returns 0, or 1 when an episode comes out of its record otherwise. Raises
    InputError."""
    summary = "Play an episode of a run again from its record, and compare."
    args = options(argv, "replay", summary, flags)
    names = len(args.episodes)
    step = "give the run's folder alone"
    hold(not args.all or names == 1, "--all is for one run", f"{names} names", step)
    rule = "--limit and --role are for --all"
    hold(args.all or not (args.limit or args.role), rule, "no --all", "leave them out")
    from ssp.views.replay.forced import Forced

    console = Terminal(soft_wrap=True)
    same = True
    for records, episodes in _whole(console, args) if args.all else _typed(args):
        threads.use(threads.player(records.cfg, records.cfg.spec.answerer))
        results = Forced(records, args.bound).check(episodes)
        _show(console, episodes, results)
        same = same and all(result.same for compared in results for result in compared)
    return int(not same)


def _typed(args: Namespace) -> list[tuple[Records, list[RecordedEpisode]]]:
    """The episodes that were typed, by run."""
    from ssp.views.replay.record import Records

    runs: dict[Path, list[RecordedEpisode]] = {}
    for text in args.episodes:
        played = find(text)
        runs.setdefault(played.run.path, []).append(played)
    return [(Records(episodes[0].run, args.trust_code), episodes) for episodes in runs.values()]


def _whole(console: Console, args: Namespace) -> list[tuple[Records, list[RecordedEpisode]]]:
    """The episodes of one run whose weights are still there, at most `--limit`."""
    from ssp.views.replay.record import KEEP, Records, Weights, chosen

    records = Records(RunFolder(existing(args.episodes[0])), args.trust_code)
    roles = ["", *records.cfg.spec.role_blocks, EVAL]
    rule = f"--role is {', '.join(roles[1:])}"
    hold(args.role in roles, rule, args.role, "name one of these, or leave it out")
    # those of a version wrote something
    rows = [row for row in records.played(args.role) if (row["policy_version_min"] or -1) > 0]
    there = Weights(records.run, records.cfg, records.versions).there(rows)
    rule = "episodes are replayed with the checkpoint of their version"
    hold(there, rule, f"{len(rows)} episodes, none of a version that is there", KEEP)
    if len(there) < len(rows):
        left = f"{len(rows) - len(there):,} of {len(rows):,} episodes are left out"
        console.print(Text(f"{left}: their checkpoints are gone (save.keep)"))
    return [(records, records.episodes(chosen(there, args.limit)))]


def _show(
    console: Console, episodes: Sequence[RecordedEpisode], results: Sequence[Sequence[Result]]
) -> None:
    """Print what was compared of one episode, or a line each of many; and what of all."""
    if len(episodes) == 1:
        (played,) = episodes
        drawn = ", ".join(f"v{version}" for version in played.versions)
        who = f"the {played.episode.role}'s {drawn}"
        console.print(Text(f"{played.episode.id}, {who}, forced along its record", style="bold"))
        for result in results[0]:
            console.print(transcript.comparison(result))
    else:
        rows = [_line(played, compared) for played, compared in zip(episodes, results, strict=True)]
        headings = ("episode", "role", "versions", "drawn tokens", "log-probs differ by", "result")
        console.print(table(headings, rows))

    flat = [result for compared in results for result in compared]
    logprobs = [result for result in flat if result.what == "log-probs"]
    largest = max((result.largest for result in logprobs), default=0.0)
    count = sum(result.count for result in logprobs)
    untold = sum(result.untold for result in flat)
    firsts = [_first(compared) for compared in results]
    same = firsts.count(None)
    said = f"played as recorded: {same:,} of {len(episodes):,} the same; the log-probs of {count:,}"
    said += f" drawn tokens differ by {largest:.2g} at most"
    style = "bold green"
    if untold:
        said += f"; {untold:,} comparisons could not be made"
        style = "bold yellow"
    if same < len(episodes):
        style = "bold red"
    console.print(Text(said, style=style))
    for played, first in zip(episodes, firsts, strict=True):
        if first is not None:
            place = f"first difference, in {played.episode.id}: {first}"
            console.print(Text(place, style="bold red"))
            break


def _first(compared: Sequence[Result]) -> Result | None:
    """What differs first: at the earliest token, then what has no place."""
    differing = [result for result in compared if not result.same]
    return min(differing, key=lambda result: (result.at is None, result.at or 0), default=None)


def _line(played: RecordedEpisode, compared: Sequence[Result]) -> tuple[str, ...]:
    """An episode's row in the table of many."""
    (measured,) = [result for result in compared if result.what == "log-probs"]
    untold = ", ".join(result.what for result in compared if result.untold)
    same = f"same, but {untold} not compared" if untold else "same"
    return (
        played.episode.id,
        played.entry.get("role", played.episode.role),
        ", ".join(f"v{version}" for version in played.versions),
        str(measured.count),
        f"{measured.largest:.1e}",
        str(_first(compared) or same),
    )


def flags(parser: Parser) -> None:
    """The options of `ssp replay`."""
    add = parser.add_argument
    add("episodes", nargs="+", metavar="RUN:EPISODE", help="with --all the RUN alone")
    policy.trust_flag(parser)
    said = ", ".join(f"{bound:g} for {dtype}" for dtype, bound in BOUNDS.items())
    add(
        "--bound",
        type=number(0),
        metavar="X",
        help=f"of log-probs (default by engine.dtype: {said})",
    )
    add("--all", action="store_true", help="every episode of RUN whose checkpoint is there")
    add("--limit", type=whole(1), metavar="N", help="with --all: so many, spread over the run")
    add("--role", default="", metavar="ROLE", help="with --all: of this role of the game, or eval")


if __name__ == "__main__":
    raise SystemExit(run(main))
