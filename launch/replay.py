"""`ssp replay RUN:EPISODE`: an episode of a run again, forced along its record.

Promises to write nothing, and that what is left out is said.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from launch import policy
from launch.cli import Parser, whole
from launch.inspect import find
from ssp.base.episode import ROLES, SOLVER
from ssp.base.errors import InputError
from ssp.base.models import existing
from ssp.capacity.memory import threads
from ssp.record.runfolder import RunFolder
from ssp.telemetry.terminal import Terminal
from ssp.views.replay.compared import BOUNDS

if TYPE_CHECKING:  # what --help does without
    from ssp.record.ledger.rows import EpisodeRow
    from ssp.views.replay.record import Found, Records


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when an episode comes out of its record otherwise. Raises InputError."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else list(argv))
    _check(args)
    console = Terminal(soft_wrap=True)
    return max(_replay(console, args, records, found) for records, found in _meant(console, args))


def _replay(console: Console, args: Namespace, records: Records, found: list[Found]) -> int:
    """One run's episodes."""
    from launch.records import replayed
    from ssp.views.replay.forced import Forced

    threads.use(threads.player(records.cfg, SOLVER))
    checked = Forced(records, args.bound).check(found)
    replayed.forced(console, found, checked)
    return int(any(not result.same for results in checked for result in results))


def _meant(console: Console, args: Namespace) -> list[tuple[Records, list[Found]]]:
    """The episodes that were typed, by run; with --all those of the run whose weights are still there."""
    from ssp.views.replay.record import Records, chosen

    if not args.all:
        runs: dict[Path, list[Found]] = {}
        for text in args.episodes:
            one = find(text)
            if not one.entry:
                raise InputError("an episode that is replayed stands in its run's ledger", text, "see ledger.db there")
            runs.setdefault(one.run.path, []).append(one)
        return [(Records(found[0].run, args.trust_code), found) for found in runs.values()]
    records = Records(RunFolder(existing(args.episodes[0])), args.trust_code)
    rows = [row for row in records.played(args.role) if (row["policy_version_min"] or -1) > 0]  # it wrote something
    if not rows:
        found = f"{records.run.path} has none" + (f" of role {args.role}" if args.role else "")
        raise InputError("--all replays the episodes that were played", found, "leave --role out, or let the run go on")
    return [(records, records.found(chosen(_there(console, records, rows), args.limit)))]


def _there(console: Console, records: Records, rows: list[EpisodeRow]) -> list[EpisodeRow]:
    """The rows whose versions all have weights; says how many have not. InputError when none has."""
    from ssp.views.replay.weights import KEEP, Weights

    weights = Weights(records.run, records.cfg, records.versions)
    found = weights.there(rows)
    kept = "; ".join(f"{role} {weights.said(role)}" for role in records.cfg.roles)
    if not found:
        rule = "episodes are replayed with the checkpoint of their version"
        raise InputError(rule, f"{len(rows)} episodes, none of a version that is there: {kept}", KEEP)
    if len(found) < len(rows):
        left = f"{len(rows) - len(found):,} of {len(rows):,} episodes are left out"
        console.print(Text(f"{left}: their checkpoints are gone (save.keep). There are: {kept}"))
    return found


def _check(args: Namespace) -> None:
    """What can be refused before anything is read."""
    if args.all and len(args.episodes) != 1:
        raise InputError("--all is for one run", f"{len(args.episodes)} names", "give the run's folder alone")
    for name in ("limit", "role"):
        if getattr(args, name) and not args.all:
            raise InputError(f"--{name} is for --all", "no --all", f"leave --{name} out")


def _bound(text: str) -> float:
    """A finite number of at least 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of at least 0, not {text!r}")
    return value


def _parser() -> Parser:
    parser = Parser("replay", "Play an episode of a run again from its record, and compare.")
    parser.add_argument(
        "episodes", nargs="+", metavar="RUN:EPISODE", help="an episode's id, or FILE.parquet:ROW; with --all the RUN"
    )
    policy.trust_flag(parser)
    parser.add_argument("--forced", action="store_true", help="along the record: the default, and the only way")
    said = ", ".join(f"{bound:g} for {dtype}" for dtype, bound in BOUNDS.items())
    parser.add_argument("--bound", type=_bound, metavar="X", help=f"of log-probs (default by engine.dtype: {said})")
    parser.add_argument("--all", action="store_true", help="every episode of RUN whose checkpoint is there")
    parser.add_argument("--limit", type=whole(1), metavar="N", help="with --all: so many, spread over the run")
    parser.add_argument("--role", choices=[*ROLES, "eval"], default="", help="with --all: of this role only")
    return parser


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
