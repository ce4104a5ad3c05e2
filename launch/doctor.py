"""`ssp doctor`: is this machine fit for a run, and do a run's accounts add up?

Owns two reports: the machine's checks (a row each, with what to do), and a ledger's counts with its conservation law.
Promises to look only: it starts, ends and changes nothing. Exit code 1 when a check fails or the law is broken.
Refuses to repair.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table

from launch.cli import Parsed, Parser, parse
from ssp.config.schema import Config
from ssp.episode import State
from ssp.errors import InputError, InvariantError
from ssp.ledger import Ledger
from ssp.memory import size
from ssp.placement import machine, make
from ssp.runfolder import START_BYTES, resolve

OK, WARN, FAIL = "ok", "warn", "fail"
NEEDED = (
    "torch transformers tokenizers huggingface_hub safetensors numpy ray omegaconf bm25s pyarrow tensorboardX rich "
    "uvicorn httpx regex openai math-verify"
).split()
EXTRAS = ("vllm", "deepspeed", "faiss-gpu")
SHM_BYTES = 64_000_000
RAY_FOLDER = Path("/tmp/ray")


@dataclass(frozen=True)
class Check:
    """One row: what was looked at, `ok`, `warn` or `fail`, what was found, and what to do about it."""

    what: str
    status: str
    found: str
    next_step: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the machine's checks, or a ledger's proof. Returns the exit code."""
    parsed = parse(sys.argv[1:] if argv is None else argv, "doctor", "Check this machine, or a run's ledger.", _flags)
    if parsed.flags.ledger is not None:
        return _ledger(parsed)
    if parsed.flags.digest:
        raise InputError("--digest is of a ledger", "no --ledger", "give --ledger FILE too")
    checks = list(examine(parsed.load()))
    table = Table(title="ssp doctor", title_justify="left")
    for name in ("check", "", "found", "next step"):
        table.add_column(name, overflow="fold")
    colours = {OK: "green", WARN: "yellow", FAIL: "red"}
    for check in checks:
        table.add_row(check.what, f"[{colours[check.status]}]{check.status}[/]", check.found, check.next_step)
    Console().print(table)
    return 1 if any(check.status == FAIL for check in checks) else 0


def examine(cfg: Config) -> Iterator[Check]:
    """Every check of this machine for a run of `cfg`."""
    version = sys.version_info
    good = (3, 11) <= version[:2] < (3, 13)
    yield Check(
        "python", OK if good else FAIL, platform.python_version(), "" if good else "install Python 3.11 or 3.12"
    )
    yield from _packages()
    yield _cores()
    yield _plan(cfg)
    shm = Path("/dev/shm")
    needed = max(SHM_BYTES, cfg.ray.object_store_mb * 1_000_000)
    if shm.is_dir():
        yield _bytes(
            "/dev/shm", shutil.disk_usage(shm).free, needed, WARN, "ray.object_store_mb must fit; or mount it larger"
        )
    runs = resolve(cfg.run.dir or "runs")
    while not runs.exists():
        runs = runs.parent
    yield _bytes(f"disk at {runs}", shutil.disk_usage(runs).free, START_BYTES, FAIL, "free some space, or set run.dir")
    if cfg.ray.dashboard:
        yield _port(cfg.ray.dashboard_port)
    yield _ray(os.environ.get("RAY_ADDRESS", ""), RAY_FOLDER / "ray_current_cluster")


def _packages() -> Iterator[Check]:
    for name in (*NEEDED, *EXTRAS):
        try:
            yield Check(name, OK, metadata.version(name))
        except metadata.PackageNotFoundError:
            if name in NEEDED:
                yield Check(name, FAIL, "not installed", "run pip install . in this environment")


def _cores() -> Check:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = machine.first_number(Path("/sys/fs/cgroup/cpu.max"))
    quota = f", limited to {limit / 100_000:.1f}" if limit else ""
    usable = min(count, limit / 100_000) if limit else count
    return Check(
        "cores", OK if usable >= 2 else WARN, f"{count}{quota}", "" if usable >= 2 else "a run is slow below 2"
    )


def _plan(cfg: Config) -> Check:
    """Whether the run fits this machine, or the nodes that `placement.nodes` describes."""
    nodes = machine.nodes(cfg)
    try:
        plan = make(cfg, nodes)
    except InputError as error:
        return Check("memory", FAIL, f"{error.rule}: {error.found}", error.next_step)
    if plan.placed:
        fullest = max(plan.used().values())
        return Check("memory", OK, f"the fullest GPU takes {size(fullest)}; ssp train --dry-run has the tables")
    needed = plan.host(0, cfg)
    left = f" of {size(nodes[0].host)} free" if nodes[0].host else ""
    return Check("memory", OK, f"the run takes {size(needed)}{left}")


def _bytes(what: str, free: int, needed: int, status: str, next_step: str) -> Check:
    found = f"{free / 1e9:.1f} GB free"
    if free >= needed:
        return Check(what, OK, found)
    return Check(what, status, f"{found}, {needed / 1e9:.1f} GB wanted", next_step)


def _port(port: int) -> Check:
    if not port:
        return Check("dashboard port", OK, "the first free one")
    with socket.socket() as probe:
        # Ray sets the same option: a port that is only in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            next_step = "set ray.dashboard_port to another port, or ray.dashboard=false"
            return Check("dashboard port", WARN, f"{port}: {error.strerror}", next_step)
    return Check("dashboard port", OK, f"{port} is free")


def _ray(given: str, file: Path) -> Check:
    """A cluster that a run would join (RAY_ADDRESS), or one that an earlier run left behind."""
    address = given or (file.read_text().strip() if file.is_file() else "")
    if not address:
        return Check("ray cluster", OK, "none is running; train starts its own")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    named = bool(host) and port.isdigit()
    alive = named and _answers(host, int(port))
    if given:
        if named and not alive:
            return Check(
                "ray cluster", FAIL, f"RAY_ADDRESS={given} does not answer", "start that cluster, or unset RAY_ADDRESS"
            )
        return Check("ray cluster", OK, f"train joins RAY_ADDRESS={given}")
    if alive:
        return Check(
            "ray cluster",
            WARN,
            f"one is running at {address}",
            "join it with RAY_ADDRESS=auto, or leave it: train starts its own",
        )
    return Check("ray cluster", OK, f"the address file names {address}, which does not answer: train starts its own")


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _ledger(parsed: Parsed) -> int:
    ledger = Ledger(parsed.flags.ledger, readonly=True)
    try:
        if not parsed.flags.digest:
            return _print_proof(ledger)
        print(ledger.digest())
        return 0
    finally:
        ledger.close()


def _print_proof(ledger: Ledger) -> int:
    """Counts by role and state, counts by cause, and the law's word as the last line."""
    console = Console()
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
    print(f"digest: {ledger.digest()}")
    try:
        ledger.check()
    except InvariantError as error:
        print(f"conservation: BROKEN: {error}")
        return 1
    print("conservation: holds")
    return 0


def _flags(parser: Parser) -> None:
    parser.add_argument("--ledger", metavar="FILE", help="prove the conservation law of a run's ledger.db")
    parser.add_argument("--digest", action="store_true", help="with --ledger: print only the hash of its rows")


if __name__ == "__main__":
    from launch.main import run

    sys.exit(run(main, sys.argv[1:]))
