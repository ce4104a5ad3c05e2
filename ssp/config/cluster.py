"""The cluster's part of the configuration: where actors run, and Ray."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from ssp.config.fields import Actors, Count, Seconds, Share, Within


@dataclass
class PlacementConfig:
    """How many actors there are, and where. Each asks Ray for `cpus` processors.

    `layout`: separate (each engine and learner has GPUs of its own), colocate (a role's engines and
    learner take turns on shared ones), shared-base (one set of engines plays both roles, with an
    adapter each). `nodes`: what the cluster has, for planning without it: "4x8x80" is 4 nodes of 8
    GPUs of 80 GB ("" = ask the cluster). `engine_gpus`: GPUs of an engine's rank (0 = it computes
    on CPUs); torch may have a part of one. A judge that verifies has an engine's share too, of vllm
    whole ones. `learner_gpus`: the same of a learner's rank. `ROLEs`: actors that play the role,
    such as `solvers`. `judges`: actors of the judge and the verifier. `restarts`: how often each
    may start again (learners: all together). `call_timeout`: seconds that one call may take, and
    (but 60 at least) Ray to start or a RAY_ADDRESS to answer, all actors to start, one to come
    back. In twice that all nodes of `ssp cluster` must meet."""

    layout: Literal["separate", "colocate", "shared-base"] = "separate"
    nodes: str = ""
    engine_gpus: Share = 0.0
    learner_gpus: Share = 0.0
    players: dict[str, Actors] = field(default_factory=dict)
    judges: Actors = 2
    cpus = 0.1
    restarts: Count = 10
    call_timeout: Seconds = 300.0


@dataclass
class RayConfig:
    """The local cluster that `train` starts when RAY_ADDRESS is not set, and each node of `ssp
    cluster`. One node alone listens on 127.0.0.1 only.

    `dashboard`: port of Ray's (0 = the first free one from 8265 on, -1 = there is none)."""

    dashboard: Annotated[int, Within(-1, 65535)] = 0
    start_timeout = 300.0

    @property
    def nodes_timeout(self) -> float:
        """Seconds in which all nodes of `ssp cluster` must meet: somebody starts them one after the
        other."""
        return 2 * self.start_timeout
