"""The evidence check: does what the verifier wrote prove its answer from the proposer's own
documents? What was quoted must *stand* in documents that the proposer's own searches showed, and
must *lead* to the target. It keeps a weak verifier from completing a false fact with the target."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

import regex

from ssp.base.episode import Episode
from ssp.base.words import count, names, tokens, within, words
from ssp.game.judge import same
from ssp.game.protocols import Protocol

Test = Callable[[Episode, str, Protocol, str], bool]

FEWEST_WORDS = 3
"""A shorter quote proves nothing by standing somewhere, unless it is the answer."""

_QUOTE = regex.compile(
    r"<quote\s+id\s*=\s*([\"'])((?:(?!\1)[^<>])*)\1\s*>((?:(?!</?quote\b).)*)</quote>", regex.S
)
_OPENING = regex.compile(r"<quote\b")
_STOP = re.compile(r"(?<!\S)\.(?!\S)")


@dataclass(frozen=True)
class Evidence:
    """One kind of evidence. Each test takes (episode, target, protocol, the verifier's output);
    True: it is proven. `stands`: something was quoted, and all that was stands in the proposer's
    own documents. `leads`: it says the target. `counts`: it has as many quotes as the data row asks
    for searches. `source` (episode, protocol, output): id of the document that the first quote
    stands in, "" for none."""

    stands: Test
    leads: Test
    counts: bool = False
    source: Callable[[Episode, Protocol, str], str] = lambda episode, protocol, output: ""


def taken_on_trust(episode: Episode, target: str, protocol: Protocol, output: str) -> bool:
    """Nothing is asked for."""
    return True


def are_sentences(episode: Episode, target: str, protocol: Protocol, output: str) -> bool:
    """Each `<think>` holds one whole sentence of the documents, word for word (the generated
    world)."""
    bodies = [_STOP.split(protocol.bodies([document]))[:-1] for document in episode.documents]
    known = {tuple(sentence.split()) for sentences in bodies for sentence in sentences} - {()}
    quotes = [segment for segment in protocol.parse(output) if segment.kind == "think"]
    return bool(quotes) and all(
        quote.closed and tuple(quote.text.split()) in known for quote in quotes
    )


def source_of_sentence(episode: Episode, protocol: Protocol, output: str) -> str:
    """Id of the document that says the first `<think>`."""
    quotes = [segment.text.split() for segment in protocol.parse(output) if segment.kind == "think"]
    for document in episode.documents if quotes else ():
        sentences = [sentence.split() for sentence in _STOP.split(protocol.bodies([document]))]
        if quotes[0] in sentences:
            return document.id
    return ""


def are_a_chain(episode: Episode, target: str, protocol: Protocol, output: str) -> bool:
    """Sentence i says `e_i relation_i e_i+1`: from the question's first word by its relations, in
    order, to the target. Sentences that are true but answer another question fail here."""
    place, *relations = words(episode.final or "") or [""]
    quotes = [segment.text.split() for segment in protocol.parse(output) if segment.kind == "think"]
    for relation, quote in itertools.zip_longest(relations, quotes):
        if relation is None or quote is None or quote[:-1] != [place, relation]:
            return False
        place = quote[-1]
    return same(place, [target])


def are_spans(episode: Episode, target: str, protocol: Protocol, output: str) -> bool:
    """Each span of `<quote id="...">span</quote>` stands in a document of the proposer's, spelling
    aside. It has at least `FEWEST_WORDS` words, or is the target itself. The id says where to look;
    a small model copies words better than ids, and words that stand in another of these documents
    prove as much."""
    quotes = _quotes(output)
    known = [
        tokens(part) for document in episode.documents for part in (document.title, document.text)
    ]
    return bool(quotes) and all(
        (count(span) >= FEWEST_WORDS or names(span, target))
        and any(within(_core(span), part) for part in known)
        for span in quotes
    )


def source_of_span(episode: Episode, protocol: Protocol, output: str) -> str:
    """Id of the document that the first quote stands in, whatever id it names."""
    spans = _quotes(output)
    for document in episode.documents if spans else ():
        parts = (tokens(document.title), tokens(document.text))
        if any(within(_core(spans[0]), part) for part in parts):
            return document.id
    return ""


def name_the_target(episode: Episode, target: str, protocol: Protocol, output: str) -> bool:
    """At least one quoted span names the target."""
    return any(names(span, target) for span in _quotes(output))


EVIDENCE: dict[str, Evidence] = {
    "none": Evidence(taken_on_trust, taken_on_trust),
    "verbatim": Evidence(are_sentences, taken_on_trust, source=source_of_sentence),
    "chain": Evidence(are_sentences, are_a_chain, source=source_of_sentence),
    "quoted": Evidence(are_spans, name_the_target, source=source_of_span),
    "counted": Evidence(are_spans, name_the_target, counts=True, source=source_of_span),
}
"""`referee.evidence` → its kind."""


def facts(output: str) -> int:
    """How many spans were quoted, one that stands in another not counted."""
    spans = {tuple(_core(span)) for span in _quotes(output)}
    return sum(not any(span != other and within(span, other) for other in spans) for span in spans)


def _quotes(output: str) -> list[str]:
    """The span of each quote; none at all when one of them cannot be read."""
    found = [span for _, _, span in _QUOTE.findall(output)]
    return found if len(found) == len(_OPENING.findall(output)) else []


def _core(span: str) -> list[str]:
    """The span's tokens without the marks around it: writers end a quote with a full stop of their
    own."""
    parts = tokens(span)
    spoken = [at for at, part in enumerate(parts) if words(part)]
    return parts[spoken[0] : spoken[-1] + 1] if spoken else []
