"""`ssp doctor`: is this machine fit for a run, and do a run's accounts add up? It looks only; exit
code 1: no."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.text import Text

from launch.cli import Parser, parse, run
from ssp.base.episode import State
from ssp.base.errors import InputError, InvariantError
from ssp.base.models import existing
from ssp.base.printable import say
from ssp.config.schema import Config
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.telemetry.terminal import Terminal, table

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the machine's checks, or a ledger's proof. Returns the exit code."""
    parsed = parse(argv, "doctor", "Check this machine, or a run's ledger.", _flags)
    if parsed.flags.digest and parsed.flags.ledger is None:
        raise InputError("--digest is of a ledger", "no --ledger", "give --ledger RUN too")
    if parsed.flags.ledger is None:
        return _machine(parsed.load())
    given = Path(parsed.flags.ledger).expanduser()
    place = given if given.is_file() else RunFolder(existing(parsed.flags.ledger)).ledger
    with closing(Ledger(place, readonly=True)) as ledger:
        if not parsed.flags.digest:
            return _prove(ledger)
        say(ledger.digest())
        return 0


def _machine(cfg: Config) -> int:
    from launch.shown import checks  # what --help does without
    from ssp.capacity.placement import beside, make, tables
    from ssp.capacity.placement.machine import nodes

    found = list(checks.examine(cfg))
    rows = [
        (check.what, Text(check.status, COLOURS[check.status]), check.found, check.next_step)
        for check in found
    ]
    Terminal().print(table(("check", "", "found", "next step"), rows))
    if all(check.status != checks.FAIL for check in found if check.what == "memory"):
        say(
            "\nMemory of the hosts,"
            f" estimated\n{tables.host_memory(make(cfg, nodes(cfg)), beside(cfg))}"
        )
    return int(any(check.status == checks.FAIL for check in found))


def _prove(ledger: Ledger) -> int:
    """Counts by role and state, counts by cause, and the law's word as the last line."""
    from ssp.record import episodes
    from ssp.selfplay import checkpoint

    console, issued, tally = Terminal(), ledger.issued(), ledger.tally()
    roles = sorted(set(issued) | set(tally))
    rows = [
        (state.value, *(str(tally.get(role, {}).get(state.value, 0)) for role in roles))
        for state in State
    ]
    rows.append(("sum", *(str(sum(tally.get(role, {}).values())) for role in roles)))
    rows.append(("ever issued", *(str(issued.get(role, 0)) for role in roles)))
    say(ledger.path)
    console.print(table(("state", *roles), rows))
    if causes := ledger.outcomes():
        console.print(
            table(("cause", "episodes"), [(name, str(number)) for name, number in causes.items()])
        )
    say(f"digest: {ledger.digest()}")
    place, proofs = RunFolder(ledger.path.parent), dict[str, list[str]]()
    try:  # what a resume asks
        if (state := checkpoint.read(place)) is not None:
            checkpoint.check_whole(place, state, ledger)
            proofs["checkpoint"] = []
    except InputError as error:
        proofs["checkpoint"] = [f"{error.rule} ({error.found})"]
    if place.config.is_file() or place.episodes.is_dir():
        damaged = episodes.damaged(place.episodes, ledger.placed())
        proofs["transcripts"] = [
            f"{place.episodes / file} is {what}" for file, what in damaged.items()
        ]
    try:
        ledger.check()
        proofs["conservation"] = []
    except InvariantError as error:
        proofs["conservation"] = [str(error)]
    for name, broken in proofs.items():
        say(f"{name}: BROKEN: {'; '.join(broken)}" if broken else f"{name}: holds")
    return int(any(proofs.values()))


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "--ledger", metavar="RUN|FILE", help="prove a run's ledger, checkpoint and transcripts"
    )
    parser.add_argument(
        "--digest", action="store_true", help="with --ledger: print only the hash of its rows"
    )


if __name__ == "__main__":
    raise SystemExit(run(main))
