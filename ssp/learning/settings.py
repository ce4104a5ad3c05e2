"""Which settings of algorithm, loss, KL and learner may stand together.

Owns the rules about how a role learns, each small and named by what it guards, and what is allowed but worth a word.
Promises that what would train wrongly is refused. Refuses to read files, and to judge a setting that another one only
makes idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError
from ssp.config import own
from ssp.config.schema import Config
from ssp.learning.backends import settings as learner_rules
from ssp.learning.backends.settings import trusted

MARKED = ", or give your function the attribute trust_region = True once it uses tokens.behaviour"
SEQUENCE_CLIP = 0.1
"""A bound on a sequence's ratio above this is one meant for a token's."""


def own_code_is_there(cfg: Config) -> None:
    """A user's own estimator or loss is found, and of the right kind, before anything starts."""
    for role in cfg.roles:
        block = cfg.block(role)
        places = [name for name in (block.algorithm, block.loss) if own.is_own(name)]
        if block.policy != "frozen" and places and not any(map(own.sealed, places)):
            # Here, because they import torch, which a dry run does without.
            from ssp.learning import algorithms, losses

            algorithms.get(block.algorithm, block.gamma, block.lam, block.baseline)
            losses.get(block.loss)


def stale_role_needs_trust_region(cfg: Config) -> None:
    """Law 5: with a bound above 0 the loss must use the behaviour log-probs; plain `pg` would be biased."""
    for role in cfg.roles:
        bound, loss = getattr(cfg.schedule.max_staleness, role), cfg.block(role).loss
        if bound > 0 and not trusted(loss):
            raise InputError(
                f"{role}.loss must be one of {own.saying('trust_region')} when schedule.max_staleness.{role} is above 0",
                f"{role}.loss={loss} with a bound of {bound}",
                f"add {role}.loss=tis, or set the bound to 0" + MARKED * own.is_own(loss),
            )


def minibatches_need_trust_region(cfg: Config) -> None:
    """From the second optimizer step of a batch on its policy is not the one that sampled."""
    for role in cfg.roles:
        block = cfg.block(role)
        if block.learner.minibatch > 0 and not trusted(block.loss):
            raise InputError(
                f"{role}.loss must be one of {own.saying('trust_region')} when {role}.learner.minibatch is above 0",
                f"{role}.loss={block.loss} with minibatch={block.learner.minibatch}",
                f"add {role}.loss=ppo_clip, or set {role}.learner.minibatch=0" + MARKED * own.is_own(block.loss),
            )


def kl_settings_fit(cfg: Config) -> None:
    """A KL term does what its settings say: k1 in the loss has no gradient in expectation, only noise."""
    for role in cfg.roles:
        kl = cfg.block(role).kl
        if own.says(kl.kind, "distributions") and kl.place != "loss":
            rule = f"{role}.kl.place is loss for kl.kind={kl.kind}: rollouts keep no distributions"
            raise InputError(rule, kl.place, f"set {role}.kl.place=loss, or {role}.kl.kind=k1")
        if cfg.block(role).policy != "frozen" and kl.coef and kl.kind == "k1" and kl.place == "loss":
            rule = f"{role}.kl.kind=k1 has no gradient in expectation, so {role}.kl.place is reward or advantage"
            raise InputError(rule, "place=loss", f"set {role}.kl.place=reward, or {role}.kl.kind=k3")
        if kl.coef == 0 and (kl.ema_tau < 1 or kl.target > 0):
            rule = f"{role}.kl.ema_tau and {role}.kl.target belong to a KL term, so {role}.kl.coef is above 0"
            raise InputError(rule, f"{role}.kl.coef=0", f"set {role}.kl.coef=0.001, or leave these alone")


def tokens_on_policy_are_trained(cfg: Config) -> None:
    """Where trainer and sampler agree the ratio is 1: dual clip (Ye 2020) may not take such tokens."""
    for role in cfg.roles:
        block = cfg.block(role)
        if block.policy == "frozen":
            continue
        if 0 < block.clip_dual <= 1:
            rule = f"{role}.clip_dual is 0 (none) or above 1, the ratio of tokens on policy"
            raise InputError(rule, f"{block.clip_dual:g}", f"set {role}.clip_dual=3")


def dropped_context_needs_one_advantage(cfg: Config) -> None:
    """An episode that was cut into several contexts is trained with one advantage, which these settings do not have."""
    for role in cfg.roles:
        block = cfg.block(role)
        by_token = block.algorithm == "gae" or block.gamma < 1
        by_token |= block.kl.coef > 0 and block.kl.place in ("reward", "future")
        if block.limits.overflow == "drop" and (by_token or own.is_own(block.algorithm)):
            raise InputError(
                f"{role}.limits.overflow=drop needs one advantage an episode",
                f"{role}.algorithm={block.algorithm}, gamma={block.gamma}, kl.place={block.kl.place}",
                f"set {role}.limits.overflow=stop, or {role}.algorithm=grpo gamma=1 kl.place=loss",
            )


def grpo_needs_attempts(cfg: Config) -> None:
    """A group of one has no spread, so it would never learn."""
    if cfg.solver.policy != "frozen" and own.says(cfg.solver.algorithm, "needs_group") and cfg.game.attempts < 2:
        raise InputError(
            f"solver.algorithm={cfg.solver.algorithm} compares attempts, so game.attempts is at least 2",
            f"game.attempts={cfg.game.attempts}",
            "set game.attempts=6, or solver.algorithm=reinforce",
        )


def proposers_are_compared(cfg: Config) -> None:
    """Questions share a baseline where there are several to a target, or where targets are put together."""
    block, learns = cfg.proposer, PROPOSER in cfg.roles and cfg.proposer.policy != "frozen"
    if learns and block.algorithm == "remax":
        rule = "proposer.algorithm=remax needs a greedy question to each target, which nobody asks"
        raise InputError(rule, "proposer.algorithm=remax", "set proposer.algorithm=reinforce")
    if cfg.solver.group != "target":
        rule = "solver.group is target: attempts are compared at one question"
        raise InputError(rule, f"solver.group={cfg.solver.group}", "set proposer.group alone")
    compares = own.is_own(block.algorithm) or own.says(block.algorithm, "needs_group")
    if learns and block.group != "target" and not compares:
        rule = f"proposer.group counts only with an algorithm that compares a group: {own.saying('needs_group')}"
        raise InputError(rule, f"{block.group} with {block.algorithm}", "set proposer.algorithm=rloo")
    if learns and block.algorithm == "rloo" and block.group == "target" and cfg.game.proposals == 1:
        raise InputError(
            "proposer.algorithm=rloo compares questions to one target, of which there is one",
            "proposer.algorithm=rloo with game.proposals=1",
            "set proposer.algorithm=reinforce (the batch as baseline), game.proposals=4, or proposer.group=hops",
        )


RULES: tuple[Callable[[Config], None], ...] = (
    own_code_is_there,
    stale_role_needs_trust_region,
    minibatches_need_trust_region,
    kl_settings_fit,
    dropped_context_needs_one_advantage,
    grpo_needs_attempts,
    proposers_are_compared,
    tokens_on_policy_are_trained,
    *learner_rules.RULES,
)


def warnings(cfg: Config) -> Iterator[str]:
    """What is allowed but has gone wrong for others, a sentence each."""
    for role in cfg.roles:
        block = cfg.block(role)
        if block.policy != "frozen" and block.algorithm == "gae" and block.kl.coef == 0:
            yield f"{role}.algorithm=gae without a KL term: PPO may drift far from its start (set {role}.kl.coef=0.001)"
        if block.policy != "frozen" and block.loss == "gspo" and block.clip_high > SEQUENCE_CLIP:
            yield (
                f"{role}.loss=gspo with {role}.clip_high={block.clip_high}: the mean log-ratio of a long sequence never gets"
                f" there (the paper: {role}.clip_low=0.0003 {role}.clip_high=0.0004)"
            )
