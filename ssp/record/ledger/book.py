"""The ledger: every game and every episode of a run, in one SQLite file (law 3).

Promises: a state goes one way; a fact once written never changes; a call repeated after a lost reply changes nothing; a
call that breaks a law raises InvariantError and writes nothing; `created = sum over states` is provable (`check`).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from ssp.base.episode import State
from ssp.base.errors import InvariantError
from ssp.record.ledger import audit, door, parts
from ssp.record.ledger.rows import (
    EPISODE_COLUMNS,
    FACTS,
    GAME_COLUMNS,
    GAME_FACTS,
    MOVED,
    EpisodeRow,
    GameRow,
    Row,
    episode_rows,
    facts_of,
    move,
    write_once,
)


class Ledger:
    """The accounts of one run folder. Thread-safe; one writer process at a time.

    `readonly` opens an existing file for looking only, which also sees what is written later; InputError as `door.opened`.
    Rows go in and out as dicts with the column names of the `episodes` and `games` tables.
    """

    def __init__(self, path: str | Path, readonly: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._readonly = readonly
        self._open()

    def _open(self) -> None:
        self._still = door.still(self.path) if self._readonly else None
        self._book = door.opened(self.path, self._readonly)

    @property
    def _db(self) -> sqlite3.Connection:
        """The open file; opened anew where it was still, and a run has begun to write it since."""
        if self._still is not None and not self._book.in_transaction and self._still != door.still(self.path):
            self._book.close()
            self._open()
        return self._book

    def close(self) -> None:
        """Close the file; the ledger is of no use afterwards."""
        self._book.close()

    def fold(self) -> None:
        """Move what SQLite keeps beside the file into the file, so that a copy of `ledger.db` alone is whole."""
        with self._lock:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def settle(self, games: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]) -> None:
        """The verdicts of a round's games and what becomes of its episodes, as one transaction: all of it, or none."""
        with self._transaction():
            self.judge_games(games)
            self.advance(changes)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._db.in_transaction:  # one of several calls together
                yield self._db
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """One consistent view over several reads, also while another process writes."""
        with self._lock:
            self._db.execute("BEGIN")
            try:
                yield self._db
            finally:
                self._db.execute("ROLLBACK")

    def _fetch(self, table: str, ids: Iterable[str], columns: str = "*") -> dict[str, Row]:
        sql = f"SELECT {columns} FROM {table} WHERE id IN (SELECT value FROM json_each(?))"
        return {row["id"]: dict(row) for row in self._db.execute(sql, (json.dumps(list(ids)),))}

    def _insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        marks = ", ".join("?" * len(columns))
        values = map(itemgetter(*columns), rows)
        self._db.executemany(f"INSERT INTO {table}({', '.join(columns)}) VALUES({marks})", values)

    def _update(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        marks = ", ".join(f"{name} = ?" for name in columns)
        self._db.executemany(f"UPDATE {table} SET {marks} WHERE id = ?", map(itemgetter(*columns, "id"), rows))

    def _known(self, table: str, ids: Sequence[str], columns: str = "*") -> dict[str, Row]:
        rows = self._fetch(table, ids, columns)
        if len(rows) == len(ids):
            return rows
        missing = sorted(set(ids) - set(rows))
        if missing:
            raise InvariantError(f"{len(missing)} {table} were never created, the first is {missing[0]}")
        return rows

    # games

    def create_games(self, games: Sequence[Mapping[str, Any]]) -> int:
        """Open games: `id` and any game column (`target`, `attempts`, ...). Returns how many are new."""
        with self._transaction():
            rows = self._fetch("games", [game["id"] for game in games])
            fresh: dict[str, Row] = {}
            for game in games:
                facts = facts_of(game, GAME_FACTS, ("id",))
                known = rows.get(game["id"])
                if known is None:
                    row: Row = {"id": game["id"], **dict.fromkeys(GAME_FACTS), **facts}
                    rows[row["id"]] = fresh[row["id"]] = row
                elif write_once(known, facts):
                    raise InvariantError(f"game {game['id']} exists with other facts: {known}")
            self._insert("games", GAME_COLUMNS, list(fresh.values()))
        return len(fresh)

    def judge_games(self, games: Sequence[Mapping[str, Any]]) -> int:
        """Add what is known now: `question`, `verdict`, `rule`, `proposer_version`, `attempts`, `win_rate`."""
        with self._transaction():
            rows = self._known("games", [game["id"] for game in games])
            changed = {g["id"] for g in games if write_once(rows[g["id"]], facts_of(g, GAME_FACTS, ("id",)))}
            self._update("games", tuple(GAME_FACTS), [rows[id] for id in sorted(changed)])
        return len(changed)

    # episodes

    def create(self, episodes: Sequence[Mapping[str, Any]]) -> int:
        """Issue episodes: `id`, `game_id`, `role`, `state` (created, or running for those that are played at once), and any
        fact known already. Returns how many are new."""
        now = time.time()
        with self._transaction() as db:
            rows = self._fetch("episodes", [episode["id"] for episode in episodes])
            fresh: dict[str, Row] = {}
            created: dict[str, int] = {}
            for episode in episodes:
                id, game, role = episode["id"], episode["game_id"], str(episode["role"])
                if id in rows:
                    if (rows[id]["game_id"], rows[id]["role"]) != (game, role):
                        raise InvariantError(f"episode {id} exists for another game or role: {rows[id]}")
                    continue
                state = State(episode.get("state", State.CREATED))
                if state not in (State.CREATED, State.RUNNING):
                    raise InvariantError(f"episode {id}: it may not begin as {state.value}")
                facts = facts_of(episode, FACTS, ("id", "game_id", "role", "state"))
                row: Row = {**dict.fromkeys(FACTS), **facts, "id": id, "game_id": game, "role": role}
                row.update(state=state.value, created=now, finished=None)
                rows[id] = fresh[id] = row
                created[role] = created.get(role, 0) + 1
            self._insert("episodes", EPISODE_COLUMNS, list(fresh.values()))
            # The tally is kept beside the rows, never derived from them: so the conservation law can fail.
            db.executemany(
                "INSERT INTO counters VALUES(?, ?) "
                "ON CONFLICT(role) DO UPDATE SET created = created + excluded.created",
                list(created.items()),
            )
        return len(fresh)

    def advance(self, changes: Sequence[Mapping[str, Any]]) -> int:
        """Move episodes on: `id`, `state` and any fact. Returns how many rows changed.

        A final state said again is a no-op; another state backwards or after a final one raises InvariantError, and so
        does a fact that differs from the one written (entering a final state may replace `cause`; entering `voided`
        replaces the outcome and removes the reward). `trained` is reached through `commit` only.
        """
        now = time.time()
        with self._transaction():
            touched = set(MOVED).union(*changes)
            columns = [name for name in EPISODE_COLUMNS[3:] if name in touched]
            rows = self._known("episodes", [change["id"] for change in changes], ", ".join(("id", *columns)))
            changed = {change["id"] for change in changes if move(rows[change["id"]], change, now)}
            self._update("episodes", columns, [rows[id] for id in sorted(changed)])
        return len(changed)

    def place(self, places: Sequence[Mapping[str, Any]]) -> int:
        """Say where transcripts lie (`id`, `file`, `row`), in any state. Returns how many rows changed."""
        with self._transaction():
            rows = self._known("episodes", [place["id"] for place in places], "id, file, row")
            only = {name: FACTS[name] for name in ("file", "row")}
            changed = {p["id"] for p in places if write_once(rows[p["id"]], facts_of(p, only, ("id",)))}
            self._update("episodes", ("file", "row"), [rows[id] for id in sorted(changed)])
        return len(changed)

    def get(self, ids: Sequence[str], table: str = "episodes") -> list[Row]:
        """The rows of `ids`, in that order, of `episodes` or `games`; InvariantError for an unknown id."""
        with self._lock:
            rows = self._known(table, ids)
        return [rows[id] for id in ids]

    def accepted(self) -> list[tuple[str, str]]:
        """Distinct (question, target) of the games whose question was valid, by their first game's id."""
        sql = (
            "SELECT question, target FROM games WHERE verdict = 'valid' AND question IS NOT NULL "
            "AND target IS NOT NULL GROUP BY question, target ORDER BY min(id)"
        )
        with self._lock:
            return [(row["question"], row["target"]) for row in self._db.execute(sql)]

    def settled(self) -> tuple[list[GameRow], list[EpisodeRow]]:
        """The games that have a verdict, by id, and their episodes, by game and id: of one moment, also during a run."""
        with self._snapshot() as db:
            return parts.settled(db)

    def judged(self) -> list[str]:
        """Ids of the games that have a verdict."""
        with self._snapshot() as db:
            return parts.judged(db)

    def of_games(self, games: Sequence[str]) -> tuple[list[GameRow], list[EpisodeRow]]:
        """The rows of these games, by id, and of their episodes, by game and id; the rest of the file is not read."""
        with self._snapshot() as db:
            return parts.of_games(db, games)

    def earned(self, role: str, least: float) -> list[EpisodeRow]:
        """Scored episodes of `role` with a transcript and a reward of at least `least`, by id; of the proposer those whose
        question some attempt answered."""
        sql = (
            "SELECT e.* FROM episodes e LEFT JOIN games g ON g.id = e.game_id WHERE e.role = ? AND e.outcome = 'scored' "
            "AND e.reward >= ? AND e.file != '' AND (e.role != 'proposer' OR g.win_rate > 0) ORDER BY e.id"
        )
        with self._lock:
            return episode_rows(self._db.execute(sql, (role, least)))

    def played(self, roles: Sequence[str]) -> list[EpisodeRow]:
        """Episodes of `roles` that have a transcript, by file and row."""
        mine = "role IN (SELECT value FROM json_each(?))"
        sql = f"SELECT * FROM episodes WHERE {mine} AND file != '' ORDER BY file, row"
        with self._lock:
            return episode_rows(self._db.execute(sql, (json.dumps(list(roles)),)))

    def versions(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Role → version → (incarnation, step) of the weights that were given this number."""
        found: dict[str, dict[int, tuple[int, int]]] = {}
        with self._lock:
            for row in self._db.execute("SELECT * FROM versions WHERE step IS NOT NULL"):
                found.setdefault(row["role"], {})[row["version"]] = (row["incarnation"], row["step"])
        return found

    # learning

    def next_version(self, role: str, incarnation: int | None = None, step: int | None = None) -> int:
        """The number to publish weights under: from 1, strictly increasing over the file's life, never used twice.

        With `incarnation` and `step` a retry gets the same number again; without, a lost reply only skips one.
        """
        with self._transaction() as db:
            sql = "SELECT version FROM versions WHERE role = ? AND incarnation = ? AND step = ?"
            known = db.execute(sql, (role, incarnation, step)).fetchone()
            if known is not None:
                return int(known["version"])
            sql = "SELECT coalesce(max(version), 0) + 1 FROM versions WHERE role = ?"
            version: int = db.execute(sql, (role,)).fetchone()[0]
            db.execute("INSERT INTO versions VALUES(?, ?, ?, ?, ?)", (role, version, incarnation, step, time.time()))
        return version

    def newest(self, role: str) -> int:
        """The last number that was given to weights of `role`; 0 without one."""
        with self._lock:
            sql = "SELECT coalesce(max(version), 0) FROM versions WHERE role = ?"
            return int(self._db.execute(sql, (role,)).fetchone()[0])

    def updates(self, roles: Sequence[str], step: int) -> int:
        """Updates up to `step` that are live, of the one learner that trains all of `roles`."""
        with self._snapshot() as db:
            return audit.updates(db, roles, step)

    def placed(self) -> list[tuple[str, int, str]]:
        """File, row and id of every episode that has a transcript, in this order."""
        with self._snapshot() as db:
            return audit.placed(db)

    def commit(self, role: str, incarnation: int, step: int, version: int, episode_ids: Sequence[str]) -> int:
        """One optimizer step of `role` consumed these queued episodes: they become trained. Returns how many moved.

        InvariantError when one is not queued, is void or has no reward, when the step does not follow the live
        commits, or when a newer incarnation has spoken (a learner that was declared dead).
        """
        members = hashlib.sha256(json.dumps(sorted(episode_ids)).encode()).hexdigest()
        key, where = (role, incarnation, step), f"commit {role}/{incarnation}/{step}"
        with self._transaction() as db:
            sql = "SELECT * FROM commits WHERE role = ? AND incarnation = ? AND step = ?"
            known = db.execute(sql, key).fetchone()
            if known is not None:
                if known["rolled_back"] or (known["version"], known["members"]) != (version, members):
                    state = "was rolled back" if known["rolled_back"] else "exists with another version or batch"
                    raise InvariantError(f"{where} {state}")
                return 0
            newest = "max(incarnation) AS newest, max(CASE WHEN rolled_back THEN NULL ELSE step END) AS last"
            seen = db.execute(f"SELECT {newest} FROM commits WHERE role = ?", (role,)).fetchone()
            if (seen["newest"] or 0) > incarnation or (seen["last"] is not None and seen["last"] >= step):
                raise InvariantError(f"{where} does not follow step {seen['last']} of incarnation {seen['newest']}")
            rows = self._known("episodes", episode_ids, "id, state, outcome, reward")
            if len(rows) != len(episode_ids):
                raise InvariantError(f"{where} names an episode twice")
            for row in rows.values():
                fit = row["state"] == State.QUEUED.value and row["outcome"] in ("scored", "rejected")
                if not fit or row["reward"] is None:
                    found = {name: row[name] for name in ("state", "outcome", "reward")}
                    raise InvariantError(f"{where}: episode {row['id']} may not become trained from {found}")
            now = time.time()
            db.execute("INSERT INTO commits VALUES(?, ?, ?, ?, ?, ?, 0, ?)", (*key, version, len(rows), members, now))
            db.execute(
                "UPDATE episodes SET state = 'trained', commit_role = ?, commit_incarnation = ?, commit_step = ?, "
                "finished = ? WHERE id IN (SELECT value FROM json_each(?))",
                (*key, now, json.dumps(list(rows))),
            )
        return len(rows)

    def rollback(self, steps: Mapping[str, int], open_roles: Sequence[str] | None = None) -> dict[str, int]:
        """Go back to a checkpoint that contains each role's commits up to `steps[role]`, the only way backwards.

        Rows of later commits, and queued ones, become dropped: rolled_back (their outcome and reward stay); what was
        still being played becomes voided: interrupted. `open_roles` limits the latter two (default: every role).
        Returns counts: `commits`, `trained`, `queued`, `interrupted`.
        """
        now = time.time()
        every = open_roles is None
        roles = json.dumps(list(open_roles or []))
        counts = {"commits": 0, "trained": 0}
        with self._transaction() as db:
            for role, step in steps.items():
                sql = "UPDATE commits SET rolled_back = 1 WHERE role = ? AND step > ? AND NOT rolled_back"
                counts["commits"] += db.execute(sql, (role, step)).rowcount
                sql = (
                    "UPDATE episodes SET state = 'dropped', cause = 'rolled_back', finished = ? "
                    "WHERE state = 'trained' AND commit_role = ? AND commit_step > ?"
                )
                counts["trained"] += db.execute(sql, (now, role, step)).rowcount
            mine = "(? OR role IN (SELECT value FROM json_each(?)))"
            sql = (
                "UPDATE episodes SET state = 'dropped', cause = 'rolled_back', finished = ? "
                f"WHERE state = 'queued' AND outcome IN ('scored', 'rejected') AND {mine}"
            )
            counts["queued"] = db.execute(sql, (now, every, roles)).rowcount
            sql = (
                "UPDATE episodes SET state = 'voided', outcome = 'void', cause = 'interrupted', reward = NULL, "
                f"finished = ? WHERE state IN ('created', 'running', 'grading', 'queued') AND {mine}"
            )
            counts["interrupted"] = db.execute(sql, (now, every, roles)).rowcount
        return counts

    # proofs

    def check(self) -> dict[str, dict[str, int]]:
        """Assert law 3 over the whole file: role → state → number of episodes. See `ssp.record.ledger.audit.check`."""
        with self._snapshot() as db:
            return audit.check(db)

    def issued(self) -> dict[str, int]:
        """Role → episodes ever created, as counted when they were: the law's left side."""
        with self._snapshot() as db:
            return audit.issued(db)

    def tally(self) -> dict[str, dict[str, int]]:
        """Role → state → number of rows, as they are: the law's right side, not compared with anything."""
        with self._snapshot() as db:
            return audit.tally(db)

    def outcomes(self) -> dict[str, int]:
        """Counts by cause over the whole file: `void/<cause>`, `reject/<rule>`, `drop/<cause>`."""
        with self._snapshot() as db:
            return audit.outcomes(db)

    def digest(self) -> str:
        """sha256 (hex) over episodes and games sorted by id, without times and places: equal for deterministic runs."""
        with self._snapshot() as db:
            return audit.digest(db)
