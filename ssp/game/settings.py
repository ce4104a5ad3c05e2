"""Which settings of the game may stand together: who asks, who learns when, what fills a batch."""

from __future__ import annotations

from collections.abc import Callable

from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError, Refusals
from ssp.config.rules import expand, get, refused
from ssp.config.schema import Config
from ssp.config.tables import COLDEST
from ssp.game import protocols
from ssp.game.referee import settings as referee


def questions_have_a_source(cfg: Config) -> None:
    """Given questions are read from `data.questions`; a proposer's are not."""
    source, path = cfg.game.questions, cfg.data.questions
    if source == "proposer" and path:
        raise InputError(
            "data.questions is read where questions are given",
            f"data.questions={path} with game.questions=proposer",
            "add game.questions=dataset, or leave data.questions out",
        )
    if source != "proposer" and not path:
        example = "world:train" if source == "dataset" else "runs/quickstart-001"
        raise InputError(
            f"game.questions={source} plays what data.questions names",
            "no data.questions",
            f"set it, for example data.questions={example}",
        )
    if source == "bank" and path.startswith("world:"):
        raise InputError(
            "a bank is an earlier run's folder, or what ssp bank exported of one",
            path,
            "name a run, or set game.questions=dataset for a world's questions",
        )


def given_questions_need_no_proposer(cfg: Config) -> None:
    """Where questions are given nobody proposes, so nothing may be asked of a proposer or of its rejected questions."""
    if cfg.game.questions == "proposer":
        return
    bound = cfg.schedule.max_staleness.proposer
    without = {
        f"game.batch={cfg.game.batch}": cfg.game.batch != "dummy",
        f"schedule.max_staleness.proposer={bound}": bound > 0 and not cfg.schedule.preset,
        f"proposer.warmup_steps={cfg.proposer.warmup_steps}": cfg.proposer.warmup_steps > 0,
        f"solver.warmup_steps={cfg.solver.warmup_steps}": cfg.solver.warmup_steps > 0,
    }
    found = [setting for setting, there in without.items() if there]
    if found:
        raise InputError(
            f"game.questions={cfg.game.questions} has one role, the solver, and every question is played",
            ", ".join(found),
            "leave that out (the learning rate's warm-up is solver.learner.warmup_steps)",
        )


def someone_learns(cfg: Config) -> None:
    """Training with frozen policies only has nothing to do."""
    if all(cfg.block(role).policy == "frozen" for role in cfg.roles):
        found = " ".join(f"{role}.policy=frozen" for role in cfg.roles)
        raise InputError("at least one role learns", found, "set them to own or shared, or use ssp eval")


def one_role_warms_up(cfg: Config) -> None:
    """While a role warms up, it alone learns; so it must learn then, and only one can."""
    warming = [role for role in cfg.roles if cfg.block(role).warmup_steps > 0]
    if len(warming) > 1:
        raise InputError(
            "one role at most learns alone at first",
            " ".join(f"{role}.warmup_steps={cfg.block(role).warmup_steps}" for role in warming),
            "set one of them to 0 (the learning rate's warm-up is <role>.learner.warmup_steps)",
        )
    for role in warming:
        block = cfg.block(role)
        if block.policy == "frozen" or 0 < block.freeze_after < block.warmup_steps:
            raise InputError(
                f"{role}.warmup_steps leaves learning to the {role} alone, so it learns up to that step",
                f"{role}.warmup_steps={block.warmup_steps} with policy={block.policy}, freeze_after={block.freeze_after}",
                f"set {role}.warmup_steps=0, or freeze it later",
            )


def resampling_trains_valid_questions(cfg: Config) -> None:
    """With resampling a rejected question enters no batch, so that its reward would have no effect."""
    if cfg.game.batch == "resample" and cfg.proposer.invalid_reward != 0:
        raise InputError(
            "game.batch=resample trains on valid questions only, so a rejected one has no reward",
            f"proposer.invalid_reward={cfg.proposer.invalid_reward:g}",
            "set it to 0, or use game.batch=dummy",
        )


def targets_share_a_batch(cfg: Config) -> None:
    """All questions to one target are asked in one round."""
    if cfg.game.proposals > 1 and cfg.game.questions != "proposer":
        rule = "game.proposals counts the questions of a proposer"
        found = f"game.proposals={cfg.game.proposals} with game.questions={cfg.game.questions}"
        raise InputError(rule, found, "set it to 1")
    if cfg.proposer.batch % cfg.game.proposals:
        raise InputError(
            "proposer.batch is a multiple of game.proposals",
            f"{cfg.proposer.batch} questions a round, {cfg.game.proposals} to a target",
            f"set proposer.batch={-(-cfg.proposer.batch // cfg.game.proposals) * cfg.game.proposals}",
        )


def protocol_exists(cfg: Config) -> None:
    """`protocol` is a shipped id or a readable file, knows the roles that play, and lets a policy that is to answer
    itself go on after its search."""
    protocol = protocols.get(cfg.protocol)
    for role in cfg.roles:
        protocol.role(role)
        kind = cfg.block(role).search.kind
        if protocol.observation_form.as_turn and kind != "retriever":
            rule = f"{role}.search.kind is retriever where a search ends the turn (protocol {protocol.id})"
            raise InputError(rule, kind, "set protocol=ssrl, or another one with information in the policy's own turn")


def training_samples(cfg: Config) -> None:
    """A policy gradient needs sampled actions: greedy training rollouts have no exploration and no usable log-probs."""
    for role in cfg.roles:
        block = cfg.block(role)
        if block.policy != "frozen" and block.sampling.temperature == 0:
            raise InputError(f"{role}.sampling.temperature is above 0 for a role that learns", "0", "set it to 1.0")


def temperatures_are_usable(cfg: Config) -> None:
    """A temperature near 0 overflows the softmax, which would make every episode void."""
    for key in ("eval.temperature", *expand("{role}.sampling.temperature")):
        if 0 < get(cfg, key) < COLDEST:
            raise InputError(f"{key} is 0 (greedy) or at least {COLDEST}", get(cfg, key), f"set {key}=0 or {COLDEST}")


def proposals_can_be_checked(cfg: Config) -> None:
    """The referee's settings matter where somebody proposes."""
    if PROPOSER in cfg.roles:
        found = refused(cfg, (*referee.RULES, proposer_can_search_enough))
        if found:
            raise Refusals(found)


def proposer_can_search_enough(cfg: Config) -> None:
    """A question needs `min_searches` searches, which the proposer must be allowed to make."""
    if cfg.referee.min_searches > cfg.proposer.limits.searches:
        raise InputError(
            "proposer.limits.searches is at least referee.min_searches",
            f"{cfg.proposer.limits.searches} against {cfg.referee.min_searches}",
            "raise the first or lower the second",
        )


RULES: tuple[Callable[[Config], None], ...] = (
    questions_have_a_source,
    given_questions_need_no_proposer,
    someone_learns,
    one_role_warms_up,
    resampling_trains_valid_questions,
    targets_share_a_batch,
)
