"""Games of a ledger with their episodes, for readers: the bank and the board."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from ssp.record.ledger.rows import EpisodeRow, GameRow, episode_rows, game_rows


def settled(db: sqlite3.Connection) -> tuple[list[GameRow], list[EpisodeRow]]:
    """The games that have a verdict, by id, and their episodes, by game and id."""
    judged = "SELECT id FROM games WHERE verdict IS NOT NULL"
    games = db.execute("SELECT * FROM games WHERE verdict IS NOT NULL ORDER BY id").fetchall()
    episodes = db.execute(f"SELECT * FROM episodes WHERE game_id IN ({judged}) ORDER BY game_id, id").fetchall()
    return game_rows(games), episode_rows(episodes)


def judged(db: sqlite3.Connection) -> list[str]:
    """Ids of the games that have a verdict, in order."""
    return [row["id"] for row in db.execute("SELECT id FROM games WHERE verdict IS NOT NULL ORDER BY id")]


def of_games(db: sqlite3.Connection, games: Sequence[str]) -> tuple[list[GameRow], list[EpisodeRow]]:
    """These games, by id, and their episodes, by game and id. An episode's id is the letter of its role, then its game's
    id without the letter of that, and more: so a look at a few games reads a few pages of a file of any size."""
    named = json.dumps(list(games))
    found = db.execute(
        "SELECT * FROM games WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id", (named,)
    ).fetchall()
    sql = (
        "SELECT e.* FROM json_each(?) g CROSS JOIN (SELECT 'p' AS letter UNION ALL SELECT 's') CROSS JOIN episodes e "
        "ON e.id >= letter || substr(g.value, 2) AND e.id < letter || substr(g.value, 2) || '~' "
        "WHERE e.game_id = g.value ORDER BY e.game_id, e.id"
    )
    return game_rows(found), episode_rows(db.execute(sql, (named,)))
