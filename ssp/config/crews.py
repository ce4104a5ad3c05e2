"""What a configuration starts: how many workers of each kind, which learner trains which roles, and
who shares GPUs."""

from dataclasses import dataclass

from ssp.base.tokenlog import BYTES_A_TOKEN
from ssp.config.schema import Config


def players(cfg: Config, role: str) -> int:
    """How many play `role`: none where it has no part, as a proposer where questions are given."""
    return cfg.placement.players[role] if role in cfg.roles else 0


def played(cfg: Config, role: str) -> int:
    """Episodes of `role` in one batch of a round, without refills."""
    spec = cfg.spec
    episodes = 0
    for play in spec.plays.values():
        if role in play.roles:
            games = cfg.asking.batch if play in spec.before else cfg.answering.batch
            episodes += games * play.episodes(cfg)
    return episodes


def learners(cfg: Config) -> dict[str, tuple[str, ...]]:
    """Every learner of a run, by the role that it is called after: the roles that it trains, in the
    order of their steps. Roles with policy=shared have one, called after the last of them."""
    shared = tuple(role for role in cfg.roles if cfg.block(role).policy == "shared")
    trains: dict[str, tuple[str, ...]] = {role: (role,) for role in cfg.roles if role not in shared}
    if shared:
        trains[shared[-1]] = shared
    return trains


def teaching(cfg: Config) -> dict[str, tuple[str, ...]]:
    """The learners whose weights change, as `learners` has them."""
    trains = learners(cfg).items()
    return {name: roles for name, roles in trains if cfg.block(name).policy != "frozen"}


def warmed(cfg: Config) -> tuple[str, ...]:
    """The roles that start from what a warm start makes of the model of who answers: those that
    play and name the same one."""
    model = cfg.block(cfg.spec.answerer).model
    return tuple(role for role in cfg.roles if cfg.block(role).model == model)


def apart(cfg: Config) -> bool:
    """Whether who asks has weights of its own, which may learn on from what a warm start has
    made."""
    asker = cfg.spec.asker
    if asker not in warmed(cfg):
        return False
    return cfg.block(asker).policy != "shared" and cfg.placement.layout != "shared-base"


def learns(cfg: Config, role: str, step: int) -> bool:
    """False for a frozen role, after its last step, in a phase of other roles, and while another
    role warms up alone (SSP's warm-up)."""
    block = cfg.block(role)
    if block.policy == "frozen" or not cfg.spec.learns(role, step):
        return False
    alone = max((cfg.block(other).warmup_steps for other in cfg.roles if other != role), default=0)
    return step > alone and not 0 < block.freeze_after < step


def at_once(cfg: Config, role: str) -> int:
    """Blocks of episodes that one player of `role` plays at a time.

    It is one where weights wait for the end of a block: an engine has the weights of one version,
    and each block waits for its own. In flight the blocks of all rounds under way, and of an
    evaluation, share the engine, which the last episodes of one block would leave nearly empty
    (docs/plan.md)."""
    stale = bound(cfg, role)
    return stale + 2 if cfg.schedule.in_flight and stale > 0 else 1


def evaluated(cfg: Config) -> int:
    """Questions of an evaluation that one player tries at a time, at most: its share of a training
    batch, so that an evaluation takes no more memory, but 64 where that is fewer."""
    answerer = cfg.spec.answerer
    return max(64, -(-played(cfg, answerer) // cfg.placement.players[answerer]))


def ranks(cfg: Config, learner: str) -> int:
    """Processes of a learner; one that only waits is one, whatever its ranks."""
    own = cfg.block(learner).learner
    return 1 if own.kind == "simulated" else own.ranks


def gpus(cfg: Config, role: str) -> tuple[float, float]:
    """GPUs of a rank of an engine of `role`, and of its learner: none with engine.device=cpu, which
    only the embedded engine reads."""
    engine = cfg.block(role).engine
    if engine.device != "cpu":
        return cfg.placement.engine_gpus, cfg.placement.learner_gpus
    return 0.0 if engine.traits.model == "needed" else cfg.placement.engine_gpus, 0.0


def judge_gpus(cfg: Config) -> float:
    """GPUs of each rank of a judge's engine, where one verifies and engines have GPUs: a whole one
    of vLLM, a player's share of the embedded one."""
    answerer = cfg.spec.answerer
    if cfg.referee.verifier not in ("frozen", "solver") or not cfg.spec.asker:
        return 0.0
    share, _ = gpus(cfg, answerer)
    model = cfg.block(answerer).engine.traits.model
    if model == "share":
        return 1.0 if share > 0 else 0.0
    return share if model else 0.0


MOST_BATCHES = 20
"""Batches that a round plays at most until its roles have their `min_groups`."""
QUEUE_ITEMS = 65_536
"""Episodes that a queue has room for."""


def queue_budget(cfg: Config) -> tuple[int, int]:
    """Episodes and bytes that each queue has room for: the longest training batch of every round
    that may be under way."""
    return QUEUE_ITEMS, max(256_000_000, *(waiting(cfg, role) for role in cfg.roles))


def waiting(cfg: Config, role: str) -> int:
    """Bytes of the longest training batch of `role` in every round that may be under way, and
    one."""
    block = cfg.block(role)
    contexts = 8 if block.agent else 1  # `CONTEXTS` of ssp.game.rollout.player
    episode = block.limits.longest * contexts * BYTES_A_TOKEN
    return (bound(cfg, role) + 2) * batch(cfg, role) * episode


def batch(cfg: Config, role: str) -> int:
    """Episodes of `role` that are played for a training batch at most: all that who asks learns
    from (of further targets too), and of a refilled one what lies in the same blocks."""
    further = 0
    if role == cfg.spec.asker and cfg.game.batch.startswith("resample"):
        further = cfg.game.resample_attempts
    waits = any(cfg.block(one).min_groups for one in cfg.roles)
    batches = MOST_BATCHES if waits else cfg.game.refill
    return played(cfg, role) * batches * (1 + further)


@dataclass(frozen=True)
class SharedGpus:
    """GPUs that engines and learners share. `roles`: whom these engines play. `sleepers`: the crews
    that have the engines."""

    roles: tuple[str, ...]
    sleepers: tuple[str, ...]
    learners: tuple[str, ...]


def shared_gpus(cfg: Config) -> tuple[SharedGpus, ...]:
    """All that share GPUs in a run; none where engines and learners have GPUs of their own."""
    place = cfg.placement
    learn = teaching(cfg)
    if place.layout == "colocate":
        return tuple(SharedGpus(roles, roles, (name,)) for name, roles in learn.items())
    if place.layout == "shared-base" and place.engine_gpus < 1 and learn:
        return (SharedGpus(cfg.roles, (cfg.spec.answerer,), tuple(learn)),)
    return ()


def takes_turns(cfg: Config, role: str = "") -> bool:
    """Whether engines of this run, or those that play `role`, sleep while learners compute."""
    return any(not role or role in gpus.roles for gpus in shared_gpus(cfg))


def bound(cfg: Config, role: str) -> int:
    """How many versions old a batch of `role` may be."""
    return cfg.schedule.max_staleness[role]
