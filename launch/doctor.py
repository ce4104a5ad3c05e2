"""`ssp doctor`: is this machine fit for a run, and do a run's accounts add up?

Owns two reports: the machine's checks (`launch.checks`; a row each, with what to do), and a ledger's counts with its
conservation law, beside which the run's checkpoint and transcripts are compared with it. Promises to look only: it starts,
ends and changes nothing. Exit code 1 when a check fails or the law is broken. Refuses to repair.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from launch.checks.check import FAIL, OK, WARN, Check
from launch.cli import Parsed, Parser, parse
from ssp.base.episode import State
from ssp.base.errors import InputError, InvariantError
from ssp.base.models import existing
from ssp.base.printable import say
from ssp.capacity.memory import size
from ssp.capacity.placement import Plan, beside, make, short, tables
from ssp.capacity.placement.machine import nodes
from ssp.config.schema import Config
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.telemetry.terminal import Terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Print the machine's checks, or a ledger's proof. Returns the exit code."""
    parsed = parse(sys.argv[1:] if argv is None else argv, "doctor", "Check this machine, or a run's ledger.", _flags)
    if parsed.flags.ledger is not None:
        return _ledger(parsed)
    if parsed.flags.digest:
        raise InputError("--digest is of a ledger", "no --ledger", "give --ledger RUN too")
    cfg = parsed.load()
    checks = list(examine(cfg))
    table = Table(title="ssp doctor", title_justify="left")
    for name in ("check", "", "found", "next step"):
        table.add_column(name, overflow="fold")
    colours = {OK: "green", WARN: "yellow", FAIL: "red"}
    for check in checks:
        table.add_row(check.what, Text(check.status, style=colours[check.status]), check.found, check.next_step)
    Terminal().print(table)
    plan = _planned(cfg)
    if isinstance(plan, Plan):
        say(f"\nMemory of the hosts, estimated\n{tables.host_memory(plan, beside(cfg))}")
    return 1 if any(check.status == FAIL for check in checks) else 0


def examine(cfg: Config) -> Iterator[Check]:
    """Every check of this machine for a run of `cfg`."""
    from launch.checks import clusters, machine, needs, places  # what --help does without

    yield machine.python()
    yield from machine.packages()
    yield machine.cores()
    yield machine.gpus(cfg)
    yield _memory(cfg)
    yield machine.shared_memory(cfg)
    yield from places.run_folder(cfg)
    yield from needs.needs(cfg)
    yield from clusters.checks(cfg)


def _planned(cfg: Config) -> Plan | InputError:
    """The run on this machine, or on the nodes that `placement.nodes` describes; else why it does not fit."""
    try:
        return make(cfg, nodes(cfg))
    except InputError as error:
        return error


def _memory(cfg: Config) -> Check:
    plan = _planned(cfg)
    if isinstance(plan, InputError):
        return Check("memory", FAIL, f"{plan.rule}: {plan.found}", plan.next_step)
    if plan.placed:
        fullest = max(plan.used().values())
        return Check("memory", OK, f"the fullest GPU takes {size(fullest)}; ssp train --dry-run has the tables")
    if few := short(cfg, plan):
        return Check("memory", WARN, few[0], "ssp train --dry-run has the tables")
    needed, free = plan.host(0, cfg), plan.nodes[0].host
    left = f" of {size(free)} free" if free else ""
    return Check("memory", OK, f"the run takes {size(needed)}{left}")


def _ledger(parsed: Parsed) -> int:
    given = Path(parsed.flags.ledger).expanduser()
    ledger = Ledger(given if given.is_file() else RunFolder(existing(parsed.flags.ledger)).ledger, readonly=True)
    try:
        if not parsed.flags.digest:
            return _print_proof(ledger)
        say(ledger.digest())
        return 0
    finally:
        ledger.close()


def _print_proof(ledger: Ledger) -> int:
    """Counts by role and state, counts by cause, and the law's word as the last line."""
    console = Terminal()
    table = Table(title=str(ledger.path), title_justify="left")
    issued, tally = ledger.issued(), ledger.tally()
    roles = sorted(set(issued) | set(tally))
    for name in ("state", *roles):
        table.add_column(name, justify="right" if name in roles else "left")
    for state in State:
        table.add_row(state.value, *[str(tally.get(role, {}).get(state.value, 0)) for role in roles])
    table.add_section()
    table.add_row("sum", *[str(sum(tally.get(role, {}).values())) for role in roles])
    table.add_row("ever issued", *[str(issued.get(role, 0)) for role in roles])
    console.print(table)
    causes = ledger.outcomes()
    if causes:
        counts = Table(title="by cause", title_justify="left")
        counts.add_column("cause")
        counts.add_column("episodes", justify="right")
        for name, number in causes.items():
            counts.add_row(name, str(number))
        console.print(counts)
    say(f"digest: {ledger.digest()}")
    proofs = {"checkpoint": _checkpoint(ledger), "transcripts": _transcripts(ledger)}
    try:
        ledger.check()
        proofs["conservation"] = []
    except InvariantError as error:
        proofs["conservation"] = [str(error)]
    for name, broken in proofs.items():
        if broken is not None:
            say(f"{name}: BROKEN: {'; '.join(broken)}" if broken else f"{name}: holds")
    return 1 if any(proofs.values()) else 0


def _checkpoint(ledger: Ledger) -> list[str] | None:
    """What the checkpoint of the run around the ledger says otherwise; None where there is none."""
    from ssp.selfplay import checkpoint

    run = RunFolder(ledger.path.parent)
    try:
        state = checkpoint.read(run)
        return None if state is None else checkpoint.differences(run, state, ledger)
    except InputError as error:
        return [f"{error.rule} ({error.found})"]


def _transcripts(ledger: Ledger) -> list[str] | None:
    """Files of transcripts that are not as the ledger has them; None where no run is around it."""
    run = RunFolder(ledger.path.parent)
    if not (run.config.is_file() or run.episodes.is_dir()):
        return None
    from ssp.record import episodes

    return [
        f"{run.episodes / file} is {what}" for file, what in episodes.damaged(run.episodes, ledger.placed()).items()
    ]


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "--ledger", metavar="RUN|FILE", help="prove a run's ledger.db, and its checkpoint and transcripts by it"
    )
    parser.add_argument("--digest", action="store_true", help="with --ledger: print only the hash of its rows")


if __name__ == "__main__":
    from launch.main import run

    sys.exit(run(main, sys.argv[1:]))
