"""Ports of a node: which are free, and who holds one that is not."""

import socket
from contextlib import suppress

import psutil

from actors.cluster import free
from launch.nodes.raynode import MARK
from ssp.base.errors import InputError, hold

NAMED = tuple(
    "node-manager-port object-manager-port runtime-env-agent-port dashboard-agent-grpc-port "
    "dashboard-agent-listen-port metrics-export-port".split()
)
"""Ray's ports on every node, by the option that sets them; the others are of workers, two or so
each."""

OF_THE_HEAD = "ray-client-server-port"


NODE_PORTS = "NODE_PORTS"
"""The environment variable that names the span of a node's ports, such as 20000-20999."""


def check_span(span: str) -> None:
    """InputError unless it is two ends of a range of ports, or nothing."""
    low, _, high = span.partition("-")
    fits = low.isdecimal() and high.isdecimal() and 1024 <= int(low) < int(high) <= 65535
    hold(
        not span or fits,
        f"{NODE_PORTS} is a range from 1024 to 65535",
        span,
        "write for example 20000-20999",
    )


def options(span: str, head: bool) -> list[str]:
    """`ray start` options for all ports of a node but MASTER_PORT and the dashboard's. `span`:
    "20000-20999", "" for any. InputError when the span has not enough free ports."""
    names = (*NAMED, OF_THE_HEAD) if head else NAMED
    if not span:
        return [
            *(f"--{name}={_any()}" for name in names),
            "--min-worker-port=0",
            "--max-worker-port=0",
        ]
    low, high = (int(word) for word in span.split("-"))
    found = [port for port in range(low, high + 1) if free("", port)]
    rule = f"{NODE_PORTS} has at least {4 * len(NAMED)} free ports"
    hold(len(found) >= 4 * len(NAMED), rule, f"{span}: {len(found)}", "give a wider span")
    named, rest = found[: len(names)], found[len(names) :]
    listed = ",".join(map(str, rest))
    return [
        *(f"--{name}={port}" for name, port in zip(names, named, strict=True)),
        f"--worker-port-list={listed}",
    ]


def holder(port: int) -> str:
    """Who listens at a port, in words."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr.port == port
                and connection.pid
            ):
                process = psutil.Process(connection.pid)
                mark = process.environ().get(MARK, "")
                whose = (
                    f" of the run whose launcher is process {mark.split('-')[0]}" if mark else ""
                )
                return f"process {process.pid} ({process.name()}{whose})"
    return "a process of another user"


def check_free(host: str, port: int, what: str, next_step: str) -> None:
    """InputError naming the holder of a port that is taken."""
    if not free(host, port):
        raise InputError(f"{what} is free", f"{host}:{port} is held by {holder(port)}", next_step)


def _any() -> int:
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])
