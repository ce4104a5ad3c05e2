"""What curriculum telemetry reads: one small record for each accepted question of a round, live and from a run's files.

Both sources give the same records in the same order (by game). Of a round that was played again after going back to a
checkpoint, the last time counts, and rounds beyond what was played then are gone. Of a league's games only the newest
versions' work is seen: no question of a past proposer, no rate of a past solver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ssp.base.episode import ATTEMPT, PROPOSAL, PROPOSER
from ssp.record.ledger.rows import EpisodeRow, GameRow
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.questions.records import VALID
from ssp.selfplay.records import Game


@dataclass(frozen=True)
class Asked:
    """One accepted question in one round. `kind`: its game's. `searches`: the proposer's, of a proposed one; `rate`: the
    share of right attempts, None when nobody tried or too few attempts were scored; `tried`: the attempts' mean searches."""

    game: str
    question: str
    target: str
    kind: str
    searches: int | None = None
    rate: float | None = None
    tried: float | None = None


def live(games: Iterable[Game]) -> list[Asked]:
    """The records of a settled round's games."""
    return [
        Asked(
            game=game.id,
            question=game.question,
            target=game.target,
            kind=game.kind,
            searches=None if game.proposal is None else game.proposal.brief.searches,
            rate=None if game.frozen else game.win_rate,
            tried=None if game.frozen else _mean([played.brief.searches for played in game.attempts]),
        )
        for game in sorted(games, key=lambda game: game.id)
        if game.valid and not game.void_cause and game.frozen != PROPOSER
    ]


def read(run: RunFolder, last: int | None = None) -> Iterator[tuple[int, list[Asked]]]:
    """(step, its records) of each settled round of a run's files, in order; up to step `last`.

    InputError for a file that is no ledger, and for a missing or foreign episodes file.
    """
    reader = RunReader(run)
    games, entries = reader.settled()
    of: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
    for entry in entries:
        if entry["file"]:
            of[entry["game_id"]].append(entry)
    rounds: defaultdict[int, defaultdict[int, list[GameRow]]] = defaultdict(lambda: defaultdict(list))
    for game in games:
        rounds[game["round"]][game["incarnation"]].append(game)
    start = 0
    for step in sorted(step for step in rounds if last is None or step <= last):
        if max(rounds[step]) < start:
            return  # the run went back before this round, and has not come to it again
        start = max(rounds[step])
        yield step, _round(reader, [game for game in rounds[step][start] if game["verdict"] == VALID], of)


def _round(reader: RunReader, games: Sequence[GameRow], of: Mapping[str, list[EpisodeRow]]) -> list[Asked]:
    issued: dict[str, list[EpisodeRow]] = {}
    for game in games:  # of each episode the last issue
        ours = sorted(of[game["id"]], key=lambda entry: entry["issue"])
        issued[game["id"]] = list({(entry["kind"], entry["attempt"]): entry for entry in ours}.values())
    texts = reader.texts([entry for entries in issued.values() for entry in entries], ("id", "queries"))
    found = []
    for game in sorted(games, key=lambda game: str(game["id"])):
        entries = issued[game["id"]]
        searches = {
            kind: [len(texts[entry["id"]]["queries"]) for entry in entries if entry["kind"] == kind]
            for kind in (PROPOSAL, ATTEMPT)
        }
        past = {entry["role"] for entry in entries if entry["past"]}
        if PROPOSER not in past:
            asked = Asked(
                game=game["id"],
                question=game["question"] or "",
                target=game["target"] or "",
                kind=game["kind"],
                searches=next(iter(searches[PROPOSAL]), None),
                rate=None if past else game["win_rate"],
                tried=None if past else _mean(searches[ATTEMPT]),
            )
            found.append(asked)
    return found


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None
