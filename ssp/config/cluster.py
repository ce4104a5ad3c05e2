"""The cluster's part of the configuration: where actors run, and how payloads travel between them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TransferConfig:
    """`kind`, how weights reach engines: object_store, shm (a shared file on one node), disk (in the run folder),
    broadcast (torch.distributed: gloo, or NCCL between GPUs), auto (by placement). `verify`: at each new version
    engines compare what they have with what was sent."""

    kind: str = "auto"
    verify: bool = False


@dataclass
class PlacementConfig:
    """How many actors there are (`proposers`, `solvers`, `judges`), and where. `cpus`: what each asks Ray for.
    `restarts`: how often each may start again (learners: all together). `call_timeout`: seconds that one call may take.

    `threads`: torch's in each process that computes, in `ssp eval`, `ask`, `replay`, `bank` and `warmup` too (0 = by
    model size: one below 30 million parameters, else the machine's cores over the processes that compute at once).
    Another number rounds differently.
    `layout`: separate (each engine and learner has GPUs of its own), colocate (a role's engines and learner take turns
    on shared ones), shared-base (one set of engines plays both roles, with an adapter each). `engine_gpus`,
    `learner_gpus`, `judge_gpus`: GPUs of an engine's rank, a learner's rank, a judge (0 = it computes on CPUs).
    `nodes`: what the cluster has, for planning without it: "4x8x80" is 4 nodes of 8 GPUs of 80 GB ("" = ask the
    cluster)."""

    layout: str = "separate"
    nodes: str = ""
    engine_gpus: float = 0.0
    learner_gpus: float = 0.0
    judge_gpus: float = 0.0
    proposers: int = 2
    solvers: int = 2
    judges: int = 2
    cpus: float = 0.1
    threads: int = 0
    restarts: int = 10
    call_timeout: float = 300.0


@dataclass
class RayConfig:
    """The local cluster that `train` starts when RAY_ADDRESS is not set, and each node of `ssp cluster`. One node alone
    listens on 127.0.0.1 only.
    `cpus`: 0 = what the machine has. `object_store_mb`: 10^6 bytes of Ray's object store on each node. `dashboard`:
    start Ray's; `dashboard_port`: 0 = the first free one from 8265 on. `start_timeout`: seconds for Ray to start (or a
    RAY_ADDRESS to answer), for all actors to start, and for one to come back. `nodes_timeout`: seconds in which all
    nodes of `ssp cluster` must meet. `node_ports`: all other ports of a node, such as "20000-20999" ("" = any free
    ones)."""

    cpus: int = 0
    dashboard: bool = True
    dashboard_port: int = 0
    object_store_mb: int = 256
    start_timeout: float = 300.0
    nodes_timeout: float = 600.0
    node_ports: str = ""


@dataclass
class QueueConfig:
    """Budget of each queue: `items` (episodes) and `bytes`. A put waits for room, up to `timeout` seconds."""

    items: int = 4096
    bytes: int = 256_000_000
    timeout: float = 600.0
