"""The ledger: every game and every episode of a run, in one SQLite file (law 3). A state goes one
way; a fact once written never changes; a repeated call changes nothing; one that breaks a law
raises InvariantError and writes nothing."""

import hashlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from operator import itemgetter
from typing import Any

from ssp.base.episode import Outcome, State
from ssp.base.errors import InvariantError
from ssp.record.ledger.reading import LedgerReader
from ssp.record.ledger.rows import (
    EPISODE_COLUMNS,
    FACTS,
    GAME_FACTS,
    MOVED,
    NOTHING,
    WATCH,
    Row,
    facts_of,
    move,
    write_once,
)

_PAID = (Outcome.SCORED.value, Outcome.REJECTED.value)


class Ledger(LedgerReader):
    """The accounts of one run folder; one writer process at a time. Rows are dicts with the columns
    of their table."""

    _proved: int | None = None
    """Episodes at the last proof over the whole file; None while nothing is counted."""

    def fold(self) -> None:
        """Move what SQLite keeps beside the file into the file, so that a copy of `ledger.db` alone
        is whole. Nothing stays beside it, unless somebody looks on, and who looks later leaves
        nothing there."""
        with self._lock:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            with suppress(sqlite3.OperationalError):
                self._db.execute("PRAGMA journal_mode=DELETE")

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._together("BEGIN IMMEDIATE")

    # Columns without anything in them are left out: SQLite's door takes as long for nothing as for
    # a number.

    def _insert(self, table: str, rows: Collection[Row]) -> None:
        if rows:
            columns = sorted(set[str]().union(*rows))
            marks = ", ".join("?" * len(columns))
            sql = f"INSERT INTO {table}({', '.join(columns)}) VALUES({marks})"
            self._db.executemany(sql, [tuple(map(row.get, columns)) for row in rows])

    def _update(self, table: str, columns: Iterable[str], rows: Collection[Row]) -> int:
        if rows:
            given = []
            for name in columns:
                # A reward may be taken away; whatever else is known stays known.
                if name == "reward" or any(row[name] is not None for row in rows):
                    given.append(name)
            marks = ", ".join(f"{name} = ?" for name in given)
            sql = f"UPDATE {table} SET {marks} WHERE id = ?"
            self._db.executemany(sql, map(itemgetter(*given, "id"), rows))
        return len(rows)

    def create_games(self, games: Sequence[Mapping[str, Any]]) -> int:
        """Open games: `id` and any game column (`target`, `attempts`, ...). Returns how many are
        new."""
        with self._transaction():
            rows = self._known("games", [game["id"] for game in games], there=False)
            fresh = {}
            for game in games:
                id = game["id"]
                facts = facts_of(game, GAME_FACTS, ("id",))
                known = rows.get(id)
                if known is None:
                    rows[id] = fresh[id] = {"id": id, **dict.fromkeys(GAME_FACTS), **facts}
                elif write_once(known, facts):
                    raise InvariantError(f"game {id} exists with other facts: {known}")
            self._insert("games", fresh.values())
        return len(fresh)

    def judge_games(self, games: Sequence[Mapping[str, Any]]) -> int:
        """Add what is known now: `question`, `verdict`, `rule`, `proposer_version`, `attempts`,
        `win_rate`."""
        with self._transaction():
            rows = self._known("games", [game["id"] for game in games])
            changed = set()
            for game in games:
                facts = facts_of(game, GAME_FACTS, ("id",))
                if write_once(rows[game["id"]], facts):
                    changed.add(game["id"])
            return self._update("games", GAME_FACTS, [rows[id] for id in sorted(changed)])

    def create(
        self, episodes: Sequence[Mapping[str, Any]], shared: Mapping[str, Any] = NOTHING
    ) -> int:
        """Issue episodes: `id`, `game_id`, and of each, or `shared` by all, `role`, `state`
        (created or running), any fact. Returns how many are new."""
        given = ("id", "game_id", "role", "state")
        same: Row = {"created": time.time(), **facts_of(shared, FACTS, given)}
        with self._transaction() as db:
            ids = [episode["id"] for episode in episodes]
            rows = self._known("episodes", ids, "id, game_id, role", there=False)
            fresh = {}
            created = Counter[str]()
            for episode in episodes:
                row: Row = {"state": State.CREATED.value, **shared, **episode}
                id, state = row["id"], State(row["state"])
                own = {"id": id, "game_id": row["game_id"], "role": row["role"]}
                if id in rows:
                    if any(rows[id][name] != value for name, value in own.items()):
                        raise InvariantError(
                            f"episode {id} exists for another game or role: {rows[id]}"
                        )
                    continue
                if state not in (State.CREATED, State.RUNNING):
                    raise InvariantError(f"episode {id}: it may not begin as {state.value}")
                facts = facts_of(episode, FACTS, given)
                rows[id] = fresh[id] = {**same, **facts, **own, "state": state.value}
                created[own["role"]] += 1
            self._insert("episodes", fresh.values())
            # The tally is kept beside the rows, never derived from them: so the conservation law
            # can fail.
            more = "ON CONFLICT(role) DO UPDATE SET created = created + excluded.created"
            db.executemany(f"INSERT INTO counters VALUES(?, ?) {more}", list(created.items()))
        return len(fresh)

    def advance(
        self, changes: Sequence[Mapping[str, Any]], shared: Mapping[str, Any] = NOTHING
    ) -> int:
        """Move episodes on: `id`, and of each, or `shared` by all, `state` and any fact. Returns
        how many rows changed. A final state said again is a no-op; entering a final state may
        replace `cause`, entering `voided` replaces the outcome and removes the reward; `trained` is
        reached through `commit` only."""
        now = time.time()
        if shared:
            changes = [{**shared, **change} for change in changes]
        with self._transaction():
            touched = set(MOVED).union(*changes)
            columns = [name for name in EPISODE_COLUMNS[3:] if name in touched]
            ids = [change["id"] for change in changes]
            rows = self._known("episodes", ids, ", ".join(("id", *columns)))
            changed = {change["id"] for change in changes if move(rows[change["id"]], change, now)}
            return self._update("episodes", columns, [rows[id] for id in sorted(changed)])

    def settle(
        self, games: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]
    ) -> None:
        """The verdicts of a round's games and what becomes of its episodes, as one transaction: all
        of it, or none."""
        with self._transaction():
            self.judge_games(games)
            self.advance(changes)

    def next_version(
        self, role: str, incarnation: int | None = None, step: int | None = None
    ) -> int:
        """The number to publish weights under: from 1, strictly increasing over the file's life,
        never used twice. With `incarnation` and `step` a retry gets the same number again; without,
        a lost reply only skips one."""
        with self._transaction() as db:
            sql = "SELECT version FROM versions WHERE role = ? AND incarnation = ? AND step = ?"
            known = db.execute(sql, (role, incarnation, step)).fetchone()
            if known is not None:
                return int(known["version"])
            sql = "SELECT coalesce(max(version), 0) + 1 FROM versions WHERE role = ?"
            version: int = db.execute(sql, (role,)).fetchone()[0]
            row = (role, version, incarnation, step, time.time())
            db.execute("INSERT INTO versions VALUES(?, ?, ?, ?, ?)", row)
        return version

    def commit(
        self, role: str, incarnation: int, step: int, version: int, episode_ids: Sequence[str]
    ) -> int:
        """One optimizer step of `role` consumed these queued episodes: they become trained. Returns
        how many moved. InvariantError when one is not queued, is void or has no reward, when the
        step does not follow the live commits, or when a newer incarnation has spoken (a learner
        that was declared dead)."""
        members = hashlib.sha256(json.dumps(sorted(episode_ids)).encode()).hexdigest()
        key = (role, incarnation, step)
        where = f"commit {role}/{incarnation}/{step}"
        with self._transaction() as db:
            sql = "SELECT * FROM commits WHERE role = ? AND incarnation = ? AND step = ?"
            known = db.execute(sql, key).fetchone()
            if known is not None:
                if known["rolled_back"]:
                    raise InvariantError(f"{where} was rolled back")
                if known["version"] != version or known["members"] != members:
                    raise InvariantError(f"{where} exists with another version or batch")
                return 0

            # Live commits of later starts of the run have later steps, so one row tells the last.
            of_role = "FROM commits WHERE role = ?"
            (newest,) = db.execute(f"SELECT max(incarnation) {of_role}", (role,)).fetchone()
            sql = (
                f"SELECT step {of_role} AND NOT rolled_back ORDER BY incarnation DESC, step DESC"
                " LIMIT 1"
            )
            live = db.execute(sql, (role,)).fetchone()
            last = None if live is None else live["step"]
            if (newest or 0) > incarnation or (last is not None and last >= step):
                raise InvariantError(f"{where} does not follow step {last} of incarnation {newest}")

            rows = self._known("episodes", episode_ids, "id, state, outcome, reward")
            if len(rows) != len(episode_ids):
                raise InvariantError(f"{where} names an episode twice")
            for id, row in rows.items():
                queued = row["state"] == State.QUEUED.value
                if not (queued and row["outcome"] in _PAID) or row["reward"] is None:
                    del row["id"]
                    raise InvariantError(f"{where}: episode {id} may not become trained from {row}")

            now = time.time()
            commit = (*key, version, len(rows), members, now)
            db.execute("INSERT INTO commits VALUES(?, ?, ?, ?, ?, ?, 0, ?)", commit)
            sql = (
                "UPDATE episodes SET state = 'trained', commit_role = ?, commit_incarnation = ?,"
                " commit_step = ?, finished = ? WHERE id IN (SELECT value FROM json_each(?))"
            )
            db.execute(sql, (*key, now, json.dumps(list(rows))))
        return len(rows)

    def recheck(self) -> None:
        """Assert law 3 of what was counted as it was written, and of the commits since the last
        call: a step's proof costs what the step wrote. At the first call, and whenever the episodes
        have doubled since such a one, over the whole file, which must be what was counted. Raises
        as `check` does."""
        with self._lock:
            if self._proved is None:
                self._db.executescript(WATCH)
                self._proved = 0
            with self._transaction() as db:
                counted = self._by_role("SELECT * FROM counted")
                (episodes,) = db.execute("SELECT sum(number) FROM counted").fetchone()
                if (episodes or 0) >= 2 * self._proved:
                    rows = self.check()
                    if rows != counted:
                        raise InvariantError(f"rows {rows}, but counted as written {counted}")
                    self._proved = episodes or 0
                (bound,) = db.execute("SELECT episodes FROM bound").fetchone()
                self._prove(counted, bound, "fresh JOIN commits c USING (role, incarnation, step)")
                db.execute("DELETE FROM fresh")

    def rollback(self, steps: Mapping[str, int]) -> dict[str, int]:
        """Go back to a checkpoint that contains each role's commits up to `steps[role]`, the only
        way backwards. Rows of later commits, and queued ones, become dropped: rolled_back (their
        outcome and reward stay); what was still being played becomes voided: interrupted. Returns
        counts: `commits`, `trained`, `queued`, `interrupted`."""
        now = time.time()
        dropped = "UPDATE episodes SET state = 'dropped', cause = 'rolled_back', finished = ? WHERE"
        counts = {"commits": 0, "trained": 0}
        with self._transaction() as db:
            for role, step in steps.items():
                sql = (
                    "UPDATE commits SET rolled_back = 1 WHERE role = ? AND step > ? AND NOT"
                    " rolled_back"
                )
                counts["commits"] += db.execute(sql, (role, step)).rowcount
                sql = f"{dropped} state = 'trained' AND commit_role = ? AND commit_step > ?"
                counts["trained"] += db.execute(sql, (now, role, step)).rowcount
            sql = f"{dropped} state = 'queued' AND outcome IN ('scored', 'rejected')"
            counts["queued"] = db.execute(sql, (now,)).rowcount
            sql = (
                "UPDATE episodes SET state = 'voided', outcome = 'void', cause = 'interrupted',"
                " reward = NULL, finished = ? WHERE state IN ('created', 'running', 'grading',"
                " 'queued')"
            )
            counts["interrupted"] = db.execute(sql, (now,)).rowcount
        return counts
