"""Ports of a node."""

import os
import socket

from actors.cluster import free
from ssp.base.errors import hold

NAMED = (
    "node-manager-port",
    "object-manager-port",
    "runtime-env-agent-port",
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "metrics-export-port",
)
"""Ray's ports on every node, by the option that sets them."""

OF_THE_HEAD = "ray-client-server-port"

LEAST = 24
"""Ports that a node needs: these, and two or so for each worker."""

NODE_PORTS = "NODE_PORTS"
"""The environment variable that names the span of a node's ports, such as 20000-20999."""


def options(head: bool) -> list[str]:
    """Options of `ray start` for all ports of a node but MASTER_PORT and the dashboard's: any free
    ones, or those of NODE_PORTS. InputError when that is no span, or has not enough free ports."""
    span = os.environ.get(NODE_PORTS, "")
    names = [*NAMED, OF_THE_HEAD] if head else [*NAMED]
    if span:
        low, _, high = span.partition("-")
        fits = low.isdecimal() and high.isdecimal() and 1024 <= int(low) < int(high) <= 65535
        rule = f"{NODE_PORTS} is a range from 1024 to 65535 with at least {LEAST} free ports"
        step = "write for example 20000-20999"
        hold(fits, rule, span, step)
        ports = [port for port in range(int(low), int(high) + 1) if free("", port)]
        hold(len(ports) >= LEAST, rule, f"{len(ports)} in {span}", step)
        left = ",".join(map(str, ports[len(names) :]))
        workers = [f"--worker-port-list={left}"]
    else:
        ports = []
        for _ in names:
            with socket.create_server(("", 0)) as probe:
                ports.append(probe.getsockname()[1])
        workers = ["--min-worker-port=0", "--max-worker-port=0"]
    return [f"--{name}={port}" for name, port in zip(names, ports, strict=False)] + workers
