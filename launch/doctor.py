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


def main(argv: Sequence[str]) -> int:
    """Print the machine's checks, or a ledger's proof. Returns the exit code."""
    parsed = parse(argv, "doctor", "Check this machine, or a run's ledger.", flags)
    typed = parsed.flags.ledger
    only_digest = parsed.flags.digest
    if typed is None:
        if only_digest:
            raise InputError("--digest is of a ledger", "no --ledger", "give --ledger RUN too")
        return machine(parsed.load())
    given = Path(typed).expanduser()
    place = given if given.is_file() else RunFolder(existing(typed)).ledger
    with closing(Ledger(place, readonly=True)) as ledger:
        if not only_digest:
            return prove(ledger)
        say(ledger.digest())
        return 0


def machine(cfg: Config) -> int:
    """Print this machine's checks. Returns 0, or 1 where one fails."""
    from launch.shown import checks  # what --help does without
    from ssp.capacity.placement import beside, make, tables
    from ssp.capacity.placement.machine import nodes

    rows = []
    failed = set()
    for check in checks.examine(cfg):
        status = Text(check.status, COLOURS[check.status])
        rows.append((check.what, status, check.found, check.next_step))
        if check.status == checks.FAIL:
            failed.add(check.what)
    Terminal().print(table(("check", "", "found", "next step"), rows))
    if "memory" not in failed:
        hosts = tables.host_memory(make(cfg, nodes(cfg)), beside(cfg))
        say(f"\nMemory of the hosts, estimated\n{hosts}")
    return int(bool(failed))


def prove(ledger: Ledger) -> int:
    """Print counts by role and state, counts by cause, and whether the run's parts hold. Returns 0,
    or 1 where one is broken."""
    console = Terminal()
    issued = ledger.issued()
    tally = ledger.tally()
    roles = sorted(set(issued) | set(tally))
    counts = {
        state.value: [tally.get(role, {}).get(state.value, 0) for role in roles] for state in State
    }
    counts["sum"] = [sum(tally.get(role, {}).values()) for role in roles]
    counts["ever issued"] = [issued.get(role, 0) for role in roles]
    say(ledger.path)
    rows = [(name, *map(str, numbers)) for name, numbers in counts.items()]
    console.print(table(("state", *roles), rows))
    causes = ledger.outcomes()
    if causes:
        by_cause = [(name, str(number)) for name, number in causes.items()]
        console.print(table(("cause", "episodes"), by_cause))
    say(f"digest: {ledger.digest()}")
    proofs = _proofs(ledger)
    for name, broken in proofs.items():
        say(f"{name}: BROKEN: {'; '.join(broken)}" if broken else f"{name}: holds")
    return int(any(proofs.values()))


def _proofs(ledger: Ledger) -> dict[str, list[str]]:
    """Part of the run, where it is there → what is broken about it."""
    from ssp.record import episodes
    from ssp.selfplay import checkpoint

    place = RunFolder(ledger.path.parent)
    proofs: dict[str, list[str]] = {}
    try:  # what a resume asks
        state = checkpoint.read(place)
        if state is not None:
            checkpoint.check_whole(place, state, ledger)
            proofs["checkpoint"] = []
    except InputError as error:
        proofs["checkpoint"] = [f"{error.rule} ({error.found})"]
    if place.config.is_file() or place.episodes.is_dir():
        damaged = episodes.damaged(place.episodes, ledger.placed()).items()
        proofs["transcripts"] = [f"{place.episodes / file} is {what}" for file, what in damaged]
    proofs["conservation"] = []
    try:
        ledger.check()
    except InvariantError as error:
        proofs["conservation"] = [str(error)]
    return proofs


def flags(parser: Parser) -> None:
    """The options of `ssp doctor`."""
    parser.add_argument(
        "--ledger", metavar="RUN|FILE", help="prove a run's ledger, checkpoint and transcripts"
    )
    parser.add_argument(
        "--digest", action="store_true", help="with --ledger: print only the hash of its rows"
    )


if __name__ == "__main__":
    raise SystemExit(run(main))
