"""Transcripts on the console, in colours, for `ssp ask` and `ssp inspect`."""

from collections.abc import Sequence

from rich.text import Text

from ssp.base.episode import PROPOSER, Episode, Outcome
from ssp.base.tokenlog import Kind
from ssp.game.protocols import Protocol
from ssp.views.replay.compared import Result

COLOURS = {
    Kind.PROMPT: "bold", Kind.MODEL: "", Kind.OBSERVATION: "dim", Kind.TEMPLATE: "dim", Kind.RECALLED: "dim cyan",
}  # fmt: skip
"""Who wrote it → rich style, where no tag says more."""


def piece(protocol: Protocol, role: str, kind: Kind, text: str) -> Text:
    """One piece of an episode's text, as it went into the log: a line a segment. A prompt stays one
    piece."""
    if kind is Kind.PROMPT:
        return _line("prompt", text.strip(), COLOURS[kind])
    tags = {protocol.role(role).final: "bold", protocol.search.tag: "cyan", "think": "yellow"}
    tags |= {offer.name: "cyan" for offer in protocol.offers}
    lines = []
    for segment in protocol.parse(text):
        style = tags.get(segment.kind, "") if kind is Kind.MODEL else COLOURS[kind]
        end = "" if segment.closed else "  (not closed)"
        lines.append(_line(segment.kind, segment.text + end, style))
    return Text("\n").join(lines)


def _line(label: str, text: str, style: str) -> Text:
    """A label, and the text with its further lines set in below it."""
    indented = text.replace("\n", "\n" + 13 * " ")
    return Text(f"{label:>11}  ", style="dim").append(indented, style=style)


def comparison(result: Result) -> Text:
    """One comparison of an episode with its record: green, red, or yellow where it could not be
    made."""
    if result.untold:
        return Text(str(result), style="yellow")
    return Text(str(result), style="green" if result.same else "bold red")


def outcome(episode: Episode, golds: Sequence[str] = (), right: bool | None = None) -> Text:
    """What came of an episode. `golds`: the right answers, where they are known; `right`: whether
    its answer is one of them (None: nobody knows, and it has no colour)."""
    searches = "1 search" if len(episode.queries) == 1 else f"{len(episode.queries)} searches"
    if episode.outcome is Outcome.VOID:
        why = ": ".join(filter(None, ("void", episode.cause, episode.detail)))
        return Text(why, style="bold red")
    if episode.final is None:
        return Text(f"no answer ({episode.stopped}), {searches}", style="bold red")
    what = "question" if episode.role == PROPOSER else "answer"
    word = {True: ", right", False: ", wrong", None: ""}[right]
    gold = "" if right or not golds else f"; right: {' | '.join(golds)}"
    style = {True: "bold green", False: "bold red", None: "bold"}[right]
    return Text(f"{what}: {episode.final} ({searches}{word}{gold})", style=style)
