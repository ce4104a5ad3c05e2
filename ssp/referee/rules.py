"""The referee's rules: each one a function with an id that says whether a question broke it.

Owns what can be decided from the proposer's episode alone (`RULES`) and from the verifier's output (`CHECKS`), both in
the order in which they are asked. Promises that every rule is pure, and that what cannot be read counts as broken
(law 6). Refuses to know engines, rewards, or the world's true answers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from ssp.config.schema import RefereeConfig
from ssp.episode import Document, Episode
from ssp.judge import same
from ssp.protocols import Protocol

Rule = Callable[[Episode, str, RefereeConfig, Protocol], bool]
Check = Callable[[Episode, str, RefereeConfig, Protocol, str], bool]

VERIFIER = "verifier"
QUOTE = "think"
VERBATIM, CHAIN = "verbatim", "chain"


def malformed(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """The proposer never handed in a question."""
    return episode.final is None


def empty(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """The question holds no word."""
    return not _words(episode.final or "")


def not_a_question(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """A question is at least two words, then one question mark, which ends it."""
    text = (episode.final or "").strip()
    return not text.endswith("?") or text.count("?") > 1 or len(_words(text)) < 2


def too_many_relations(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """The question is longer than `max_relations` words between its first word and the question mark."""
    return len((episode.final or "").replace("?", " ").split()) - 1 > cfg.max_relations


def leakage(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """The question names the target (whole words, any case)."""
    question, wanted = _words(episode.final or ""), _words(target)
    if not wanted:
        return target.strip().lower() in (episode.final or "").lower()
    return any(question[i : i + len(wanted)] == wanted for i in range(len(question) - len(wanted) + 1))


def no_search(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> bool:
    """Fewer than `min_searches` searches were carried out."""
    return len(episode.queries) < cfg.min_searches


def not_answerable(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol, output: str) -> bool:
    """The verifier did not arrive at the target."""
    answer = protocol.final(VERIFIER, output)
    return answer is None or not same(answer, [target])


def unquoted_evidence(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol, output: str) -> bool:
    """With `evidence=verbatim` or `chain`: the verifier quoted nothing, or no sentence of the proposer's own documents.

    This is what keeps a weak verifier from completing a false fact with the target.
    """
    if cfg.evidence not in (VERBATIM, CHAIN):
        return False
    quotes = [segment for segment in protocol.parse(output) if segment.kind == QUOTE]
    known = _sentences(episode.documents, protocol)
    return not quotes or any(not quote.closed or tuple(quote.text.split()) not in known for quote in quotes)


def unlinked_evidence(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol, output: str) -> bool:
    """With `evidence=chain`: the quotes do not lead from the question's first word to the target by its relations.

    Quote i must say `e_i relation_i e_i+1`, where e_1 is the question's first word and relation_i its next word, in
    order, until the last one names the target. Sentences that are true but answer another question fail here.
    """
    if cfg.evidence != CHAIN:
        return False
    place, *relations = _words(episode.final or "")
    quotes = [segment.text.split() for segment in protocol.parse(output) if segment.kind == QUOTE]
    for relation, quote in itertools.zip_longest(relations, quotes):
        if relation is None or quote is None or quote[:-1] != [place, relation]:
            return True
        place = quote[-1]
    return not same(place, [target])


RULES: dict[str, Rule] = {
    "malformed": malformed,
    "empty": empty,
    "not_a_question": not_a_question,
    "too_many_relations": too_many_relations,
    "leakage": leakage,
    "no_search": no_search,
}
"""Rule id → function, in order; asked of every episode before any model is."""

CHECKS: dict[str, Check] = {
    "not_answerable": not_answerable,
    "unquoted_evidence": unquoted_evidence,
    "unlinked_evidence": unlinked_evidence,
}
"""Rule id → function, in order; asked of the verifier's output."""


def broken_rule(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol) -> str:
    """Id of the first rule in `RULES` that the episode broke, "" when it kept all."""
    return next((id for id, rule in RULES.items() if rule(episode, target, cfg, protocol)), "")


def broken_check(episode: Episode, target: str, cfg: RefereeConfig, protocol: Protocol, output: str) -> str:
    """Id of the first check in `CHECKS` that the verifier's `output` fails, "" when it passes all."""
    return next((id for id, check in CHECKS.items() if check(episode, target, cfg, protocol, output)), "")


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _sentences(documents: Sequence[Document], protocol: Protocol) -> set[tuple[str, ...]]:
    """Every sentence `e rel o .` of the documents' bodies as tokens, without its full stop.

    A document is read on its own, so that no sentence runs from one into the next; text after the last full stop is
    not a sentence.
    """
    found: set[tuple[str, ...]] = set()
    for document in documents:
        sentence: list[str] = []
        for token in protocol.bodies([document]).split():
            if token == ".":
                found.add(tuple(sentence))
                sentence = []
            else:
                sentence.append(token)
    return found - {()}
