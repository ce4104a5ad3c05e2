"""Which settings of how a role learns may stand together. What would train wrongly is refused; a
setting that another one only makes idle mostly passes."""

from collections.abc import Iterator
from dataclasses import fields

from ssp.base.errors import InputError, refuse
from ssp.config import own
from ssp.config.crews import bound
from ssp.config.role import LearnerConfig, RoleConfig
from ssp.config.rules import Rule, each_role
from ssp.config.schema import Config
from ssp.learning import algorithms

RATE = ("lr", "warmup_steps", "schedule")
"""Settings of an optimizer step's rate, which each role's own step may have of its own."""

Checks = Iterator[tuple[bool, str, object, str]]
"""Whether it is broken, rule, value, next step."""


@each_role
def own_code_is_there(cfg: Config, role: str) -> None:
    """A user's own estimator or loss is found, and of the right kind, before anything starts."""
    block = cfg.block(role)
    places = [name for name in (block.algorithm, block.loss) if own.is_own(name)]
    if block.policy != "frozen" and places and not any(map(own.sealed, places)):
        # Here, because they import torch, which a dry run does without.
        from ssp.learning import losses

        algorithms.get(block.algorithm, block.gamma, block.lam)
        losses.get(block.loss)


def settings_fit(cfg: Config) -> None:
    """Every check of this file. InputError, or Refusals where several are broken."""
    checks = [
        check
        for role in cfg.roles
        for check in (*_losses(cfg, role), *_learner(role, cfg.block(role)))
    ]
    checks += [*_groups(cfg), *_shared(cfg)]
    errors = {rule: InputError(rule, value, step) for broken, rule, value, step in checks if broken}
    refuse(list(errors.values()))


RULES: tuple[Rule, ...] = (own_code_is_there, settings_fit)


def _trusted(loss: str) -> bool:
    """Whether a loss uses the behaviour log-probs (law 5). Of a run that is only looked at its own
    code is not asked."""
    return own.sealed(loss) or own.says(loss, "trust_region") is True


def _losses(cfg: Config, role: str) -> Checks:
    block, known = cfg.block(role), own.saying("trust_region")
    kl, loss, learns = block.kl, block.loss, block.policy != "frozen"
    marked = (
        ", or give your function the attribute trust_region = True once it uses tokens.behaviour"
    )
    # From the second optimizer step of a batch on its policy is not the one that sampled, as with a
    # bound.
    for key, value, better in (
        (f"schedule.max_staleness.{role}", bound(cfg, role), "tis"),
        (f"{role}.learner.minibatch", block.learner.minibatch, "ppo_clip"),
    ):
        rule = f"{role}.loss must be one of {known} when {key} is above 0"
        step = f"add {role}.loss={better}, or set {key}=0{marked * own.is_own(loss)}"
        yield value > 0 and not _trusted(loss), rule, f"{role}.loss={loss} with {key}={value}", step
    rule = f"{role}.kl.place is loss for kl.kind={kl.kind}: rollouts keep no distributions"
    wide = kl.place != "loss" and bool(own.says(kl.kind, "distributions"))
    yield wide, rule, kl.place, f"set {role}.kl.place=loss, or {role}.kl.kind=k1"
    rule = (
        f"{role}.kl.kind=k1 has no gradient in expectation, so {role}.kl.place is reward or"
        " advantage"
    )
    idle = learns and kl.coef > 0 and kl.kind == "k1" and kl.place == "loss"
    yield idle, rule, "place=loss", f"set {role}.kl.place=reward, or {role}.kl.kind=k3"
    rule = f"{role}.clip_dual is 0 (none) or above 1, the ratio of tokens on policy"
    yield (
        learns and 0 < block.clip_dual <= 1,
        rule,
        f"{block.clip_dual:g}",
        f"set {role}.clip_dual=3",
    )


def _learner(role: str, block: RoleConfig) -> Checks:
    learner, kl, learns = block.learner, block.kl, block.policy != "frozen"
    for key in ("zero", "offload"):
        value, default = getattr(learner, key), getattr(LearnerConfig(), key)
        rule = f"{role}.learner.{key} counts only with {role}.learner.kind=deepspeed"
        step = f"set {role}.learner.kind=deepspeed, or {role}.learner.{key}={default}"
        yield learns and learner.kind != "deepspeed" and value != default, rule, value, step
    rule = (
        f"{role}.learner.offload=all moves the parts of the weights, which {role}.learner.zero=3"
        " makes"
    )
    step = f"set {role}.learner.zero=3, or offload=optimizer"
    yield (
        learns and learner.offload == "all" and learner.zero != 3,
        rule,
        f"zero={learner.zero}",
        step,
    )
    rule = f"{role}.learner.kind=torch is one process, so it has one rank"
    step = f"set {role}.learner.kind=deepspeed, or {role}.learner.ranks=1"
    # Of what learns nothing, ranks are a number for plans.
    yield learner.kind == "torch" and learner.ranks > 1, rule, f"ranks={learner.ranks}", step
    fixed = learner.lora.rank > 0 or (block.policy == "shared" and kl.coef > 0)
    rule = (
        "the KL reference of an adapter is its base, of a shared policy its start, and does not"
        f" move ({role})"
    )
    step = f"set {role}.kl.ema_tau=1, or learner.lora.rank=0 and policy=own"
    yield learns and fixed and kl.ema_tau < 1, rule, f"kl.ema_tau={kl.ema_tau}", step
    rule = f"{role}.algorithm=gae has a critic of one role, which a shared policy has no place for"
    step = f"set {role}.algorithm=grpo, or defaults.policy=own"
    yield block.policy == "shared" and block.algorithm == "gae", rule, f"{role}.policy=shared", step
    split, rule = (
        block.search.kind,
        f"{role}.algorithm=grpo_turns counts turns, which information of one's own splits",
    )
    yield (
        block.algorithm == "grpo_turns" and split != "retriever",
        rule,
        f"search.kind={split}",
        "take grpo",
    )
    # An episode that was cut into several contexts is trained with one advantage.
    by_token = block.algorithm in ("gae", "grpo_turns") or (
        kl.coef > 0 and kl.place in ("reward", "future")
    )
    several = (block.limits.overflow == "drop" or bool(block.agent)) and (
        by_token or own.is_own(block.algorithm)
    )
    found = f"{role}.algorithm={block.algorithm}, kl.place={kl.place}"
    step = (
        f"set {role}.limits.overflow=stop and no {role}.agent, or {role}.algorithm=grpo"
        " kl.place=loss"
    )
    yield (
        several,
        f"{role}.limits.overflow=drop, and {role}.agent, need one advantage an episode",
        found,
        step,
    )


def _groups(cfg: Config) -> Checks:
    role, asker = cfg.spec.answerer, cfg.spec.asker
    algorithm = cfg.block(role).algorithm
    kind = algorithms.kind(algorithm)
    rule = f"{role}.algorithm={algorithm} compares attempts, so game.attempts is at least 2"
    learns = cfg.block(role).policy != "frozen"
    alone = learns and cfg.game.attempts < 2 and kind is not None and kind.needs_group
    step = f"set game.attempts=6, or {role}.algorithm=reinforce"
    yield alone, rule, f"game.attempts={cfg.game.attempts}", step
    rule = (
        f"game.refill={cfg.game.refill} replaces groups without spread, which teach nothing where"
        f" the group is the {role}'s baseline"
    )
    grouped = kind is None or kind.baseline == "group"
    step = f"set {role}.algorithm=grpo, or leave game.refill out"
    yield cfg.game.refill > 1 and not grouped, rule, f"{role}.algorithm={algorithm}", step
    if not asker or cfg.block(asker).policy == "frozen":
        return
    algorithm = cfg.block(asker).algorithm
    rule = f"{asker}.algorithm=remax needs a greedy question to each target, which nobody asks"
    found, step = f"{asker}.algorithm=remax", f"set {asker}.algorithm=reinforce"
    yield algorithm == "remax", rule, found, step
    rule = f"{asker}.algorithm=rloo compares questions to one target, of which there is one"
    found = f"{asker}.algorithm=rloo with game.proposals=1"
    step = f"set {asker}.algorithm=reinforce (the batch as baseline), or game.proposals=4"
    yield algorithm == "rloo" and cfg.game.proposals == 1, rule, found, step


def _shared(cfg: Config) -> Checks:
    """A policy is shared by roles that play: one model, one program that trains it, one pace."""
    shared = [role for role in cfg.roles if cfg.block(role).policy == "shared"]
    if len(shared) < 2:
        found = " ".join(f"{role}.policy={cfg.block(role).policy}" for role in cfg.roles)
        step = "set defaults.policy=shared, or where nobody proposes policy=own"
        yield bool(shared), "policy=shared is one policy for both roles", found, step
        return
    first, *others = shared
    for role in others:
        yield from _alike(cfg, first, role)


def _alike(cfg: Config, first: str, role: str) -> Checks:
    """What two roles with one policy have in common. `role` takes the later step."""
    one, other, rule = cfg.block(first), cfg.block(role), "roles with policy=shared have one {}"
    models = f"{one.model} and {other.model}"
    yield one.model != other.model, rule.format("model"), models, "set defaults.model only"
    combine = one.learner.combine or other.learner.combine
    apart = ("minibatch",) if combine else ("minibatch", *RATE)
    names = {item.name: "learner" for item in fields(LearnerConfig) if item.name not in apart}
    names |= {"dtype": "engine", "device": "engine"}  # the learner computes as its engine
    for name, block_of in names.items():
        values = getattr(one.learner, name), getattr(other.learner, name)
        more = ", and with combine=true one learning rate" if name in RATE else ""
        found = f"{block_of}.{name}: {values[0]} and {values[1]}"
        step = f"set defaults.{block_of}.{name} only"
        yield values[0] != values[1], rule.format("learner") + more, found, step
    bounds, both = (
        (bound(cfg, first), bound(cfg, role)),
        rule.format("staleness bound: both train in the same step"),
    )
    found = f"{first} {bounds[0]}, {role} {bounds[1]}"
    yield bounds[0] != bounds[1], both, found, "set both schedule.max_staleness alike"
    # So that this policy is not the one that sampled any more (law 1).
    rule = (
        f"{role}.loss is one of {own.saying('trust_region')} where a shared policy takes the"
        f" {first}'s step first"
    )
    step = f"set {role}.loss=ppo_clip, or defaults.learner.combine=true"
    stale = not other.learner.combine and not _trusted(other.loss)
    yield stale, rule, f"{role}.loss={other.loss}", step


def warnings(cfg: Config) -> Iterator[str]:
    """What is allowed but has gone wrong for others, a sentence each."""
    for role in cfg.roles:
        block = cfg.block(role)
        if block.policy != "frozen" and block.algorithm == "gae" and block.kl.coef == 0:
            yield (
                f"{role}.algorithm=gae without a KL term: PPO may drift far from its start (set"
                f" {role}.kl.coef=0.001)"
            )
        if block.policy != "frozen" and block.learner.schedule == "cosine":
            yield (
                f"{role}.learner.schedule=cosine falls with each update and would end after"
                f" steps={cfg.steps}: a round without signal makes no update, and leaves the rate"
                " where it is"
            )
