"""The tables of allowed values: names by key, names that a later release knows, ranges of every number.

Owns data only, so that a new feature adds a line here and a function where it lives. Promises that every number of the
schema has a range (a test counts them). Refuses to judge combinations (`ssp.config.rules`).
"""

from __future__ import annotations

import math

PRESETS = {"sync": (0, 0), "one-step-off": (1, 1), "async": (4, 4)}
"""Staleness bounds (proposer, solver) that `schedule.preset` stands for."""

TRUST_REGION = ("ppo_clip", "tis")
"""Losses that use the behaviour log-probs, as a staleness bound above 0 needs (law 5)."""

GROUP_BASELINE = ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline")
"""Algorithms that compare the attempts at one question."""

DISTRIBUTION_KL = ("topk_reverse", "topk_forward", "full")
"""KL estimators over whole distributions: of these the rollout keeps none, so they are of use in the loss only."""

CHOICES: dict[str, tuple[str, ...]] = {
    "schedule.preset": ("", *PRESETS),
    "game.questions": ("proposer", "dataset", "bank"),
    "game.batch": ("dummy", "resample", "replay", "replay_reset"),
    "referee.verifier": ("frozen", "solver", "judge", "none"),
    "referee.evidence": ("chain", "verbatim", "quoted", "none"),
    "judge.kind": ("exact", "llm", "engine"),
    "judge.format": ("word", "json"),
    "ray.auth": ("disabled", "token"),
    "{role}.policy": ("own", "frozen"),
    "{role}.algorithm": (
        "grpo",
        "dr_grpo",
        "rloo",
        "reinforce",
        "reinforce_pp",
        "reinforce_pp_baseline",
        "gae",
        "rae",
    ),
    "{role}.loss": ("pg", "ppo_clip", "tis"),
    "proposer.reward": ("1-acc", "intermediate_difficulty", "target_difficulty", "format_only"),
    "{role}.template": ("", "plain", "chatml", "llama3", "tokenizer"),
    "{role}.limits.overflow": ("stop", "drop"),
    "{role}.search.kind": ("retriever", "self", "first_k", "entropy"),
    "{role}.search.entropy": ("sampled", "full"),
    "{role}.engine.kind": ("torch", "endpoint"),
    "{role}.engine.dtype": ("float32", "bfloat16"),
    "{role}.learner.kind": ("torch",),
    "{role}.learner.schedule": ("constant", "cosine"),
    "{role}.aggregate": ("token-mean", "sequence-mean", "fixed-length"),
    "{role}.kl.kind": ("k1", "k2", "k3", "k3pp", "k4", "k5", "abs", *DISTRIBUTION_KL),
    "{role}.kl.place": ("loss", "reward", "advantage"),
    "{role}.kl.variant": ("exact", "paper"),
}
"""Names that are built in, by key."""

PLANNED: dict[str, tuple[str, ...]] = {
    "{role}.policy": ("shared",),
    "{role}.algorithm": ("remax",),
    "{role}.loss": ("decoupled", "gspo", "cispo"),
    "{role}.engine.kind": ("vllm", "simulated"),
    "{role}.learner.kind": ("deepspeed",),
}
"""Names that a later release knows: the message says so, and they are refused all the same."""

NOT_YET: dict[str, object] = {"retriever.replicas": 1}
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
    "game.resample_attempts": (0, 100),
    "game.resample_min_valid": (0, 1),
    "game.replay_size": (1, INF),
    "game.replay_reset_every": (1, INF),
    "game.replay_keep": (0, 1),
    "game.replay_max_win_rate": (0, 1),
    "referee.noise_documents": (0, INF),
    "referee.noise_trajectories": (0, INF),
    "referee.prompt_tokens": (1, INF),
    "referee.answer_tokens": (1, INF),
    "referee.min_searches": (0, INF),
    "referee.max_relations": (1, INF),
    "referee.min_chars": (0, INF),
    "referee.max_chars": (1, INF),
    "referee.min_words": (0, INF),
    "referee.alarm_win_rate": (0, 1),
    "referee.alarm_valid_rate": (0, 1),
    "referee.alarm_patience": (1, INF),
    "judge.max_tokens": (1, INF),
    "judge.timeout": (0.001, INF),
    "judge.retries": (0, 100),
    "judge.concurrency": (1, MOST),
    "judge.breaker": (1, INF),
    "judge.breaker_seconds": (0, INF),
    "judge.cache": (0, INF),
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
    "{role}.engine.lanes": (1, MOST),
    "{role}.engine.timeout": (0.001, INF),
    "{role}.invalid_reward": (-INF, INF),
    "{role}.batch": (1, INF),
    "{role}.warmup_steps": (0, INF),
    "{role}.freeze_after": (0, INF),
    "{role}.clip_low": (0, 1),
    "{role}.clip_high": (0, INF),
    "{role}.clip_dual": (0, INF),
    "{role}.tis_cap": (0.001, INF),
    "{role}.entropy_coef": (0, INF),
    "{role}.gamma": (0, 1),
    "{role}.lam": (0, 1),
    "{role}.critic.lr": (0, INF),
    "{role}.critic.value_clip": (0.001, INF),
    "{role}.critic.warmup_steps": (0, INF),
    "{role}.target_difficulty": (0, 1),
    "{role}.learner.lr": (0, INF),
    "{role}.learner.warmup_steps": (0, INF),
    "{role}.learner.beta1": (0, 0.999999),
    "{role}.learner.beta2": (0, 0.999999),
    "{role}.learner.weight_decay": (0, INF),
    "{role}.learner.max_grad_norm": (0.001, INF),
    "{role}.learner.token_budget": (1, INF),
    "{role}.learner.minibatch": (0, INF),
    "{role}.kl.coef": (0, INF),
    "{role}.kl.topk": (1, INF),
    "{role}.kl.weight_low": (0, INF),
    "{role}.kl.weight_high": (0, INF),
    "{role}.kl.target": (0, INF),
    "{role}.kl.horizon": (1, INF),
    "{role}.kl.ema_tau": (0, 1),
    "{role}.kl.ema_every": (1, INF),
    "{role}.sampling.temperature": (0, INF),
    "{role}.limits.searches": (0, INF),
    "{role}.limits.prompt_tokens": (1, INF),
    "{role}.limits.retries": (0, INF),
    "{role}.limits.seconds": (0, INF),
    "{role}.search.real": (0, INF),
    "{role}.limits.turn_tokens": (1, INF),
    "{role}.limits.observation_tokens": (1, INF),
    "{role}.limits.total_tokens": (2, INF),
}
"""Smallest and largest value of every number, both allowed (`inf`: no such end; infinity itself is refused)."""
