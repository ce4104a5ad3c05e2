"""`ssp cluster`, or `NNODES=N RANK=i MASTER_ADDR=host python -m launch.cluster`, on each node: one
run over all of them.

Owns a node's part from its start to its end. Rank 0 starts Ray's head, waits for the others, trains
as `ssp train` does and ends the cluster; every other rank joins and stays until then. Reads top to
bottom. Promises that the nodes may start in any order, that the head lets in only nodes with its
token, code and settings, and that nothing which a node started outlives it. Refuses to bring code,
tokens or data to a node."""

import math
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from actors import cluster
from launch import train
from launch.cli import Parsed, end_politely, parse, run
from launch.nodes import code, ports, raynode, token
from launch.nodes.meeting import JOINED, LEAVING, Meeting, Member
from launch.nodes.raynode import RayNode
from ssp.base.errors import InputError, SspError, hold
from ssp.base.printable import say
from ssp.capacity.memory.processes import object_store
from ssp.capacity.memory.threads import cores
from ssp.config.schema import Config
from ssp.record import runfolder

MASTER_PORT = 6379
"""Ray's port on the head, unless MASTER_PORT names another; the nodes meet at the next one."""

LOOPBACK = "127.0.0.1"

HEALTH = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}
"""How soon the head takes a node for dead: Ray's own setting is 13 s and more."""


@dataclass(frozen=True)
class Seat:
    """What the environment says: this node's rank among `nodes`, and where the head is (rank 0
    knows its IP address)."""

    nodes: int
    rank: int
    address: str
    port: int

    @property
    def ray(self) -> str:
        """Ray's address."""
        return f"{self.address}:{self.port}"

    @property
    def meeting(self) -> tuple[str, int]:
        """Where the nodes meet."""
        return self.address, self.port + 1


def main(argv: Sequence[str] | None = None) -> int:
    """This node's part of a run. Returns its exit code: rank 0's is the run's, another's 0 when the
    run has ended."""
    parsed = parse(
        argv,
        "cluster",
        "Train over several nodes: NNODES, RANK and MASTER_ADDR say which.",
        train.flags,
    )
    cfg = train.configured(parsed)
    if parsed.flags.dry_run:
        return train.dry_run(cfg, parsed.config)
    seat = read_seat(os.environ)
    _environment(seat, cfg)
    end_politely()
    for line in raynode.sweep():
        _say(f"ended {line}")
    return _head(seat, cfg, parsed) if seat.rank == 0 else _member(seat, cfg)


def read_seat(env: Mapping[str, str]) -> Seat:
    """The environment's say. InputError for what is missing or contradicts itself."""
    if env.get("RAY_ADDRESS"):
        rule = "launch.cluster starts a cluster of its own"
        raise InputError(
            rule,
            f"RAY_ADDRESS={env['RAY_ADDRESS']}",
            "unset it, or join that cluster with ssp train",
        )
    nodes = _number(env, "NNODES", None, 1, 100_000)
    rank = _number(env, "RANK", 0 if nodes == 1 else None, 0, nodes - 1)
    port = _number(env, "MASTER_PORT", MASTER_PORT, 1024, 65534)
    ports.check_span(env.get(ports.NODE_PORTS, ""))
    head = env.get("MASTER_ADDR") or (LOOPBACK if nodes == 1 else "")
    rule = "MASTER_ADDR is set where NNODES is above 1"
    hold(head, rule, "no MASTER_ADDR", "set it to rank 0's address on every node")
    if rank > 0:
        # a name that a name server learns only in a moment is one more wait
        return Seat(nodes, rank, head, port)
    address = _resolved(head)
    if not cluster.free(address, 0):
        cards = psutil.net_if_addrs().values()
        listed = ", ".join(
            sorted({one.address for card in cards for one in card if one.family == socket.AF_INET})
        )
        is_ = head if head == address else f"{head} ({address})"
        raise InputError(
            "rank 0 runs where MASTER_ADDR is",
            f"{is_}; this machine is {listed}",
            "correct one of them",
        )
    if nodes > 1 and address.startswith("127.") and head not in (address, "localhost"):
        # Some systems give a machine's own name a loopback address, which the other nodes cannot
        # mean.
        rule = "MASTER_ADDR is the address at which other nodes reach rank 0"
        raise InputError(
            rule,
            f"{head} is {address} on this machine",
            "give rank 0's IP address instead of its name",
        )
    return Seat(nodes, rank, address, port)


def _head(seat: Seat, cfg: Config, parsed: Parsed) -> int:
    """Start the head, wait for the others, train, say goodbye."""
    runfolder.check(cfg, parsed.config)  # before anybody waits
    for port in (seat.port, seat.port + 1):
        next_step = (
            "set MASTER_PORT to another one on every node (it and the next one are used), or end"
            " that process"
        )
        ports.check_free(
            seat.address,
            port,
            "MASTER_PORT" if port == seat.port else "the port above it",
            next_step,
        )
    if seat.nodes > 1:
        secret = token.make()
        _say(f"Ray's token: {token.path()} (every node needs it)")
    meeting = Meeting(seat.meeting, seat.nodes, _say)
    exit_code, node = SspError.exit_code, None
    try:
        node = _start(cfg, _head_options(seat, cfg))
        print_ = _printed(seat, cfg)
        _say(f"Ray's head is at {seat.ray}, code {code.digest(print_)}; logs in {node.folder}")
        if seat.nodes > 1:
            meeting.open(seat.ray, print_, secret)
            meeting.wait(cfg.ray.nodes_timeout)
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
        meeting.end(exit_code)
        if node is not None:
            node.end(keep=exit_code not in (0, train.INTERRUPTED))
    return exit_code


def _member(seat: Seat, cfg: Config) -> int:
    """Join the head, wait for the run's end, leave."""
    member = Member.meet(seat.meeting, seat.rank, _printed(seat, cfg), cfg.ray.nodes_timeout, _say)
    node, well = None, False
    try:
        node = _start(
            cfg, [f"--address={member.ray}", f"--node-ip-address={member.own}", *_node_options(cfg)]
        )
        member.tell(JOINED)
        _say(
            f"rank {seat.rank} of {seat.nodes} is in the cluster of {member.ray}; logs in"
            f" {node.folder}"
        )
        ended = member.stay(node.check)
        _say(f"the run has ended (exit code {ended} on rank 0)")
        well = True
        return 0
    except KeyboardInterrupt:
        well = True
        _say(
            f"rank {seat.rank} leaves within {raynode.LEAVING:g} s: nothing new starts here (again:"
            " at once)"
        )
        member.tell(LEAVING)
        if node is not None:
            node.end(keep=False, seconds=raynode.LEAVING)
            node = None
        raise
    finally:
        if node is not None:
            node.end(keep=not well)
        member.close()


def _printed(seat: Seat, cfg: Config) -> code.Print:
    """What must be equal on all nodes."""
    return code.printed(cfg) | {"NNODES": str(seat.nodes)}


def _environment(seat: Seat, cfg: Config) -> None:
    """What Ray reads at import and at start, in this process and in those of its node."""
    if seat.nodes > 1:
        token.require()
    cluster.environment(cfg.ray)
    # Ray's switch for loopback only forbids further nodes: it is set where there are none.
    alone = seat.nodes == 1 and seat.address == LOOPBACK
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0" if alone else "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if seat.rank == 0:
        os.environ.update({name: os.environ.get(name, value) for name, value in HEALTH.items()})


def _start(cfg: Config, options: Sequence[str]) -> RayNode:
    """This node's Ray, ready."""
    node = RayNode(options)
    try:
        node.ready(cfg.ray.start_timeout)
    except BaseException:
        node.end(keep=True)
        raise
    return node


def _head_options(seat: Seat, cfg: Config) -> list[str]:
    found = ["--head", f"--port={seat.port}", f"--node-ip-address={seat.address}"]
    found += [f"--include-dashboard={str(cfg.ray.dashboard >= 0).lower()}"]
    if cfg.ray.dashboard >= 0:
        port = cluster.dashboard_port(cfg.ray, seat.address)
        found += [
            f"--dashboard-host={seat.address}",
            *([f"--dashboard-port={port}"] if port else []),
        ]
    return [*found, *_node_options(cfg, seat.nodes)]


def _node_options(cfg: Config, nodes: int = 0) -> list[str]:
    """Options of every node. With `nodes`, this one has at least its share of what all actors ask
    for."""
    from actors.program import needed_cpus

    cpus = max(cores(), math.ceil(needed_cpus(cfg) / nodes) if nodes else 0)
    store = f"--object-store-memory={object_store(cfg)}"
    return [
        f"--num-cpus={cpus}",
        store,
        *ports.options(os.environ.get(ports.NODE_PORTS, ""), nodes > 0),
    ]


def _number(env: Mapping[str, str], name: str, default: int | None, low: int, high: int) -> int:
    text = env.get(name, "") or ("" if default is None else str(default))
    if text.isdecimal() and low <= int(text) <= high:
        return int(text)
    rule = f"{name} is a whole number from {low} to {high}" + (
        ", below NNODES" if name == "RANK" else ""
    )
    raise InputError(
        rule,
        text or f"no {name}",
        "start each node as: NNODES=2 RANK=0 MASTER_ADDR=HOST ssp cluster ...",
    )


def _resolved(host: str) -> str:
    """The IPv4 address of a name."""
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        rule, next_step = (
            "MASTER_ADDR is a host that rank 0 can look up",
            "correct it, or give the IP address",
        )
        raise InputError(rule, f"{host}: {error.strerror}", next_step) from error


def _say(message: str) -> None:
    say(f"cluster: {message}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(run(main))
