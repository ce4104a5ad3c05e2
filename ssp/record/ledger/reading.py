"""Looking at a ledger: rows, counts, and the proofs over a whole file, of one moment also while a
run writes. A proof reads rows and trusts no sum, except the `created` tally, which exists to be
compared with them."""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from ssp.base.episode import EVAL, PROPOSAL, State
from ssp.base.errors import InputError, InvariantError, hold
from ssp.record.ledger.rows import SCHEMA, EpisodeRow, OfGames, Row, plain

_DIGESTED = (
    (
        "SELECT id, game_id, role, state, outcome, cause, reward, policy_version_min,"
        " policy_version_max, opponent_version_min, opponent_version_max, commit_role,"
        " commit_incarnation, commit_step FROM episodes ORDER BY id"
    ),
    (
        "SELECT id, target, question, verdict, rule, proposer_version, attempts, win_rate FROM"
        " games ORDER BY id"
    ),
)
"""What a game was; the ids say the other columns too."""

_AMONG = "IN (SELECT value FROM json_each(?))"

_PLACE = ("SQLITE_PERM", "SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN")
"""How the names begin of SQLite's errors about the place of a file, rather than about what is in
it."""


class LedgerReader:
    """One ledger's file. Thread-safe. `readonly`: an existing one, for looking only, which also
    sees what is written later; InputError for one that is missing, cannot be opened, or is no
    ledger."""

    def __init__(self, path: str | Path, readonly: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._db = _opened(self.path, readonly)

    def close(self) -> None:
        """Close the file; the ledger is of no use afterwards."""
        self._db.close()

    @contextmanager
    def _together(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """Several statements as one: of one moment, and all of them or none."""
        with self._lock:
            db = self._db
            if db.in_transaction:
                yield db
                return
            db.execute(begin)
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.OperationalError):  # a disk that is full has ended it already
                    db.execute("ROLLBACK")
                raise

    def _select(self, sql: str, *given: object) -> list[sqlite3.Row]:
        with self._lock:
            return self._db.execute(sql, given).fetchall()

    def _known(
        self, table: str, ids: Iterable[str], columns: str = "*", there: bool = True
    ) -> dict[str, Row]:
        """Rows by id. InvariantError for an unknown id, unless they need not be `there`."""
        names = list(ids)
        sql = f"SELECT {columns} FROM {table} WHERE id {_AMONG}"
        rows = {row["id"]: row for row in plain(self._select(sql, json.dumps(names)))}
        missing = set(names).difference(rows) if there else set()
        if missing:
            raise InvariantError(
                f"{len(missing)} {table} were never created, the first is {min(missing)}"
            )
        return rows

    def get(self, ids: Sequence[str], table: str = "episodes") -> list[Row]:
        """The rows of `ids`, in that order, of `episodes` or `games`; InvariantError for an unknown
        id."""
        rows = self._known(table, ids)
        return [rows[id] for id in ids]

    def accepted(self) -> list[tuple[str, str]]:
        """Distinct (question, target) of the games whose question was valid, by their first game's
        id."""
        sql = (
            "SELECT question, target FROM games WHERE verdict = 'valid' AND question IS NOT NULL "
            "AND target IS NOT NULL GROUP BY question, target ORDER BY min(id)"
        )
        return [(row["question"], row["target"]) for row in self._select(sql)]

    def judged(self) -> list[str]:
        """Ids of the games that have a verdict, in order."""
        rows = self._select("SELECT id FROM games WHERE verdict IS NOT NULL ORDER BY id")
        return [row["id"] for row in rows]

    def settled(self) -> OfGames:
        """The games that have a verdict, by id, and their episodes, by game and id."""
        with self._together():
            return self.of_games(self.judged())

    def rounds(self, known: Collection[tuple[int, int]] = ()) -> Iterator[OfGames]:
        """What `settled` gives, a round at a time, in order, so that no more than a round is held.

        `known`: rounds that are left out, each with the start of the run that played it."""
        pairs = "SELECT DISTINCT round, incarnation FROM games WHERE verdict IS NOT NULL"
        sql = (
            "SELECT round, id FROM games WHERE verdict IS NOT NULL AND (round, incarnation) IN"
            " (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"
            " ORDER BY round, id"
        )
        with self._together() as db:
            new = [tuple(pair) for pair in self._select(pairs) if tuple(pair) not in known]
            games = db.execute(sql, (json.dumps(new),))
            for _, of_round in groupby(games, itemgetter("round")):
                yield self.of_games([game["id"] for game in of_round])

    def of_games(self, games: Sequence[str]) -> OfGames:
        """The rows of these games, by id, and of their episodes, by game and id."""
        ids = json.dumps(list(games))
        of_games = f"SELECT * FROM games WHERE id {_AMONG} ORDER BY id"
        of_episodes = f"SELECT * FROM episodes WHERE game_id {_AMONG} ORDER BY game_id, id"
        with self._together():
            return plain(self._select(of_games, ids)), plain(self._select(of_episodes, ids))

    def earned(self, role: str, least: float, answered: bool) -> list[EpisodeRow]:
        """Scored episodes of `role` with a transcript and such a reward, by id; `answered`: of
        games that an attempt answered alone."""
        sql = (
            "SELECT e.* FROM episodes e LEFT JOIN games g ON g.id = e.game_id WHERE e.role = ? AND"
            " e.outcome = 'scored' AND e.reward >= ? AND e.file != '' AND (NOT ? OR g.win_rate > 0)"
            " ORDER BY e.id"
        )
        return plain(self._select(sql, role, least, answered))

    def played(self, roles: Sequence[str]) -> list[EpisodeRow]:
        """Episodes of `roles` that have a transcript, by file and row."""
        sql = f"SELECT * FROM episodes WHERE role {_AMONG} AND file != '' ORDER BY file, row"
        return plain(self._select(sql, json.dumps(list(roles))))

    def placed(self) -> Iterator[tuple[str, int, str]]:
        """File, row and id of every episode that has a transcript, in this order. They are read as
        they are asked for."""
        sql = "SELECT file, row, id FROM episodes WHERE file != '' ORDER BY 1, 2"
        with self._together() as db:
            for row in db.execute(sql):
                yield tuple(row)

    def versions(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Role → version → (incarnation, step) of the weights that were given this number."""
        versions: dict[str, dict[int, tuple[int, int]]] = {}
        for row in self._select("SELECT * FROM versions WHERE step IS NOT NULL"):
            of_role = versions.setdefault(row["role"], {})
            of_role[row["version"]] = (row["incarnation"], row["step"])
        return versions

    def newest(self, role: str) -> int:
        """The last number that was given to weights of `role`; 0 without one."""
        sql = "SELECT coalesce(max(version), 0) FROM versions WHERE role = ?"
        ((version,),) = self._select(sql, role)
        return int(version)

    def updates(self, roles: Sequence[str], step: int) -> int:
        """Updates up to `step` that are live, of the one learner that trains all of `roles`."""
        sql = "SELECT role, step FROM commits WHERE NOT rolled_back AND step <= ?"
        return len({made for role, made in self._select(sql, step) if role in roles})

    def issued(self) -> dict[str, int]:
        """Role → episodes ever created, as counted when they were: the law's left side."""
        rows = self._select("SELECT role, created FROM counters")
        return {str(role): int(number) for role, number in rows}

    def tally(self) -> dict[str, dict[str, int]]:
        """Role → state → number of rows (0 included), as they are: the law's right side, not
        compared with anything."""
        # In two parts, each of which one index has whole, in the order in which it is counted.
        sql = (
            "SELECT role, state, count(*) FROM episodes WHERE commit_step IS NULL GROUP BY role,"
            " state UNION ALL SELECT role, state, sum(number) FROM (SELECT role, state, count(*) AS"
            " number FROM episodes WHERE commit_step IS NOT NULL GROUP BY commit_role,"
            " commit_incarnation, commit_step, state, role) GROUP BY role, state"
        )
        return self._by_role(sql)

    def _by_role(self, sql: str) -> dict[str, dict[str, int]]:
        """Role → state → number (0 included), of rows of these three."""
        none = {state.value: 0 for state in State}
        with self._together():
            states_of = {role: {**none} for role in self.issued()}
            for role, state, number in self._select(sql):
                states_of.setdefault(role, {**none})[state] += number
        return states_of

    def check(self) -> dict[str, dict[str, int]]:
        """Assert law 3 over the whole file; returns `tally`. InvariantError when created != sum
        over states, when trained rows and live commits disagree, or when a void has a reward."""
        with self._together() as db:
            states_of = self.tally()
            sql = "SELECT coalesce(sum(episodes), 0) FROM commits WHERE NOT rolled_back"
            (bound,) = db.execute(sql).fetchone()
            self._prove(states_of, bound, "commits c")
        return states_of

    def _prove(self, states_of: Mapping[str, Mapping[str, int]], bound: int, among: str) -> None:
        """Assert law 3 of these numbers by role and state.

        `bound`: episodes of all live commits. `among`: the commits `c` that are compared with their
        rows."""
        created = self.issued()
        for role, states in states_of.items():
            issued = created.get(role, 0)
            if issued != sum(states.values()):
                raise InvariantError(f"{role}: created {issued} != sum over states of {states}")

        sql = (
            "SELECT role || '/' || incarnation || '/' || step, episodes, (SELECT count(*) FROM"
            " episodes e WHERE e.commit_step IS NOT NULL AND e.commit_role = c.role AND"
            " e.commit_incarnation = c.incarnation AND e.commit_step = c.step AND e.state ="
            f" 'trained') AS rows FROM {among} WHERE NOT rolled_back AND rows != c.episodes"
        )
        odd = [f"{name}: {episodes}, rows {rows}" for name, episodes, rows in self._select(sql)]
        trained = sum(states[State.TRAINED.value] for states in states_of.values())
        if odd or trained != bound:
            raise InvariantError(f"{trained} trained rows but commits hold {bound} episodes {odd}")

        sql = "SELECT count(*) FROM episodes WHERE state = 'voided' AND reward IS NOT NULL"
        ((paid,),) = self._select(sql)
        if paid:
            raise InvariantError(f"{paid} void episodes have a reward")

    def outcomes(self, asks: str = PROPOSAL) -> dict[str, int]:
        """Counts by cause: `void/<cause>`, `drop/<cause>`, `reject/<rule>` (episodes of the kind
        `asks`) and `reject/<role>_<form>` (others). A dropped proposal counts under the rule of its
        game (`unnamed` without one). A dropped attempt counts as `<role>_no_answer`: its form is
        not on record. Of evaluations only voids count (law 2)."""
        rule = (
            "CASE WHEN e.kind IS NOT ? THEN e.role || '_' || CASE e.state WHEN 'dropped' THEN"
            " 'no_answer' ELSE e.cause END WHEN e.state = 'dropped' THEN g.rule ELSE e.cause END"
        )
        sql = (
            "SELECT 'void/' || e.cause AS name, count(*) FROM episodes e WHERE e.state = 'voided'"
            " GROUP BY name UNION ALL SELECT 'drop/' || e.cause AS name, count(*) FROM episodes e"
            " WHERE e.state = 'dropped' GROUP BY name UNION ALL SELECT 'reject/' ||"
            f" coalesce({rule}, 'unnamed') AS name, count(*) FROM episodes e LEFT JOIN games g ON"
            f" g.id = e.game_id WHERE e.outcome = 'rejected' AND e.role != '{EVAL}' GROUP BY name"
        )
        rows = sorted(tuple(row) for row in self._select(sql, asks))
        return {str(name): int(number) for name, number in rows}

    def digest(self) -> str:
        """sha256 (hex) over episodes and games sorted by id, without times and places: equal for
        deterministic runs."""
        total = hashlib.sha256()
        with self._together() as db:
            for sql in _DIGESTED:
                for row in db.execute(sql):
                    total.update(json.dumps(tuple(row)).encode() + b"\n")
        return total.hexdigest()


def _opened(path: Path, readonly: bool) -> sqlite3.Connection:
    """A connection to the ledger, which is made where it is missing, unless it is `readonly`."""
    rule = "a ledger file must exist"
    hold(not readonly or path.is_file(), rule, path, "give the path of a run's ledger.db")
    uri = f"{path.absolute().as_uri()}?mode={'ro' if readonly else 'rwc'}"
    db: sqlite3.Connection | None = None
    try:
        db = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0
        )
        db.row_factory = sqlite3.Row
        if readonly:
            (verdict,), *_ = db.execute("PRAGMA quick_check").fetchall()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
        else:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.executescript(SCHEMA)
        # fails for another form
        db.execute("SELECT counters.created, round FROM counters, episodes").fetchone()
    except sqlite3.DatabaseError as error:
        if db is not None:
            db.close()
        rule = "a ledger file must be this project's SQLite"
        step = "use another file"
        if getattr(error, "sqlite_errorname", "").startswith(_PLACE):
            rule = (
                "a ledger can be opened where it lies; beside one that was not closed SQLite"
                " writes, also to read it"
            )
            step = "copy the run's folder to where you may write"
        raise InputError(rule, f"{path} ({error})", step) from error
    return db
