"""The questions of a board with their games and transcripts, a piece a segment."""

from collections.abc import Sequence
from typing import Any

from ssp.game import protocols
from ssp.game.protocols import Protocol
from ssp.selfplay.questions.reader import gathered
from ssp.selfplay.questions.records import Attempt, PlayedGame, Record
from ssp.views.board.data import Board

GAMES = 3
"""Games that are shown of one question: the newest ones."""

UNUSED = frozenset({"transcript", "queries", "evidence", "file", "row", "version_min"})
"""Fields of a game and an attempt that are shown in another form, or not at all."""

Piece = list[Any]
"""[class, label, text]; the class is prompt, think, search, evidence, final or text."""


def details(
    board: Board, questions: Sequence[str], games: int = GAMES
) -> dict[str, dict[str, Any]]:
    """Question → its record, the newest `games` about it with their attempts and transcripts (see
    `Piece`). Unknown questions are left out. InputError when an episodes file is missing."""
    spec = board.cfg.spec
    transcripts = Transcripts(board)
    asks = spec.plays[spec.asks].prompt if spec.asks else ""
    shown = {}
    games_of, episodes = board.games(questions)
    earned = {row["id"]: row["reward"] for row in episodes}
    for record in gathered(board.cfg, board.run, games_of, episodes):
        newest = {play.game for play in _kept(record, games)}
        plays = []
        for number, play in enumerate(record.plays, 1):
            if play.game in newest:
                facts = transcripts.of(asks, play)
                facts |= {"searches": len(play.queries), "documents": len(play.evidence)}
                facts |= {"reward": earned.get(play.proposal or ""), "number": number}
                plays.append(facts)
        attempts = [attempt for attempt in record.attempts if attempt.game in newest]
        shown[record.id] = {
            "id": record.id,
            "question": record.question,
            "target": record.target,
            "difficulty": record.difficulty,
            "history": record.history,
            "games": len(record.plays),
            "plays": plays,
            "attempts": [transcripts.of(spec.answering.prompt, attempt) for attempt in attempts],
        }
    return shown


class Transcripts:
    """Games and attempts of one run with their transcripts; every file is read once."""

    def __init__(self, board: Board) -> None:
        self._reader = board.reader
        spoken = protocols.get(board.cfg.protocol)
        self._protocol = spoken.asking(board.cfg.spec.prompts)
        self._files: dict[str, list[dict[str, Any]]] = {}

    def of(self, role: str, episode: PlayedGame | Attempt) -> dict[str, Any]:
        """What is shown of it. `role`: the prompt's. `text`: its pieces, None without a
        transcript."""
        shown = {name: value for name, value in vars(episode).items() if name not in UNUSED}
        if not episode.file:
            return {**shown, "text": None}
        if episode.file not in self._files:
            names = ["text", "response_at", "tools"]
            self._files[episode.file] = self._reader.columns(episode.file, names)
        row = self._files[episode.file][episode.row or 0]
        protocol = self._protocol.naming(row["tools"] or [])
        return {**shown, "text": pieces(protocol, role, row["text"], row["response_at"])}


def _kept(record: Record, games: int) -> list[PlayedGame]:
    """The newest games, and, where none of these has one, the newest with a proposal and the newest
    that was played."""
    kept = record.plays[-games:]
    proposed = [play for play in record.plays if play.proposal]
    answered = [play for play in record.plays if play.win_rate is not None]
    for others in (proposed, answered):
        if not any(play in kept for play in others):
            kept = [*others[-1:], *kept]
    return kept


def pieces(protocol: Protocol, role: str, text: str, response_at: int) -> list[Piece]:
    """A transcript in order: its prompt, then a piece a segment."""
    classes = {protocol.role(role).final: "final", protocol.search.tag: "search"}
    classes |= {protocol.observation_form.tag: "evidence", "think": "think"}
    prompt = text[:response_at].strip()
    shown = [["prompt", "prompt", prompt]] if prompt else []
    for part in protocol.parse(text[response_at:]):
        end = "" if part.closed else " (not closed)"
        shown.append([classes.get(part.kind, "text"), part.kind, part.text + end])
    return shown
