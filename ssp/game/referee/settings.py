"""Rules for settings of the referee: its rules, its verifier, and the language that both read."""

from ssp.base.errors import InputError, hold, refuse
from ssp.config.schema import Config
from ssp.game.referee.rules import RULES as KNOWN
from ssp.game.referee.rules import least_searches
from ssp.game.settings import natural

WORLD_EVIDENCE = ("verbatim", "chain")
SSP_RULES = "empty,too_short,too_long,too_few_words,leakage,no_evidence,no_search,repeated_query"


def proposals_can_be_checked(cfg: Config) -> None:
    """Where a referee checks questions, its rules exist, each once. Evidence has a verifier (law 6)
    and reads its language. The searches that a question needs are allowed."""
    role = cfg.spec.asker
    if not cfg.spec.refereed:
        return
    rules = cfg.referee.rules
    step = f"use some of {', '.join(KNOWN)}"
    for rule in rules:
        hold(rule in KNOWN, "referee.rules lists ids of the referee's rules", rule, step)
    once = len(set(rules)) == len(rules)
    hold(once, "referee.rules lists each rule once", ", ".join(rules), "remove the repeated one")
    verifier = cfg.referee.verifier
    evidence = cfg.referee.evidence
    rule = "referee.evidence checks what the verifier quotes, so it needs a verifier"
    alone = f"referee.verifier=none with referee.evidence={evidence}"
    step = "set referee.verifier=frozen, or add referee.evidence=none"
    hold(verifier != "none" or evidence == "none", rule, alone, step)
    _verifier_is_asked(cfg)
    refuse(_of_another_language(cfg, role))
    fewest = least_searches(cfg.referee)
    most = cfg.block(role).limits.searches
    rule = f"{role}.limits.searches is at least {fewest}, as referee.rules ask for"
    step = f"set {role}.limits.searches={fewest}, or leave such a rule out"
    hold(fewest <= most, rule, str(most), step)


def _verifier_is_asked(cfg: Config) -> None:
    """Settings of a verifier stand beside a verifier that can do what they ask."""
    referee = cfg.referee
    verifier = referee.verifier
    samples = f"referee.samples={referee.samples}"
    rule = "as many answers of the verifier as are needed are drawn"
    given = f"referee.needed={referee.needed} with {samples}"
    step = f"set referee.samples={referee.needed}, or lower referee.needed"
    hold(referee.needed <= referee.samples, rule, given, step)
    settings = [samples] if referee.samples > 1 else []
    if referee.closed_book:
        settings.append("referee.closed_book=true")
    idle = verifier == "none" and settings
    rule = "referee.samples and referee.closed_book are of a verifier"
    given = f"referee.verifier=none with {', '.join(settings)}"
    hold(not idle, rule, given, "set referee.verifier=frozen, or leave them out")
    rule = "referee.model is the model of a frozen verifier"
    given = f"referee.verifier={verifier} with referee.model={referee.model}"
    step = "set referee.verifier=frozen, or leave referee.model out"
    hold(not referee.model or verifier == "frozen", rule, given, step)
    rule = "referee.model is a folder or a downloaded model"
    step = "set referee.verifier=judge with judge.url and judge.model for one at an address"
    hold("://" not in referee.model, rule, referee.model, step)


def _of_another_language(cfg: Config, asker: str) -> list[InputError]:
    """An error for each part of the referee that reads another language than the questions'."""
    verifier = cfg.referee.verifier
    evidence = cfg.referee.evidence
    spoken = natural(cfg.protocol)
    given = f"protocol={cfg.protocol}, referee.verifier={verifier}"
    errors = []
    if (spoken or verifier == "judge") and evidence in WORLD_EVIDENCE:
        rule = (
            f"referee.evidence={evidence} reads the generated world's sentences, as its policy"
            " quotes them"
        )
        errors.append(InputError(rule, given, "set referee.evidence=quoted (or none)"))
    if spoken and "too_many_relations" in cfg.referee.rules:
        rule = "the rule too_many_relations reads questions of the generated world"
        errors.append(InputError(rule, given, f"set referee.rules=[{SSP_RULES}]"))
    if cfg.block(asker).guide == "verifier" and verifier not in ("frozen", "solver"):
        rule = f"{asker}.reward_options.guide=verifier is the likelihood that our own engine tells"
        errors.append(InputError(rule, given, "set referee.verifier=frozen, or another guide"))
    return errors
