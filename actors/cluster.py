"""Ray itself: join the cluster that the environment names, or start one on this machine.

Owns Ray's environment: token mode is always set explicitly, and a cluster that we start listens on loopback only unless
the config says otherwise. Promises to end only what it started. Refuses to run `ray stop`, which kills by name.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
from dataclasses import dataclass
from typing import Any

from ssp.config.cluster import RayConfig
from ssp.errors import InputError, SspError

FIRST_DASHBOARD_PORT = 8265


@dataclass(frozen=True)
class Cluster:
    """A connection. `started` is true when this process started the cluster; `dashboard` is its URL or ""."""

    started: bool
    dashboard: str


def environment(cfg: RayConfig) -> None:
    """Set what Ray reads at import and at start. Call before anything imports Ray."""
    os.environ.setdefault("RAY_AUTH_MODE", cfg.auth)
    # How long a node may take until Ray's own server knows it: 30 s else, which a busy machine does not keep.
    os.environ.setdefault("RAY_raylet_start_wait_time_s", str(max(1, math.ceil(cfg.start_timeout))))
    # A thread that asks Ray for something after this process has left is told so, and does not start a cluster.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if cfg.loopback_only and not os.environ.get("RAY_ADDRESS"):
        # Off-label on Linux, and the one switch that makes every Ray listener keep to 127.0.0.1.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"


def connect(cfg: RayConfig, needed_cpus: float = 0.0) -> Cluster:
    """Join `$RAY_ADDRESS`, or start a cluster here with room for `needed_cpus`, what all actors ask for together.

    Raises InputError when `ray.cpus` is less than that or the dashboard's port is taken, SspError when no cluster
    answers or none starts.
    """
    environment(cfg)
    import ray

    # A namespace a start: actors of a run that was killed a moment ago may still hold its names.
    options: dict[str, Any] = {
        "namespace": f"ssp-{secrets.token_hex(4)}",
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    if os.environ.get("RAY_ADDRESS"):
        try:
            context = ray.init(address=os.environ["RAY_ADDRESS"], **options)
        except (ConnectionError, RuntimeError) as error:
            raise SspError(f"no Ray cluster answers at RAY_ADDRESS={os.environ['RAY_ADDRESS']}: {error}") from error
        return Cluster(False, context.dashboard_url or "")
    if cfg.node_ports:
        rule = "ray.node_ports is of the nodes that ssp cluster starts"
        raise InputError(rule, cfg.node_ports, "leave it out: a run on this machine listens on loopback only")
    if 0 < cfg.cpus < needed_cpus:
        rule = f"ray.cpus holds what all actors ask for, {needed_cpus:g}"
        raise InputError(rule, cfg.cpus, f"set ray.cpus={math.ceil(needed_cpus)}, or lower placement.*")
    if cfg.dashboard:
        options["dashboard_host"] = "127.0.0.1"
        options["dashboard_port"] = dashboard_port(cfg.dashboard_port)
    try:
        context = ray.init(
            address="local",
            num_cpus=cfg.cpus or max(os.cpu_count() or 1, math.ceil(needed_cpus)),
            include_dashboard=cfg.dashboard,
            object_store_memory=cfg.object_store_mb * 1_000_000,
            **options,
        )
    except ValueError as error:  # Ray's word for resources that this machine does not have
        found = f"ray.object_store_mb={cfg.object_store_mb}: {error}"
        raise InputError("the cluster fits this machine", found, "lower ray.object_store_mb") from error
    except Exception as error:  # its word for a start that took too long on a busy machine, which is of no other type
        raise SspError(f"Ray did not start: {error} Next: try again when the machine is less busy") from error
    return Cluster(True, context.dashboard_url or "")


def disconnect() -> None:
    """Leave the cluster; one that this process started ends with it."""
    import ray

    from actors.members import close_all

    close_all()
    ray.shutdown()


def dashboard_port(wanted: int, host: str = "127.0.0.1") -> int:
    """`wanted`, or the first free port from 8265 on. InputError when `wanted` is taken."""
    if wanted:
        if not free(host, wanted):
            raise InputError(
                "ray.dashboard_port must be free", f"{wanted} is in use", "choose another, or 0 for the first free one"
            )
        return wanted
    return next(port for port in range(FIRST_DASHBOARD_PORT, FIRST_DASHBOARD_PORT + 200) if free(host, port))


def free(host: str, port: int) -> bool:
    """Whether somebody could listen there now. Ray sets the same option: a port in TIME_WAIT counts as free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
