"""`ssp cluster`, or `NNODES=N RANK=i MASTER_ADDR=host python -m launch.cluster`: one run over all
nodes where it is typed.

Rank 0 starts Ray's head, waits for the others, trains as `ssp train` does and ends the cluster;
every other rank joins and stays until then. Promises that the nodes may start in any order, that
only nodes with the head's token, code and settings join, and that nothing which a node started
outlives it. Refuses to bring code, tokens or data to a node."""

import math
import os
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from actors import cluster
from launch import train
from launch.cli import Parsed, end_politely, parse, run
from launch.nodes import code, ports, raynode
from launch.nodes.raynode import RayNode
from ssp.base.errors import SspError, hold, holding
from ssp.base.printable import say
from ssp.capacity.memory.processes import object_store
from ssp.capacity.memory.threads import cores
from ssp.config.schema import Config
from ssp.record import runfolder

LOOPBACK = "127.0.0.1"

HEALTH = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}
"""How soon the head takes a node for dead: Ray's own setting is 13 s and more."""


@dataclass(frozen=True)
class NodeSeat:
    """This node's rank among `nodes`, and where the head is (rank 0 knows its IP address)."""

    nodes: int
    rank: int
    address: str
    port: int

    @property
    def ray(self) -> str:
        """Ray's address."""
        return f"{self.address}:{self.port}"


def main(argv: Sequence[str]) -> int:
    """This node's part of a run. Returns its exit code: rank 0's is the run's, another's 0 when the
    run has ended."""
    summary = "Train over several nodes: NNODES, RANK and MASTER_ADDR say which."
    parsed = parse(argv, "cluster", summary, train.flags)
    cfg = train.configured(parsed)
    if parsed.flags.dry_run:
        return train.dry_run(cfg, parsed.config)
    seat = read_seat(os.environ)
    ports.options(seat.rank == 0)  # what is wrong with NODE_PORTS is said before anybody waits
    if seat.nodes > 1:
        _require_token(seat)
    # What Ray reads at import and at start, in this process and in those of its node.
    cluster.environment(cfg.ray)
    # Ray's switch for loopback only forbids further nodes: it is set where there are none.
    alone = seat.nodes == 1 and seat.address == LOOPBACK
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0" if alone else "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    end_politely()
    return lead(seat, cfg, parsed) if seat.rank == 0 else follow(seat, cfg)


def read_seat(env: Mapping[str, str]) -> NodeSeat:
    """The node's seat, from the environment. InputError for what is missing or contradicts
    itself."""
    given = env.get("RAY_ADDRESS")
    rule = "launch.cluster starts a cluster of its own"
    step = "unset it, or join that cluster with ssp train"
    hold(not given, rule, f"RAY_ADDRESS={given}", step)
    nodes = _number(env, "NNODES", "", 1, 100_000)
    rank = _number(env, "RANK", "0" if nodes == 1 else "", 0, nodes - 1)
    port = _number(env, "MASTER_PORT", "6379", 1024, 65535)
    head = env.get("MASTER_ADDR") or (LOOPBACK if nodes == 1 else "")
    rule = "MASTER_ADDR is set where NNODES is above 1"
    hold(head, rule, "no MASTER_ADDR", "set it to rank 0's address on every node")
    if rank > 0:
        # not looked up here: a name server may learn the name only in a moment
        return NodeSeat(nodes, rank, head, port)

    rule = "rank 0 can listen at MASTER_ADDR and MASTER_PORT"
    step = "correct MASTER_ADDR, or set MASTER_PORT to a free port on every node"
    step += " (ss -ltnp shows who holds one)"

    def told(error: Exception) -> str:
        return f"{head}:{port}: {getattr(error, 'strerror', error)}"

    with holding(OSError, rule, told, step), socket.create_server((head, port)) as listener:
        address = listener.getsockname()[0]
    # Some systems give a machine's own name a loopback address, which the other nodes cannot mean.
    misled = address.startswith("127.") and head not in (address, "localhost")
    rule = "MASTER_ADDR is the address at which other nodes reach rank 0"
    step = "give rank 0's IP address instead of its name"
    hold(nodes == 1 or not misled, rule, f"{head} is {address} on this machine", step)
    return NodeSeat(nodes, rank, address, port)


def lead(seat: NodeSeat, cfg: Config, parsed: Parsed) -> int:
    """Start the head, wait for the others, train, say goodbye. Returns the run's exit code."""
    for name, value in HEALTH.items():
        os.environ.setdefault(name, value)
    from launch.nodes import meeting  # Ray takes a second, and reads the environment

    runfolder.check(cfg, parsed.config)  # before anybody waits
    node = _start(seat, cfg)
    store = meeting.Store(seat.ray)
    exit_code = SspError.exit_code
    try:
        _say(f"Ray's head is at {seat.ray}; logs in {node.folder}")
        meeting.gather(store, seat.nodes, code.printed(cfg, seat.nodes), cfg.ray.nodes_timeout)
        os.environ["RAY_ADDRESS"] = seat.ray
        exit_code = train.train(cfg, parsed.config)
    except KeyboardInterrupt:
        exit_code = train.INTERRUPTED
        raise
    except SspError as error:
        exit_code = error.exit_code
        raise
    finally:
        end_politely()  # asyncio took its handlers with it
        meeting.dismiss(store, exit_code)
        node.end(keep=exit_code not in (0, train.INTERRUPTED))
    return exit_code


def follow(seat: NodeSeat, cfg: Config) -> int:
    """Join the head, wait for the run's end, leave. Returns 0."""
    from launch.nodes import meeting

    meeting.await_head(seat.address, seat.port, cfg.ray.nodes_timeout, _say)
    path = _token_file()
    step = f"copy the file whose path rank 0 prints to {path}, or set RAY_AUTH_TOKEN_PATH"
    hold(_has_token(), "every node has the head's token", f"no token in {path}", step)
    store = meeting.find_head(seat.ray, cfg.ray.nodes_timeout)
    meeting.check_in(store, seat.rank, code.printed(cfg, seat.nodes))
    node = _start(seat, cfg)
    keep = True
    seconds = raynode.POLITE
    try:
        _say(f"rank {seat.rank} is in the cluster of {seat.ray}; logs in {node.folder}")
        exit_code = meeting.stay(store, node.check)
        _say(f"the run has ended (exit code {exit_code} on rank 0)")
        keep = False
    except KeyboardInterrupt:
        keep = False
        seconds = raynode.LEAVING
        _say(f"this node leaves within {seconds:g} s: nothing new starts here (again: at once)")
        raise
    finally:
        node.end(keep, seconds)
    return 0


def _require_token(seat: NodeSeat) -> None:
    """Switch Ray's token mode on: who is in the cluster may run code there. Rank 0 makes a token
    where there is none, readable by its owner only; Ray's own command lets others read it."""
    mode = os.environ.get("RAY_AUTH_MODE") or "token"
    rule = "several nodes form a cluster in Ray's token mode"
    hold(mode == "token", rule, f"RAY_AUTH_MODE={mode}", "unset RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = mode
    if seat.rank > 0:
        return
    path = _token_file()
    if not _has_token():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.chmod(0o600)
        path.write_text(secrets.token_hex(32))
    _say(f"Ray's token: {path} (every node needs it)")


def _token_file() -> Path:
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()


def _has_token() -> bool:
    path = _token_file()
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or (path.is_file() and path.stat().st_size > 0)


def _start(seat: NodeSeat, cfg: Config) -> RayNode:
    """This node's Ray, ready. The head has at least its share of what all actors ask for."""
    from actors.program import needed_cpus

    cpus = cores()
    options = [f"--node-name={seat.rank}"]
    if seat.rank == 0:
        cpus = max(cpus, math.ceil(needed_cpus(cfg) / seat.nodes))
        options += ["--head", f"--port={seat.port}", f"--node-ip-address={seat.address}"]
        options += [f"--include-dashboard={cfg.ray.dashboard >= 0}"]
        if cfg.ray.dashboard >= 0:
            options.append(f"--dashboard-host={seat.address}")
            port = cluster.dashboard_port(cfg.ray, seat.address)
            if port:
                options.append(f"--dashboard-port={port}")
    else:
        options += [f"--address={seat.ray}"]
    options += [f"--num-cpus={cpus}", f"--object-store-memory={object_store(cfg)}"]
    options += ports.options(seat.rank == 0)
    return RayNode(options, cfg.ray.start_timeout)


def _number(env: Mapping[str, str], name: str, default: str, low: int, high: int) -> int:
    """A variable's whole number. InputError unless it is one from `low` to `high`."""
    text = env.get(name) or default
    rule = f"{name} is a whole number from {low} to {high}"
    fits = text.isdecimal() and low <= int(text) <= high
    step = "start each node as: NNODES=2 RANK=0 MASTER_ADDR=HOST ssp cluster ..."
    hold(fits, rule, text or f"no {name}", step)
    return int(text)


def _say(message: str) -> None:
    say(f"cluster: {message}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(run(main))
