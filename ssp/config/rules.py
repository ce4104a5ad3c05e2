"""Which values make sense: known names, ranges, and what may stand together.

Owns the judgement of a typed `Config`, each rule small and named by the key it guards. Promises to fail closed: a setting
whose feature is not built yet is refused, never ignored. Refuses to read files or to change values; the one exception is
`expand_preset`, which turns a preset into the bounds that it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ssp.config.schema import Config
from ssp.errors import InputError
from ssp.tokenlog import BYTES_A_TOKEN

PRESETS = {"sync": (0, 0), "one-step-off": (1, 1), "async": (4, 4)}
"""Staleness bounds (proposer, solver) that `schedule.preset` stands for."""

TRUST_REGION = ("ppo_clip", "tis")
"""Losses that use the behaviour log-probs, as a staleness bound above 0 needs (law 5)."""

CHOICES: dict[str, tuple[str, ...]] = {
    "protocol": ("mini",),
    "schedule.preset": ("", *PRESETS),
    "game.questions": ("proposer",),
    "game.batch": ("dummy", "replay", "replay_reset"),
    "referee.verifier": ("frozen", "solver", "none"),
    "referee.evidence": ("chain", "verbatim", "none"),
    "judge.kind": ("exact",),
    "ray.auth": ("disabled", "token"),
    "{role}.policy": ("own", "frozen"),
    "{role}.algorithm": ("grpo", "reinforce"),
    "{role}.loss": ("pg", "ppo_clip", "tis"),
    "{role}.reward": ("1-acc", "intermediate_difficulty", "target_difficulty", "format_only"),
    "{role}.engine.kind": ("torch",),
    "{role}.engine.dtype": ("float32", "bfloat16"),
    "{role}.learner.kind": ("torch",),
    "{role}.kl.kind": ("k1", "k2", "k3"),
}
"""Names that are built in, by key."""

PLANNED: dict[str, tuple[str, ...]] = {
    "protocol": ("search-r1", "ssp", "r-search", "llama3p1", "qwen2p5", "research", "ssrl", "recall", "chat-tools"),
    "game.questions": ("dataset", "bank"),
    "game.batch": ("resample",),
    "{role}.policy": ("shared",),
    "{role}.algorithm": ("dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "remax", "gae", "rae"),
    "{role}.loss": ("decoupled", "gspo", "cispo"),
    "{role}.engine.kind": ("vllm", "endpoint", "simulated"),
    "{role}.learner.kind": ("deepspeed",),
    "{role}.kl.kind": ("k3pp", "k4", "k5", "abs", "topk_reverse", "topk_forward", "full"),
}
"""Names that a later release knows: the message says so, and they are refused all the same."""

NOT_YET: dict[str, object] = {"retriever.url": "", "retriever.replicas": 1, "data.questions": ""}
"""Keys whose feature is not built yet, with the only value that is accepted."""

INF = math.inf
MOST = 1024
"""Actors of one kind, at most: a slip of the finger must not start a million processes."""
COLDEST = 0.01
"""Lowest temperature above 0: below, logits divided by it overflow; 0 itself is greedy."""
RANGES: dict[str, tuple[float, float]] = {
    "seed": (0, 2**63 - 1),
    "steps": (1, INF),
    "eval.every": (0, INF),
    "eval.questions_per_hop": (1, INF),
    "eval.final_questions_per_hop": (1, INF),
    "eval.temperature": (0, INF),
    "save.every": (1, INF),
    "save.keep": (1, INF),
    "void.limit": (0, 1),
    "void.window": (1, INF),
    "void.probe_every": (0, INF),
    "void.give_up_after": (0, INF),
    "schedule.max_staleness.proposer": (0, INF),
    "schedule.max_staleness.solver": (0, INF),
    "game.attempts": (1, INF),
    "game.replay_reset_every": (1, INF),
    "game.replay_keep": (0, 1),
    "game.replay_max_win_rate": (0, 1),
    "referee.noise_documents": (0, INF),
    "referee.min_searches": (0, INF),
    "referee.max_relations": (1, INF),
    "referee.alarm_win_rate": (0, 1),
    "referee.alarm_valid_rate": (0, 1),
    "referee.alarm_patience": (1, INF),
    "world.train_seed": (0, 2**63 - 1),
    "world.heldout_seed": (0, 2**63 - 1),
    "retriever.shards": (1, MOST),
    "retriever.topk": (1, INF),
    "retriever.k1": (0, INF),
    "retriever.b": (0, 1),
    "retriever.timeout": (0.001, INF),
    "placement.proposers": (1, MOST),
    "placement.solvers": (1, MOST),
    "placement.judges": (1, MOST),
    "placement.cpus": (0, INF),
    "placement.restarts": (0, INF),
    "placement.call_timeout": (0.001, INF),
    "ray.cpus": (0, INF),
    "ray.dashboard_port": (0, 65535),
    "ray.object_store_mb": (80, INF),
    "ray.start_timeout": (0.001, INF),
    "queue.items": (1, INF),
    "queue.bytes": (1, INF),
    "queue.timeout": (0.001, INF),
    "coldstart.seed": (0, 2**63 - 1),
    "coldstart.max_seconds": (1, INF),
    "coldstart.gate_1hop": (0, 1),
    "coldstart.gate_2hop": (0, 1),
    "coldstart.gate_3hop": (0, 1),
    "{role}.invalid_reward": (-INF, INF),
    "{role}.batch": (1, INF),
    "{role}.warmup_steps": (0, INF),
    "{role}.freeze_after": (0, INF),
    "{role}.clip_low": (0, 1),
    "{role}.clip_high": (0, INF),
    "{role}.tis_cap": (0.001, INF),
    "{role}.target_difficulty": (0, 1),
    "{role}.learner.lr": (0, INF),
    "{role}.learner.beta1": (0, 0.999999),
    "{role}.learner.beta2": (0, 0.999999),
    "{role}.learner.weight_decay": (0, INF),
    "{role}.learner.max_grad_norm": (0.001, INF),
    "{role}.learner.token_budget": (1, INF),
    "{role}.kl.coef": (0, INF),
    "{role}.sampling.temperature": (0, INF),
    "{role}.limits.searches": (0, INF),
    "{role}.limits.turn_tokens": (1, INF),
    "{role}.limits.observation_tokens": (1, INF),
    "{role}.limits.total_tokens": (2, INF),
}
"""Smallest and largest value of every number, both allowed (`inf`: no such end; infinity itself is refused)."""


def check(cfg: Config) -> None:
    """Every rule, in order: names, what is not built yet, ranges, combinations. InputError at the first that fails."""
    for pattern, known in CHOICES.items():
        for key in _expand(pattern):
            check_choice(key, get(cfg, key), known, PLANNED.get(pattern, ()))
    for key, only in NOT_YET.items():
        check_not_yet(key, get(cfg, key), only)
    for pattern, (low, high) in RANGES.items():
        for key in _expand(pattern):
            check_range(key, get(cfg, key), low, high)
    for rule in COMBINATIONS:
        rule(cfg)


def get(cfg: Config, key: str) -> Any:
    """The value of a dotted key."""
    value: Any = cfg
    for step in key.split("."):
        value = getattr(value, step)
    return value


def expand_preset(raw: dict[str, Any]) -> None:
    """Write the bounds of `schedule.preset` into the raw mapping; InputError when a bound says something else."""
    schedule = raw.get("schedule", {})
    preset = schedule.get("preset", "")
    if preset not in PRESETS:
        return
    bounds = schedule.setdefault("max_staleness", {})
    for role, bound in zip(("proposer", "solver"), PRESETS[preset], strict=True):
        if bounds.setdefault(role, bound) != bound:
            raise InputError(
                f"schedule.preset={preset} stands for schedule.max_staleness.{role}={bound}",
                f"schedule.max_staleness.{role}={bounds[role]}",
                "set the preset or the bounds, not both",
            )


def check_choice(key: str, value: str, known: tuple[str, ...], planned: tuple[str, ...]) -> None:
    """A name must be one that is built in."""
    if value in known:
        return
    listed = ", ".join(name or "''" for name in known)
    late = f"{value} (planned, not in this release)" if value in planned else value or "''"
    raise InputError(f"{key} is one of {listed}", late, f"set {key}={known[0] or known[-1]}")


def check_not_yet(key: str, value: object, only: object) -> None:
    """A feature that is not built yet must not be asked for."""
    if value != only:
        shown = repr(only) if only == "" else only
        raise InputError(f"{key} is not in this release", f"{key}={value}", f"leave it at {shown}")


def check_range(key: str, value: float, low: float, high: float) -> None:
    """A number must be finite and lie between two ends, both allowed."""
    if math.isfinite(value) and low <= value <= high:
        return
    if low == -INF:
        raise InputError(f"{key} is a finite number", value, f"set {key}=0")
    span = f"at least {low:g}" if high == INF else f"from {low:g} to {high:g}"
    raise InputError(f"{key} is {span}", value, f"set {key}={low:g} or more" if high == INF else f"set it {span}")


def stale_role_needs_trust_region(cfg: Config) -> None:
    """Law 5: with a bound above 0 the loss must use the behaviour log-probs; plain `pg` would be biased."""
    for role in ("proposer", "solver"):
        bound, loss = getattr(cfg.schedule.max_staleness, role), getattr(cfg, role).loss
        if bound > 0 and loss not in TRUST_REGION:
            raise InputError(
                f"{role}.loss must be one of {', '.join(TRUST_REGION)} when schedule.max_staleness.{role} is above 0",
                f"{role}.loss={loss} with a bound of {bound}",
                f"add {role}.loss=tis, or set the bound to 0",
            )


def grpo_needs_attempts(cfg: Config) -> None:
    """A group of one has no spread, so it would never learn."""
    if cfg.solver.policy == "own" and cfg.solver.algorithm == "grpo" and cfg.game.attempts < 2:
        raise InputError(
            "solver.algorithm=grpo compares attempts, so game.attempts is at least 2",
            f"game.attempts={cfg.game.attempts}",
            "set game.attempts=6, or solver.algorithm=reinforce",
        )


def someone_learns(cfg: Config) -> None:
    """Training with two frozen policies has nothing to do."""
    if cfg.proposer.policy == cfg.solver.policy == "frozen":
        raise InputError(
            "at least one role learns", "proposer.policy=solver.policy=frozen", "set one to own, or use ssp eval"
        )


def training_samples(cfg: Config) -> None:
    """A policy gradient needs sampled actions: greedy training rollouts have no exploration and no usable log-probs."""
    for role in ("proposer", "solver"):
        block = getattr(cfg, role)
        if block.policy == "own" and block.sampling.temperature == 0:
            raise InputError(f"{role}.sampling.temperature is above 0 for a role that learns", "0", "set it to 1.0")


def temperatures_are_usable(cfg: Config) -> None:
    """A temperature near 0 overflows the softmax, which would make every episode void."""
    for key in ("eval.temperature", *_expand("{role}.sampling.temperature")):
        if 0 < get(cfg, key) < COLDEST:
            raise InputError(f"{key} is 0 (greedy) or at least {COLDEST}", get(cfg, key), f"set {key}=0 or {COLDEST}")


def evidence_needs_verifier(cfg: Config) -> None:
    """The evidence check reads what the verifier quoted; without a verifier it cannot run, so it cannot pass (law 6)."""
    if cfg.referee.verifier == "none" and cfg.referee.evidence != "none":
        raise InputError(
            "referee.evidence checks what the verifier quotes, so it needs a verifier",
            f"referee.verifier=none with referee.evidence={cfg.referee.evidence}",
            "set referee.verifier=frozen, or add referee.evidence=none",
        )


def proposer_can_search_enough(cfg: Config) -> None:
    """A question needs `min_searches` searches, which the proposer must be allowed to make."""
    if cfg.referee.min_searches > cfg.proposer.limits.searches:
        raise InputError(
            "proposer.limits.searches is at least referee.min_searches",
            f"{cfg.proposer.limits.searches} against {cfg.referee.min_searches}",
            "raise the first or lower the second",
        )


def turn_fits_episode(cfg: Config) -> None:
    """One turn must fit into the episode."""
    for role in ("proposer", "solver"):
        limits = getattr(cfg, role).limits
        if limits.turn_tokens >= limits.total_tokens:
            raise InputError(
                f"{role}.limits.turn_tokens is below {role}.limits.total_tokens",
                f"{limits.turn_tokens} against {limits.total_tokens}",
                "raise total_tokens",
            )


def batch_fits_queue(cfg: Config) -> None:
    """A queue takes a training batch whole."""
    largest = max(cfg.proposer.batch, cfg.solver.batch * cfg.game.attempts)
    if largest > cfg.queue.items:
        raise InputError(
            "queue.items holds at least one training batch (proposer.batch, solver.batch x game.attempts)",
            f"queue.items={cfg.queue.items} for a batch of {largest}",
            f"set queue.items={2 * largest}",
        )
    nbytes = BYTES_A_TOKEN * max(
        cfg.proposer.batch * cfg.proposer.limits.total_tokens,
        cfg.solver.batch * cfg.game.attempts * cfg.solver.limits.total_tokens,
    )
    if nbytes > cfg.queue.bytes:
        raise InputError(
            f"queue.bytes holds the longest training batch ({BYTES_A_TOKEN} bytes a token of limits.total_tokens)",
            f"queue.bytes={cfg.queue.bytes} for {nbytes} bytes",
            f"set queue.bytes={2 * nbytes}",
        )


def solver_earns_exact_match(cfg: Config) -> None:
    """`reward` and `target_difficulty` are the proposer's; on the solver they would be ignored."""
    for key in ("reward", "target_difficulty"):
        value = getattr(cfg.solver, key)
        if value != getattr(cfg.defaults, key):
            raise InputError(
                f"solver.{key} has no effect: the solver earns exact match", value, f"set proposer.{key} instead"
            )


def eval_sets_are_distinct(cfg: Config) -> None:
    """Evaluation sets are told apart by name in the metrics."""
    sets = [item.name for item in cfg.data.eval]
    if len(set(sets)) != len(sets) or "" in sets:
        raise InputError("each evaluation set has a name of its own", ", ".join(sets), "rename one of them")
    if cfg.eval.every > 0 and not sets:
        raise InputError("periodic evaluation needs an evaluation set", "data.eval=[]", "add one, or set eval.every=0")


def hops_are_known(cfg: Config) -> None:
    """The generated worlds ask questions of 1 to 4 hops; each is scored once."""
    hops = cfg.eval.hops
    if not hops or len(set(hops)) != len(hops) or not set(hops) <= {1, 2, 3, 4}:
        raise InputError("eval.hops lists distinct hops from 1 to 4", hops, "set eval.hops=[1,2,3]")


def worlds_are_disjoint(cfg: Config) -> None:
    """Held-out questions in the training world would measure memory."""
    if cfg.world.train_seed == cfg.world.heldout_seed:
        raise InputError("world.train_seed and world.heldout_seed differ", cfg.world.train_seed, "change one of them")


def run_name_is_a_name(cfg: Config) -> None:
    """`run.name` becomes a folder under runs/."""
    name = cfg.run.name
    if "/" in name or name in (".", ".."):
        raise InputError("run.name is one folder name", name, "use run.dir=PATH for another place")


COMBINATIONS: tuple[Callable[[Config], None], ...] = (
    stale_role_needs_trust_region,
    grpo_needs_attempts,
    someone_learns,
    training_samples,
    temperatures_are_usable,
    evidence_needs_verifier,
    proposer_can_search_enough,
    turn_fits_episode,
    batch_fits_queue,
    solver_earns_exact_match,
    eval_sets_are_distinct,
    hops_are_known,
    worlds_are_disjoint,
    run_name_is_a_name,
)


def _expand(pattern: str) -> list[str]:
    """`{role}.x` as `defaults.x`, `proposer.x`, `solver.x`: a bad default is named where it was written."""
    if "{role}" not in pattern:
        return [pattern]
    return [pattern.format(role=role) for role in ("defaults", "proposer", "solver")]
