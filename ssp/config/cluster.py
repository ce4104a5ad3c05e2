"""The cluster's part of the configuration: where actors run, and Ray."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from ssp.config.fields import Actors, Seconds, Share, Within


@dataclass
class PlacementConfig:
    """Where actors run, and how many. Each asks Ray for `cpus` processors, and may start again
    `restarts` times (learners: together).

    `layout`: separate: each engine and learner has GPUs of its own. colocate: a role's take turns.
    shared-base: one set of engines plays both roles, with an adapter each. `nodes`: for planning
    without the cluster: "4x8x80" is 4 nodes of 8 GPUs of 80 GB ("" = ask it). `engine_gpus`: of an
    engine's rank (0 = CPUs); torch may have a part of one. A judge that verifies has the same, of
    vllm whole ones. `learner_gpus`: of a learner's rank. `ROLEs`: actors that play the role, such
    as `solvers`. `judges`: actors of the judge and the verifier. `call_timeout`: seconds of a call;
    also (60 at least) for Ray or all actors to start, a RAY_ADDRESS to answer, an actor to come
    back. In twice that the nodes of `ssp cluster` must meet."""

    layout: Literal["separate", "colocate", "shared-base"] = "separate"
    nodes: str = ""
    engine_gpus: Share = 0.0
    learner_gpus: Share = 0.0
    players: dict[str, Actors] = field(default_factory=dict)
    judges: Actors = 2
    cpus = 0.1
    restarts = 10
    call_timeout: Seconds = 300.0


@dataclass
class RayConfig:
    """The cluster that `train` starts without RAY_ADDRESS, and each node of `ssp cluster`. A run on
    one node listens on 127.0.0.1 only.

    `dashboard`: its port (0 = the first free one from 8265 on, -1 = none)."""

    dashboard: Annotated[int, Within(-1, 65535)] = 0
    start_timeout = 300.0

    @property
    def nodes_timeout(self) -> float:
        """Seconds in which all nodes of `ssp cluster` must meet: somebody starts them one after the
        other."""
        return 2 * self.start_timeout
