"""Ports, and Ray's processes and folders on this machine: what a run would use, and what an earlier one has left.

Promises that whatever is said to be stale is named by process id or path. Refuses to end or remove it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from actors.cluster import free
from launch.checks.check import FAIL, OK, WARN, Check
from launch.nodes import ports, raynode
from ssp.config.schema import Config

RAY_FOLDER = Path("/tmp/ray")
HEAVY = 1_000_000_000
"""Bytes of old session folders that are worth a line."""

_SERVERS = ("gcs_server", "raylet")


def dashboard_port(port: int) -> Check:
    """Whether the dashboard gets its port."""
    if not port:
        return Check("dashboard port", OK, "the first free one")
    if free("127.0.0.1", port):
        return Check("dashboard port", OK, f"{port} is free")
    next_step = "set ray.dashboard_port to another port, or ray.dashboard=false"
    return Check("dashboard port", WARN, f"{port} is held by {ports.holder(port)}", next_step)


def cluster_ports(env: Mapping[str, str]) -> Check:
    """MASTER_PORT and the next one, which `ssp cluster` needs on rank 0."""
    wanted = env.get("MASTER_PORT", "6379")
    first = int(wanted) if wanted.isdecimal() else 0
    taken = [port for port in (first, first + 1) if not free("", port)]
    if not taken:
        return Check("ports of ssp cluster", OK, f"{first} and {first + 1} are free")
    found = ", ".join(f"{port} is held by {ports.holder(port)}" for port in taken)
    return Check("ports of ssp cluster", WARN, found, "set MASTER_PORT to another port on every node")


def cluster(given: str, file: Path) -> Check:
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


def leftovers(folder: Path = RAY_FOLDER) -> Iterator[Check]:
    """What dead runs have left: processes, and folders of sessions that nobody is in."""
    left = raynode.left_behind()
    servers = [process for process in psutil.process_iter(["name"]) if process.info["name"] in _SERVERS]
    orphans = [process for process in servers if _parent(process) == 1 and process.pid not in {p.pid for p, _ in left}]
    if left:
        pids = " ".join(str(process.pid) for process, _ in left)
        yield Check(
            "stale processes", WARN, f"of a run whose launcher is gone: {pids}", "ssp cluster ends them at its start"
        )
    elif orphans:
        pids = " ".join(str(process.pid) for process in orphans)
        next_step = f"if nobody uses that cluster: kill {pids}"
        yield Check("stale processes", WARN, f"Ray's servers without the process that started them: {pids}", next_step)
    else:
        yield Check("stale processes", OK, "none")
    old = [*raynode.stale_folders(), *_unused(folder, servers)]
    total = sum(_bytes(path) for path in old)
    found = f"{len(old)} session folder{'s' * (len(old) != 1)} of runs that have ended, {total / 1e9:.1f} GB"
    if total < HEAVY:
        yield Check("stale sessions", OK, found if old else "none")
    else:
        yield Check("stale sessions", WARN, found, f"remove those in {', '.join(sorted({str(p.parent) for p in old}))}")


def checks(cfg: Config) -> Iterator[Check]:
    """All of this file."""
    if cfg.ray.dashboard:
        yield dashboard_port(cfg.ray.dashboard_port)
    yield cluster_ports(os.environ)
    yield cluster(os.environ.get("RAY_ADDRESS", ""), RAY_FOLDER / "ray_current_cluster")
    yield from leftovers()


def _unused(folder: Path, servers: list[psutil.Process]) -> list[Path]:
    """Session folders that no Ray server names in its arguments."""
    named = ""
    for process in servers:
        with suppress(psutil.Error):
            named += " ".join(process.cmdline())
    return [path for path in folder.glob("session_*") if not path.is_symlink() and path.name not in named]


def _parent(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return process.ppid()
    return 0


def _bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
