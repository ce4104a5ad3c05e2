"""`ssp replay RUN:ID`: an episode of a run again, forced along its record, sampled anew, or played by another policy.

Owns the command: which episodes are meant, which weights, and the exit code. Promises to write nothing, and that what is
left out is said. Refuses to compare: that is `ssp.replay`'s.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.text import Text

from launch import policy
from launch.cli import Parser, whole
from launch.inspect import find
from launch.questions.regrade import played_in
from launch.records import replayed
from ssp.episode import PROPOSER, ROLES
from ssp.errors import InputError
from ssp.replay.again import Again, exact, live
from ssp.replay.forced import BOUND, Forced
from ssp.replay.record import Found, Records, Row, chosen
from ssp.replay.weights import Weights
from ssp.runfolder import RunFolder
from ssp.selfplay.stages import EVAL


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 1 when a forced replay differs, or a resampled one whose engine promises that it does
    not. Raises InputError."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else list(argv))
    _check(args)
    torch.set_num_threads(1)
    console = Console(highlight=False, soft_wrap=True)
    return max(_replay(console, args, records, found) for records, found in _meant(console, args))


def _replay(console: Console, args: Namespace, records: Records, found: list[Found]) -> int:
    """One run's episodes in the way that was asked for."""
    if args.live:
        return _live(console, args, records, found)
    forced = Forced(records, _weights(args, records, found), args.bound)
    if args.resample:
        results = Again(records, forced.weights, _weights(args, records, found)).resample(found)
        replayed.resampled(console, results, forced.renderer)
        return int(any(not one.exact and exact(records.cfg, one.found.policy) for one in results))
    checked = forced.check(found)
    replayed.forced(console, found, checked)
    return int(any(not result.same for results in checked for result in results))


def _live(console: Console, args: Namespace, records: Records, found: list[Found]) -> int:
    """Each task played by the policy that was named; both transcripts' ends."""
    named = policy.parse(args)
    for one in found:
        role = one.policy if "@" not in args.policy else named.role
        if named.url and role == PROPOSER:
            raise InputError("a server plays the solver's tasks", one.episode.id, "name a policy's folder or a run")
        chosen_by = replace(named, role=role)
        cfg = played_in(chosen_by.config(None, []), records.cfg)
        folder = chosen_by.folder(cfg)
        now = live(records, one, cfg, folder)
        replayed.side_by_side(console, one, now, cfg.protocol, chosen_by.shown(folder))
    return 0


def _weights(args: Namespace, records: Records, found: Sequence[Found]) -> Path | None:
    """The folder that --policy names; None without one."""
    if not args.policy:
        return None
    named = policy.parse(args)
    if named.url:
        raise InputError("log-probs come from weights", f"--policy {args.policy}", "give a folder, or --live")
    roles = {one.policy for one in found}
    if "@" not in args.policy and len(roles) == 1:
        named = replace(named, role=roles.pop())
    return named.folder(records.cfg)


def _meant(console: Console, args: Namespace) -> list[tuple[Records, list[Found]]]:
    """The episodes that were typed, by run; with --all those of the run whose weights are still there."""
    if not args.all:
        runs: dict[Path, list[Found]] = {}
        for text in args.episodes:
            one = find(text)
            if not one.entry:
                raise InputError("an episode that is replayed stands in its run's ledger", text, "see ledger.db there")
            runs.setdefault(one.run.path, []).append(one)
        return [(Records(found[0].run), found) for found in runs.values()]
    records = Records(RunFolder(policy.existing(args.episodes[0])))
    rows = [row for row in records.played(args.role) if (row["policy_version_min"] or -1) > 0]  # it wrote something
    if not rows:
        found = f"{records.run.path} has none" + (f" of role {args.role}" if args.role else "")
        raise InputError("--all replays the episodes that were played", found, "leave --role out, or let the run go on")
    there = rows if args.policy else _there(console, records, rows)
    return [(records, records.found(chosen(there, args.limit)))]


def _there(console: Console, records: Records, rows: list[Row]) -> list[Row]:
    """The rows whose versions all have weights; says how many have not. InputError when none has."""
    weights = Weights(records.run, records.cfg, records.versions)
    found = weights.there(rows)
    kept = "; ".join(f"{role} {weights.said(role)}" for role in records.cfg.roles)
    if not found:
        rule = "episodes are replayed with the checkpoint of their version"
        raise InputError(rule, f"{len(rows)} episodes, none of a version that is there: {kept}", "name --policy DIR")
    if len(found) < len(rows):
        left = f"{len(rows) - len(found):,} of {len(rows):,} episodes are left out"
        console.print(Text(f"{left}: their checkpoints are gone (save.keep). There are: {kept}"))
    return found


def _check(args: Namespace) -> None:
    """What can be refused before anything is read."""
    if args.live and not args.policy:
        raise InputError("--live plays with another policy", "no --policy", "name one: --policy DIR|RUN|role@RUN|URL")
    if args.all and (len(args.episodes) != 1 or args.live):
        found = "--live" if args.live else f"{len(args.episodes)} names"
        raise InputError("--all is for one run, forced or resampled", found, "give the run's folder alone")
    for name in ("limit", "role"):
        if getattr(args, name) and not args.all:
            raise InputError(f"--{name} is for --all", "no --all", f"leave --{name} out")


def _parser() -> Parser:
    parser = Parser("replay", "Play an episode of a run again from its record, and compare.")
    parser.add_argument(
        "episodes", nargs="+", metavar="RUN:ID", help="ids of a run's ledger, or FILE.parquet:row; with --all the RUN"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--forced", action="store_true", help="along the record, log-probs from its checkpoint (the default)"
    )
    way.add_argument("--resample", action="store_true", help="sampled again, from its seed and checkpoint")
    way.add_argument("--live", action="store_true", help="the same task and seed, played by --policy")
    policy.add_flags(parser)
    parser.add_argument("--bound", type=float, default=BOUND, metavar="X", help=f"of log-probs (default {BOUND:g})")
    parser.add_argument("--all", action="store_true", help="every episode of RUN whose checkpoint is there")
    parser.add_argument("--limit", type=whole(1), metavar="N", help="with --all: so many, spread over the run")
    parser.add_argument("--role", choices=[*ROLES, EVAL], default="", help="with --all: of this role only")
    return parser


if __name__ == "__main__":
    from launch.main import run

    raise SystemExit(run(main, sys.argv[1:]))
