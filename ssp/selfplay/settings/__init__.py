"""The checked configuration: every rule of every wing about which settings may stand together.

Promises to fail closed: a setting whose feature is not built is refused, never ignored. Refuses to change values.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssp.base.episode import SOLVER
from ssp.base.errors import InputError
from ssp.base.printable import printable
from ssp.base.tokenlog import BYTES_A_TOKEN
from ssp.config import load as merging
from ssp.config.rules import Rule
from ssp.config.schema import Config
from ssp.engines import settings as engines
from ssp.game import settings as game
from ssp.game.judge import settings as judge
from ssp.game.rewards import settings as rewards
from ssp.game.rollout import settings as rollout
from ssp.learning import settings as learning
from ssp.search import settings as search
from ssp.selfplay.league import settings as league
from ssp.selfplay.settings import placement
from ssp.selfplay.transfer import settings as transfer


def load(name_or_file: str, overrides: Sequence[str] = (), trusted: bool = True) -> Config:
    """The checked configuration of a shipped name or a file; see `ssp.config.load.load`."""
    return merging.load(name_or_file, overrides, trusted, RULES)


def warnings(cfg: Config) -> list[str]:
    """What is allowed and deserves a second thought, a line each."""
    found = [*rewards.warnings(cfg), *learning.warnings(cfg)]
    if cfg.protocol == "ssrl" and cfg.solver.search.kind == "retriever":
        found.append(
            "protocol=ssrl asks the solver to write the information itself, and solver.search.kind=retriever answers in its "
            "place: set solver.search.kind=self (or first_k, entropy), or protocol=search-r1 for real searches"
        )
    return found


def batch_fits_queue(cfg: Config) -> None:
    """A queue takes a training batch whole."""
    sizes = {role: cfg.block(role).batch * (cfg.game.attempts if role == SOLVER else 1) for role in cfg.roles}
    largest = max(sizes.values())
    if largest > cfg.queue.items:
        raise InputError(
            f"a training batch (proposer.batch, solver.batch x game.attempts) has at most {cfg.queue.items} episodes",
            largest,
            "make the batch smaller",
        )
    nbytes = BYTES_A_TOKEN * max(size * cfg.block(role).limits.longest for role, size in sizes.items())
    if nbytes > cfg.queue.bytes:
        raise InputError(
            f"queue.bytes holds the longest training batch ({BYTES_A_TOKEN} bytes a token of limits.total_tokens)",
            f"queue.bytes={cfg.queue.bytes} for {nbytes} bytes",
            f"set queue.bytes={2 * nbytes}",
        )


def eval_sets_are_distinct(cfg: Config) -> None:
    """Evaluation sets are told apart by name in the metrics."""
    sets = [item.name for item in cfg.data.eval]
    if len(set(sets)) != len(sets) or "" in sets:
        raise InputError("each evaluation set has a name of its own", ", ".join(sets), "rename one of them")
    if cfg.eval.every > 0 and not sets:
        raise InputError("periodic evaluation needs an evaluation set", "data.eval=[]", "add one, or set eval.every=0")


def run_name_is_a_name(cfg: Config) -> None:
    """`run.name` becomes a folder under runs/."""
    name = cfg.run.name
    if "/" in name or name in (".", ".."):
        raise InputError("run.name is one folder name", name, "use run.dir=PATH for another place")
    if "\n" in name or "\t" in name or printable(name) != name:
        raise InputError("run.name holds characters that can be shown", repr(name), "leave the others out")


def node_ports_are_a_span(cfg: Config) -> None:
    """Two ends of a range of ports, or nothing."""
    span = cfg.ray.node_ports
    low, dash, high = span.partition("-")
    if span and not (dash and low.isdecimal() and high.isdecimal() and 1024 <= int(low) < int(high) <= 65535):
        raise InputError("ray.node_ports is a range from 1024 to 65535", span, 'write for example "20000-20999"')


RULES: tuple[Rule, ...] = (
    game.protocol_exists,
    *learning.RULES,
    *game.RULES,
    *league.RULES,
    game.training_samples,
    game.temperatures_are_usable,
    node_ports_are_a_span,
    game.proposals_can_be_checked,
    *rollout.RULES,
    *engines.RULES,
    *transfer.RULES,
    *search.RULES,
    batch_fits_queue,
    eval_sets_are_distinct,
    run_name_is_a_name,
    *judge.RULES,
    *rewards.RULES,
    *placement.RULES,
)
