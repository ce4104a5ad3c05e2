"""One question with its duels: the bank's record, and every transcript in typed segments.

Promises the parser of training (law 8) and the prompt apart from what followed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ssp.base.episode import PROPOSER, SOLVER
from ssp.game import protocols
from ssp.game.protocols import Protocol
from ssp.selfplay.questions import reader
from ssp.selfplay.questions.records import Attempt, Play, Record
from ssp.views.board.data import Board

GAMES = 3
"""Of a question that was played more often, the newest games are shown."""

UNUSED = frozenset({"transcript", "queries", "evidence", "checks", "file", "row", "version_min"})
"""Of a game and an attempt: what is shown in another form, or not at all."""

Piece = list[Any]
"""[class, label, text]; the class is prompt, think, search, evidence, final or text."""


def details(board: Board, questions: Sequence[str], games: int = GAMES) -> dict[str, dict[str, Any]]:
    """Question → its record, the newest `games` about it with their attempts and transcripts (see `Piece`; None without
    one). Unknown questions are left out. InputError when an episodes file is missing.
    """
    protocol = protocols.get(board.cfg.protocol)
    records = reader.gathered(board.cfg, board.run, *board.games(questions))
    newest = {play.game for record in records for play in _kept(record, games)}
    named: list[Play | Attempt] = []
    for record in records:
        named += [*record.plays, *record.attempts]
    files = {
        name: board.reader.columns(name, ["text", "response_at"])
        for name in sorted({episode.file for episode in named if episode.file and episode.game in newest})
    }

    def shown(role: str, episode: Play | Attempt) -> dict[str, Any]:
        told = {name: value for name, value in vars(episode).items() if name not in UNUSED}
        row = files[episode.file][episode.row or 0] if episode.file else None
        text = None if row is None else pieces(protocol, role, row["text"], row["response_at"])
        return {**told, "text": text}

    def play(one: Play) -> dict[str, Any]:
        checks = [[check.rule, check.result] for check in one.checks]
        return {**shown(PROPOSER, one), "checks": checks, "searches": len(one.queries)}

    return {
        record.id: {
            "id": record.id,
            "question": record.question,
            "target": record.target,
            "difficulty": record.difficulty,
            "history": record.history,
            "games": len(record.plays),
            "plays": [play(one) for one in record.plays if one.game in newest],
            "attempts": [shown(SOLVER, one) for one in record.attempts if one.game in newest],
        }
        for record in records
    }


def _kept(record: Record, games: int) -> list[Play]:
    """The newest games, and, where none of these has one, the newest with a proposal and the newest that was played."""
    kept = record.plays[-games:]
    for others in ([p for p in record.plays if p.proposal], [p for p in record.plays if p.win_rate is not None]):
        if not any(play in kept for play in others):
            kept = [*others[-1:], *kept]
    return kept


def pieces(protocol: Protocol, role: str, text: str, response_at: int) -> list[Piece]:
    """A transcript in order: its prompt, then a piece a segment."""
    classes = {
        protocol.role(role).final: "final",
        protocol.search.tag: "search",
        protocol.observation_form.tag: "evidence",
        "think": "think",
    }
    prompt = [["prompt", "prompt", text[:response_at].strip()]] if text[:response_at].strip() else []
    found = [
        [classes.get(part.kind, "text"), part.kind, part.text + ("" if part.closed else " (not closed)")]
        for part in protocol.parse(text[response_at:])
    ]
    return [*prompt, *found]
