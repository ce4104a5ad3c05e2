"""Which settings of how a role learns may stand together. What would train wrongly is refused; a
setting that another one only makes idle mostly passes."""

from collections.abc import Iterator
from dataclasses import fields

from ssp.base.episode import SOLVER
from ssp.base.errors import InputError, hold, refuse
from ssp.config import own
from ssp.config.crews import bound
from ssp.config.role import LearnerConfig, RoleConfig
from ssp.config.rules import Rule, each_role
from ssp.config.schema import Config
from ssp.learning import algorithms, losses
from ssp.learning.kl import WHOLE
from ssp.learning.kl import get as get_kl

RATE = ("lr", "warmup_steps", "schedule")
"""Settings of an optimizer step's rate, which each role's own step may have of its own."""

Check = tuple[bool, str, object, str]
"""Whether it is broken, rule, value, next step."""


@each_role
def own_code_is_there(cfg: Config, role: str) -> None:
    """A user's own estimator, loss or KL is found, and of the right kind, before anything
    starts."""
    block = cfg.block(role)
    if block.policy == "frozen":
        return
    if not any(map(own.sealed, (block.algorithm, block.loss, block.kl.kind))):
        algorithms.get(block.algorithm, block.gamma, block.lam)
        losses.get(block.loss)
        get_kl(block.kl.kind)


def traces_fit_the_game(cfg: Config) -> None:
    """A warm start teaches what its traces hold: a proposer, a solver and a verifier."""
    rule = "warmup.data has traces of a proposer and of a solver"
    roles = f"the roles of game.kind={cfg.game.kind} are {', '.join(cfg.roles)}"
    step = "leave warmup.data out, and name a taught policy by defaults.model"
    hold(not cfg.warmup.warms or SOLVER in cfg.roles, rule, roles, step)


def settings_fit(cfg: Config) -> None:
    """Every check of this file. InputError, or Refusals where several are broken."""
    checks: list[Check] = []
    for role in cfg.roles:
        checks += _losses(cfg, role)
        checks += _learner(role, cfg.block(role))
    checks += _answerers(cfg)
    checks += _askers(cfg)
    checks += _shared(cfg)
    errors = {rule: InputError(rule, value, step) for broken, rule, value, step in checks if broken}
    refuse(list(errors.values()))


RULES: tuple[Rule, ...] = (own_code_is_there, traces_fit_the_game, settings_fit)


def by_token(block: RoleConfig) -> bool:
    """Whether an episode's tokens have several advantages, which want it in one context."""
    penalised = block.kl.coef > 0 and block.kl.place in ("reward", "future")
    algorithm = block.algorithm
    return algorithm in ("gae", "grpo_turns") or penalised or own.is_own(algorithm)


def _losses(cfg: Config, role: str) -> Iterator[Check]:
    """A loss knows the distance of the policy from the one that sampled, and a KL acts where it
    stands."""
    block = cfg.block(role)
    kl = block.kl
    loss = block.loss
    learns = block.policy != "frozen"
    # From the second optimizer step of a batch on its policy is not the one that sampled, as with a
    # bound.
    distances = (
        (f"schedule.max_staleness.{role}", bound(cfg, role), "tis"),
        (f"{role}.learner.minibatch", block.learner.minibatch, "ppo_clip"),
    )
    for key, value, better in distances:
        known = ", ".join(losses.TRUSTED)
        rule = f"{role}.loss must be one of {known} when {key} is above 0"
        step = f"add {role}.loss={better}, or set {key}=0"
        if own.is_own(loss):
            attribute = "the attribute trust_region = True once it uses tokens.behaviour"
            step += f", or give your function {attribute}"
        blind = value > 0 and not losses.trusted(loss)
        yield blind, rule, f"{role}.loss={loss} with {key}={value}", step

    rule = f"{role}.kl.place is loss for kl.kind={kl.kind}: rollouts keep no distributions"
    step = f"set {role}.kl.place=loss, or {role}.kl.kind=k1"
    wide = kl.place != "loss" and kl.kind in WHOLE
    yield wide, rule, kl.place, step

    estimator = algorithms.kind(block.algorithm)
    by_rows = estimator is not None and estimator.baseline == "asked"
    rule = (
        f"{role}.kl.place=reward leaves the advantages to the learner, which does not know what"
        " rows ask for"
    )
    step = f"set {role}.kl.place=loss, or {role}.algorithm=reinforce"
    unknown = by_rows and kl.place == "reward" and kl.coef > 0
    yield unknown, rule, f"{role}.algorithm={block.algorithm}", step

    rule = f"{role}.kl.kind=k1 has no gradient in expectation"
    rule += f", so {role}.kl.place is reward or advantage"
    step = f"set {role}.kl.place=reward, or {role}.kl.kind=k3"
    idle = learns and kl.coef > 0 and kl.kind == "k1" and kl.place == "loss"
    yield idle, rule, "place=loss", step

    rule = f"{role}.clip_dual is 0 (none) or above 1, the ratio of tokens on policy"
    inside = learns and 0 < block.clip_dual <= 1
    yield inside, rule, f"{block.clip_dual:g}", f"set {role}.clip_dual=3"


def _learner(role: str, block: RoleConfig) -> Iterator[Check]:
    """Settings of the learner that only another one gives a meaning."""
    learner = block.learner
    kl = block.kl
    learns = block.policy != "frozen"
    for key in ("zero", "offload"):
        value = getattr(learner, key)
        default = getattr(LearnerConfig(), key)
        rule = f"{role}.learner.{key} counts only with {role}.learner.kind=deepspeed"
        step = f"set {role}.learner.kind=deepspeed, or {role}.learner.{key}={default}"
        idle = learns and learner.kind != "deepspeed" and value != default
        yield idle, rule, value, step

    rule = f"{role}.learner.offload=all moves the parts of the weights"
    rule += f", which {role}.learner.zero=3 makes"
    whole = learns and learner.offload == "all" and learner.zero != 3
    yield whole, rule, f"zero={learner.zero}", f"set {role}.learner.zero=3, or offload=optimizer"

    rule = f"{role}.learner.kind=torch is one process, so it has one rank"
    step = f"set {role}.learner.kind=deepspeed, or {role}.learner.ranks=1"
    # Of what learns nothing, ranks are a number for plans.
    several = learner.kind == "torch" and learner.ranks > 1
    yield several, rule, f"ranks={learner.ranks}", step

    rule = "the KL reference of an adapter is its base, of a shared policy its start"
    rule += f", and does not move ({role})"
    step = f"set {role}.kl.ema_tau=1, or learner.lora.rank=0 and policy=own"
    fixed = learner.lora.rank > 0 or (block.policy == "shared" and kl.coef > 0)
    moves = learns and fixed and kl.ema_tau < 1
    yield moves, rule, f"kl.ema_tau={kl.ema_tau}", step

    rehearsal = block.rehearsal
    rule = f"{role}.rehearsal learns traces again, which warmup.data names"
    step = f"set warmup.data=traces.jsonl (without a warm start warmup.epochs=0), or {role}.rehearsal.share=0"
    nothing = learns and rehearsal.share > 0 and not rehearsal.data
    yield nothing, rule, f"share={rehearsal.share:g} and no warmup.data", step

    algorithm = block.algorithm
    rule = f"{role}.algorithm=gae has a critic of one role, which a shared policy has no place for"
    step = f"set {role}.algorithm=grpo, or defaults.policy=own"
    yield block.policy == "shared" and algorithm == "gae", rule, f"{role}.policy=shared", step

    rule = f"{role}.algorithm=grpo_turns counts turns, which information of one's own splits"
    split = algorithm == "grpo_turns" and block.search.kind != "retriever"
    yield split, rule, f"search.kind={block.search.kind}", "take grpo"

    # An episode that was cut into several contexts is trained with one advantage.
    rule = f"{role}.limits.overflow=drop, and {role}.agent, need one advantage an episode"
    step = f"set {role}.limits.overflow=stop and no {role}.agent, or {role}.algorithm=grpo"
    step += " kl.place=loss"
    cuts = block.limits.overflow == "drop" or bool(block.agent)
    yield cuts and by_token(block), rule, f"{role}.algorithm={algorithm}, kl.place={kl.place}", step


def _answerers(cfg: Config) -> Iterator[Check]:
    """Who answers has as many attempts as its estimator compares."""
    role = cfg.spec.answerer
    block = cfg.block(role)
    algorithm = block.algorithm
    kind = algorithms.kind(algorithm)
    rule = f"{role}.algorithm={algorithm} compares attempts, so game.attempts is at least 2"
    step = f"set game.attempts=6, or {role}.algorithm=reinforce"
    compares = block.policy != "frozen" and kind is not None and kind.needs_group
    attempts = cfg.game.attempts
    yield compares and attempts < 2, rule, f"game.attempts={attempts}", step

    refill = cfg.game.refill
    rule = f"game.refill={refill} replaces groups without spread, which teach nothing where"
    rule += f" the group is the {role}'s baseline"
    step = f"set {role}.algorithm=grpo, or leave game.refill out"
    alone = kind is not None and kind.baseline != "group"
    yield refill > 1 and alone, rule, f"{role}.algorithm={algorithm}", step


def _askers(cfg: Config) -> Iterator[Check]:
    """Who asks has as many questions to a target as its estimator compares."""
    role = cfg.spec.asker
    if not role or cfg.block(role).policy == "frozen":
        return
    algorithm = cfg.block(role).algorithm
    named = f"{role}.algorithm={algorithm}"
    rule = f"{role}.algorithm=remax needs a greedy question to each target, which nobody asks"
    yield algorithm == "remax", rule, named, f"set {role}.algorithm=reinforce"

    rule = f"{role}.algorithm=rloo compares questions to one target, of which there is one"
    step = f"set {role}.algorithm=reinforce (the batch as baseline), or game.proposals=4"
    alone = algorithm == "rloo" and cfg.game.proposals == 1
    yield alone, rule, f"{named} with game.proposals=1", step


def _shared(cfg: Config) -> Iterator[Check]:
    """A policy is shared by roles that play: one model, one program that trains it, one pace."""
    shared = [role for role in cfg.roles if cfg.block(role).policy == "shared"]
    if len(shared) < 2:
        policies = " ".join(f"{role}.policy={cfg.block(role).policy}" for role in cfg.roles)
        step = "set defaults.policy=shared, or where nobody proposes policy=own"
        yield bool(shared), "policy=shared is one policy for both roles", policies, step
        return
    first, *others = shared
    for role in others:
        yield from _alike(cfg, first, role)


def _alike(cfg: Config, first: str, role: str) -> Iterator[Check]:
    """What two roles with one policy have in common. `role` takes the later step."""
    one = cfg.block(first)
    other = cfg.block(role)
    rule = "roles with policy=shared have one"
    models = f"{one.model} and {other.model}"
    yield one.model != other.model, f"{rule} model", models, "set defaults.model only"

    combine = one.learner.combine or other.learner.combine
    apart = ("minibatch",) if combine else ("minibatch", *RATE)
    keys = [f"learner.{item.name}" for item in fields(LearnerConfig) if item.name not in apart]
    keys += ["engine.dtype", "engine.device"]  # the learner computes as its engine
    for key in keys:
        name = key.partition(".")[2]
        more = ", and with combine=true one learning rate" if name in RATE else ""
        values = getattr(one.learner, name), getattr(other.learner, name)
        both = f"{key}: {values[0]} and {values[1]}"
        yield values[0] != values[1], f"{rule} learner{more}", both, f"set defaults.{key} only"

    bounds = bound(cfg, first), bound(cfg, role)
    both = f"{first} {bounds[0]}, {role} {bounds[1]}"
    pace = f"{rule} staleness bound: both train in the same step"
    yield bounds[0] != bounds[1], pace, both, "set both schedule.max_staleness alike"

    # So that this policy is not the one that sampled any more (law 1).
    rule = f"{role}.loss is one of {', '.join(losses.TRUSTED)} where a shared policy takes the"
    rule += f" {first}'s step first"
    step = f"set {role}.loss=ppo_clip, or defaults.learner.combine=true"
    blind = not other.learner.combine and not losses.trusted(other.loss)
    yield blind, rule, f"{role}.loss={other.loss}", step


def warnings(cfg: Config) -> Iterator[str]:
    """What is allowed but has gone wrong for others, a sentence each."""
    for role in cfg.roles:
        block = cfg.block(role)
        if block.policy == "frozen":
            continue
        if block.algorithm == "gae" and block.kl.coef == 0:
            yield (
                f"{role}.algorithm=gae without a KL term: PPO may drift far from its start (set"
                f" {role}.kl.coef=0.001)"
            )
        if block.learner.schedule == "cosine":
            yield (
                f"{role}.learner.schedule=cosine falls with each update and would end after"
                f" steps={cfg.steps}: a round without signal makes no update, and leaves the rate"
                " where it is"
            )
