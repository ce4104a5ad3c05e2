"""Ray itself: join the cluster that the environment names, or start one on this machine, which
listens on loopback only.

Ends only what it started (never `ray stop`, which kills by name). When Ray is gone, it ends this
process (`actors.servers`)."""

import logging
import math
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors import servers
from ssp.base.errors import InputError, SspError, hold
from ssp.base.printable import say
from ssp.capacity.memory.threads import cores
from ssp.config.cluster import RayConfig

_watches: list[servers.ServerWatch] = []
"""They look at Ray's servers until this process leaves the cluster."""
_sessions: list[Path] = []
"""The folder of the cluster that this process started."""

SOCKET_PATH, SOCKET_NAME = 107, 66
"""Bytes that the path of a socket may have on Linux, and bytes that Ray adds to the folder's."""

STORE = 256_000_000
"""Bytes of the object store where no plan says how many."""


def environment(cfg: RayConfig) -> None:
    """Set what Ray reads at import and at start. Call before anything imports Ray."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    # How long a node may take until Ray's own server knows it: 30 s else, too little for a busy
    # machine.
    wait = max(1, math.ceil(cfg.start_timeout))
    os.environ.setdefault("RAY_raylet_start_wait_time_s", str(wait))
    # Else a thread that asks Ray for something after this process has left would start a cluster.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if not os.environ.get("RAY_ADDRESS"):
        # Off-label on Linux, and the one switch that makes every Ray listener keep to 127.0.0.1.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"


def check_sockets() -> None:
    """InputError where Ray would start here, with sockets whose paths are longer than Linux
    allows."""
    if os.environ.get("RAY_ADDRESS"):
        return
    base = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # as Ray looks for it
    check_socket_room(os.path.join(base, "ray"))


def check_socket_room(folder: str | os.PathLike[str]) -> None:
    """InputError where Ray's sockets would have longer paths than Linux allows. `folder`: that of
    its sessions."""
    length = len(os.fsencode(folder))
    most = SOCKET_PATH - SOCKET_NAME
    rule = f"the folder of Ray's sockets has a path of at most {most} bytes"
    step = "set RAY_TMPDIR to a shorter one, such as /tmp"
    hold(length <= most, rule, f"{os.fspath(folder)}, {length} bytes", step)


def connect(
    cfg: RayConfig,
    needed_cpus: float = 0.0,
    lost: Callable[[], str] = lambda: "Next: start again",
    store: int = STORE,
) -> str:
    """Join `$RAY_ADDRESS`, or start a cluster here; returns the dashboard's URL, "" without one.

    A cluster here has room for `needed_cpus`, what all actors ask for together, and an object store
    of `store` bytes. InputError when the dashboard's port is taken, SspError when no cluster
    starts. When nobody answers within `placement.call_timeout`, or one of Ray's servers ends from
    now on, this process ends (exit code 1); `lost` is called before, and gives the end of the
    message."""
    environment(cfg)
    check_sockets()
    address = os.environ.get("RAY_ADDRESS", "")
    options: dict[str, Any] = {}
    if not address:
        options = {
            "num_cpus": max(cores(), math.ceil(needed_cpus)),
            "include_dashboard": cfg.dashboard >= 0,
            "dashboard_host": "127.0.0.1",
            "dashboard_port": dashboard_port(cfg),
            "object_store_memory": store,
        }
    # Before Ray is imported, which takes a second.
    say(f"joining Ray at {address}" if address else "starting Ray", file=sys.stderr)
    context = _started(cfg, address, options)
    _watches.append(servers.ServerWatch(servers.playing(context.address_info), lost))
    if not address:
        _sessions.append(Path(context.address_info["session_dir"]))
    return str(context.dashboard_url or "")


def _started(cfg: RayConfig, address: str, options: dict[str, Any]) -> Any:
    """Join or start a cluster; returns Ray's connection."""
    import ray

    if address:
        late = f"no Ray cluster answers at RAY_ADDRESS={address}"
        step = "Next: correct RAY_ADDRESS"
    else:
        late = "Ray did not start"
        step = "Next: see its logs, or try again"
    limit = f"within placement.call_timeout={cfg.start_timeout:g} s"
    look = servers.starting(cfg.start_timeout, f"{late} {limit}.")
    watch = servers.ServerWatch(look, lambda: step)
    try:
        with _hangups_held():
            return ray.init(
                address=address or "local",
                # A namespace of its own: actors of a run that was killed a moment ago may still
                # hold its names.
                namespace=f"ssp-{secrets.token_hex(4)}",
                log_to_driver=False,
                logging_level=logging.ERROR,
                **options,
            )
    except Exception as error:
        if not address and isinstance(error, ValueError) and "bind" not in str(error):
            megabytes = options["object_store_memory"] / 1e6
            what = f"an object store of {megabytes:.0f} MB: {error}"
            step = "lower solver.batch, or free memory"
            raise InputError("the cluster fits this machine", what, step) from error
        said = str(error).strip().splitlines()[-1:]  # of a port that is taken, the end of a log
        raise SspError(f"{late}: {' '.join(said)}. {step}") from error
    finally:
        watch.close()


@contextmanager
def _hangups_held() -> Iterator[None]:
    """Keep SIGHUP from what is started meanwhile: whoever starts it hears that the terminal was
    closed, saves, and ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def disconnect(keep: bool = False) -> None:
    """Leave the cluster. One that this process started ends, and its folder goes; with `keep` the
    folder stays, for its logs, and so it does while a failure of ours is on its way out."""
    import ray

    while _watches:
        _watches.pop().close()
    ray.shutdown()
    error = sys.exc_info()[1]
    failed = error is not None and not isinstance(error, KeyboardInterrupt | InputError)
    while _sessions:
        session = _sessions.pop()
        if keep or failed:
            say(f"Ray's logs: {session / 'logs'}", file=sys.stderr)
        else:
            shutil.rmtree(session, ignore_errors=True)


def dashboard_port(cfg: RayConfig, host: str = "127.0.0.1") -> int | None:
    """The port that is asked for. None: Ray takes the first free one from 8265 on, so that two runs
    may start at once. InputError when the one asked for is taken."""
    port = cfg.dashboard
    if port <= 0:
        return None
    step = "choose another, or 0 for the first free one"
    hold(free(host, port), "ray.dashboard must be a free port", f"{port} is in use", step)
    return port


def free(host: str, port: int) -> bool:
    """Whether somebody could listen there now. A port in TIME_WAIT counts as free, as for Ray,
    which sets the same option."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
