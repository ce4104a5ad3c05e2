"""Which settings of the referee may stand together: its rules, its verifier, the evidence and the noise."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from ssp.base.errors import InputError
from ssp.config.schema import Config

WORLD_PROTOCOL = "mini"
WORLD_EVIDENCE = ("verbatim", "chain")
SSP_RULES = "empty,too_short,too_long,too_few_words,leakage,no_evidence,no_search,repeated_query"


def natural(protocol: str) -> bool:
    """Whether a shipped protocol's questions are in natural language; what a user's own file asks nobody knows."""
    return protocol != WORLD_PROTOCOL and not protocol.endswith((".yaml", ".yml"))


def rules_are_known(cfg: Config) -> None:
    """A rule that does not exist would check nothing; one that is asked twice was meant to be another one."""
    # Here, because it reads the schema, whose package this module belongs to.
    from ssp.game.referee.rules import RULES as KNOWN

    for rule in cfg.referee.rules:
        if rule not in KNOWN:
            near = difflib.get_close_matches(rule, KNOWN, n=1)
            next_step = f"did you mean {near[0]}?" if near else f"use some of {', '.join(KNOWN)}"
            raise InputError("referee.rules lists ids of the referee's rules", rule, next_step)
    if len(set(cfg.referee.rules)) < len(cfg.referee.rules):
        raise InputError("referee.rules lists each rule once", ", ".join(cfg.referee.rules), "remove the repeated one")


def noise_is_of_one_kind(cfg: Config) -> None:
    """Noise is single documents or whole materials, not both."""
    if cfg.referee.noise_documents and cfg.referee.noise_trajectories:
        raise InputError(
            "one of referee.noise_documents and referee.noise_trajectories is 0",
            f"{cfg.referee.noise_documents} and {cfg.referee.noise_trajectories}",
            "set one of them to 0",
        )


def evidence_needs_verifier(cfg: Config) -> None:
    """The evidence check reads what the verifier quoted; without a verifier it cannot run, so it cannot pass (law 6)."""
    if cfg.referee.verifier == "none" and cfg.referee.evidence != "none":
        raise InputError(
            "referee.evidence checks what the verifier quotes, so it needs a verifier",
            f"referee.verifier=none with referee.evidence={cfg.referee.evidence}",
            "set referee.verifier=frozen, or add referee.evidence=none",
        )


def world_checks_need_the_world(cfg: Config) -> None:
    """Checks that read the generated world's three-word sentences would reject every question in natural language."""
    if cfg.game.questions != "proposer":
        return
    spoken = natural(cfg.protocol)
    found = f"protocol={cfg.protocol}, referee.verifier={cfg.referee.verifier}"
    if (spoken or cfg.referee.verifier == "judge") and cfg.referee.evidence in WORLD_EVIDENCE:
        raise InputError(
            f"referee.evidence={cfg.referee.evidence} reads the sentences of the generated world, as its policy quotes them",
            found,
            "set referee.evidence=quoted (or none)",
        )
    if spoken and "too_many_relations" in cfg.referee.rules:
        raise InputError(
            "the rule too_many_relations reads questions of the generated world",
            found,
            f"set referee.rules=[{SSP_RULES}]",
        )


RULES: tuple[Callable[[Config], None], ...] = (
    rules_are_known,
    noise_is_of_one_kind,
    evidence_needs_verifier,
    world_checks_need_the_world,
)
