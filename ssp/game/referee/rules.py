"""The referee's rules. Each is a function, named by its id, that says whether a question broke it,
from the proposer's episode alone. `referee.rules` names the rules of a run in the order of asking."""

from collections.abc import Callable

from ssp.base.episode import Episode
from ssp.base.words import count, fold, length, names, words
from ssp.config.schema import RefereeConfig
from ssp.game.protocols import Protocol

Rule = Callable[[Episode, str, RefereeConfig, Protocol], bool]


def malformed(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """The proposer never handed in a question."""
    return episode.final is None


def empty(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """The question holds no word."""
    return not words(episode.final or "")


def too_short(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """Fewer than `min_chars` visible characters."""
    return length(episode.final or "") < cfg.min_chars


def too_long(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """More than `max_chars` visible characters."""
    return length(episode.final or "") > cfg.max_chars


def too_few_words(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """Fewer than `min_words` words; in scripts without spaces a character counts as one."""
    return count(episode.final or "") < cfg.min_words


def not_a_question(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """The generated world's form: at least two words, then one question mark, which ends it."""
    text = (episode.final or "").strip()
    return not text.endswith("?") or text.count("?") > 1 or len(words(text)) < 2


def too_many_relations(
    episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol
) -> bool:
    """The generated world's length: more than `max_relations` words between the first one and the
    question mark."""
    return len((episode.final or "").replace("?", " ").split()) - 1 > cfg.max_relations


def leakage(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """The question names the target."""
    return names(episode.final or "", target)


def no_evidence(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """No search showed a document; a refused search, or one that found nothing, is no evidence."""
    return not any(hits > 0 for hits in episode.hits)


def no_search(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """Fewer than two searches showed a document (SSP)."""
    showed = 0
    for (tool, _), hits in zip(episode.calls, episode.hits, strict=False):
        showed += tool == "search" and hits > 0
    return showed < 2


def repeated_query(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """Two searches asked for the same, apart from case, accents, spaces and outer punctuation."""
    queries = [fold(query).strip(" .,;:!?\"'。、「」") for query in episode.searches]
    return len(set(queries)) < len(queries)


def answer_in_query(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """One of the proposer's own searches names the target."""
    return any(names(query, target) for query in episode.searches)


_OF_QUESTIONS = (
    malformed,
    empty,
    too_short,
    too_long,
    too_few_words,
    not_a_question,
    too_many_relations,
    leakage,
)
_OF_SEARCHES = (no_evidence, no_search, repeated_query, answer_in_query)
RULES: dict[str, Rule] = {rule.__name__: rule for rule in (*_OF_QUESTIONS, *_OF_SEARCHES)}
"""Rule id → function; asked of every episode before any model is."""


def broken_rule(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> str:
    """Id of the first of `cfg.rules` that the episode broke, "" when it kept all. `malformed` is
    always asked first."""
    for id in ("malformed", *cfg.rules):
        if RULES[id](episode, target, cfg, protocol):
            return id
    return ""


def least_searches(cfg: RefereeConfig) -> int:
    """Searches that the rules in force ask for."""
    return 2 if no_search.__name__ in cfg.rules else int(no_evidence.__name__ in cfg.rules)
