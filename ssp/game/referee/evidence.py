"""The evidence check: does the verifier's output prove its answer from the proposer's own
documents? A quote must *stand* in a document that the proposer's searches showed, and the quotes
must *lead* to the target. So a weak verifier cannot complete a false fact with the target."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

import regex

from ssp.base.episode import Document, Episode
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
    """One kind of evidence. A test takes (episode, target, protocol, the verifier's output) and is
    True where the output proves its point.

    `stands`: there is a quote, and every quote stands in the proposer's own documents. `leads`: the
    quotes say the target. `counts`: there must be as many facts as the data row asks for searches.
    `source` (episode, protocol, output): id of the document that the first quote stands in, or ""."""

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
    known = []
    for document in episode.documents:
        known += _sentences(document, protocol)[:-1]  # behind the last stop is no sentence
    quotes = [segment for segment in protocol.parse(output) if segment.kind == "think"]
    for quote in quotes:
        said = quote.text.split()
        if not quote.closed or not said or said not in known:
            return False
    return bool(quotes)


def source_of_sentence(episode: Episode, protocol: Protocol, output: str) -> str:
    """Id of the document that says the first `<think>`."""
    quotes = _thoughts(protocol, output)
    for document in episode.documents if quotes else ():
        if quotes[0] in _sentences(document, protocol):
            return document.id
    return ""


def are_a_chain(episode: Episode, target: str, protocol: Protocol, output: str) -> bool:
    """Sentence i says `e_i relation_i e_i+1`: from the question's first word by its relations, in
    order, to the target. Sentences that are true but answer another question fail here."""
    place, *relations = words(episode.final or "") or [""]
    for relation, quote in itertools.zip_longest(relations, _thoughts(protocol, output)):
        if relation is None or quote is None or quote[:-1] != [place, relation]:
            return False
        place = quote[-1]
    return same(place, [target])


def are_spans(episode: Episode, target: str, protocol: Protocol, output: str) -> bool:
    """Each span of `<quote id="...">span</quote>` stands in a document of the proposer's, spelling
    aside, and has at least `FEWEST_WORDS` words or is the target itself. The id is not compared: a
    small model copies words better than ids, and words from another of these documents prove as
    much."""
    known = []
    for document in episode.documents:
        known += [tokens(document.title), tokens(document.text)]
    quotes = _quotes(output)
    for span in quotes:
        core = _core(span)
        long = count(span) >= FEWEST_WORDS or names(span, target)
        if not long or not any(within(core, part) for part in known):
            return False
    return bool(quotes)


def source_of_span(episode: Episode, protocol: Protocol, output: str) -> str:
    """Id of the document that the first quote stands in, whatever id it names."""
    spans = _quotes(output)
    if not spans:
        return ""
    core = _core(spans[0])
    for document in episode.documents:
        if within(core, tokens(document.title)) or within(core, tokens(document.text)):
            return document.id
    return ""


def name_the_target(episode: Episode, target: str, protocol: Protocol, output: str) -> bool:
    """At least one quoted span names the target, or stands in a document of the proposer's whose
    title does: what is said of the target seldom repeats its name."""
    about = [document for document in episode.documents if names(document.title, target)]
    for span in _quotes(output):
        core = _core(span)
        if names(span, target) or any(within(core, tokens(one.text)) for one in about):
            return True
    return False


EVIDENCE: dict[str, Evidence] = {
    "none": Evidence(taken_on_trust, taken_on_trust),
    "verbatim": Evidence(are_sentences, taken_on_trust, source=source_of_sentence),
    "chain": Evidence(are_sentences, are_a_chain, source=source_of_sentence),
    "quoted": Evidence(are_spans, name_the_target, source=source_of_span),
    "counted": Evidence(are_spans, name_the_target, counts=True, source=source_of_span),
}
"""`referee.evidence` → its kind."""


def facts(output: str) -> int:
    """How many different spans were quoted; a span that stands in another does not count."""
    spans = {tuple(_core(span)) for span in _quotes(output)}
    return sum(not any(within(span, other) for other in spans - {span}) for span in spans)


def _quotes(output: str) -> list[str]:
    """The span of each quote; none at all when one of them cannot be read."""
    spans = [span for _, _, span in _QUOTE.findall(output)]
    return spans if len(spans) == len(_OPENING.findall(output)) else []


def _thoughts(protocol: Protocol, output: str) -> list[list[str]]:
    """The words of each `<think>`."""
    return [segment.text.split() for segment in protocol.parse(output) if segment.kind == "think"]


def _sentences(document: Document, protocol: Protocol) -> list[list[str]]:
    """The words of each sentence of a document, in order, and of the rest behind the last stop."""
    return [sentence.split() for sentence in _STOP.split(protocol.bodies([document]))]


def _core(span: str) -> list[str]:
    """The span's tokens without the marks around it, as writers end a quote with their own full
    stop."""
    parts = tokens(span)
    spoken = [at for at, part in enumerate(parts) if words(part)]
    return parts[spoken[0] : spoken[-1] + 1] if spoken else []
