"""Looking at a ledger: rows, counts, and the proofs over a whole file, of one moment also while a
run writes. A proof reads rows and trusts no sum, except the `created` tally, which exists to be
compared with them."""

import hashlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ssp.base.episode import EVAL, PROPOSAL, State
from ssp.base.errors import InputError, InvariantError, hold
from ssp.record.ledger.rows import SCHEMA, EpisodeRow, GameRow, Row, plain

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

_PLACE = ("SQLITE_PERM", "SQLITE_BUSY", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN")
"""How SQLite's errors begin that are of the place where the file lies, and not of what is in it."""


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
        sql = f"SELECT {columns} FROM {table} WHERE id IN (SELECT value FROM json_each(?))"
        rows = {row["id"]: dict(row) for row in self._select(sql, json.dumps(names))}
        missing = sorted(set(names) - set(rows)) if there else []
        if missing:
            raise InvariantError(
                f"{len(missing)} {table} were never created, the first is {missing[0]}"
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
        return [
            row["id"]
            for row in self._select("SELECT id FROM games WHERE verdict IS NOT NULL ORDER BY id")
        ]

    def settled(self) -> tuple[list[GameRow], list[EpisodeRow]]:
        """The games that have a verdict, by id, and their episodes, by game and id."""
        with self._together():
            return self.of_games(self.judged())

    def of_games(self, games: Sequence[str]) -> tuple[list[GameRow], list[EpisodeRow]]:
        """The rows of these games, by id, and of their episodes, by game and id."""
        named, among = json.dumps(list(games)), "IN (SELECT value FROM json_each(?))"
        with self._together():
            found = self._select(f"SELECT * FROM games WHERE id {among} ORDER BY id", named)
            episodes = self._select(
                f"SELECT * FROM episodes WHERE game_id {among} ORDER BY game_id, id", named
            )
            return plain(found), plain(episodes)

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
        mine = "role IN (SELECT value FROM json_each(?))"
        sql = f"SELECT * FROM episodes WHERE {mine} AND file != '' ORDER BY file, row"
        return plain(self._select(sql, json.dumps(list(roles))))

    def placed(self) -> list[tuple[str, int, str]]:
        """File, row and id of every episode that has a transcript, in this order."""
        return [
            tuple(row)
            for row in self._select(
                "SELECT file, row, id FROM episodes WHERE file != '' ORDER BY 1, 2"
            )
        ]

    def versions(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Role → version → (incarnation, step) of the weights that were given this number."""
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for row in self._select("SELECT * FROM versions WHERE step IS NOT NULL"):
            found.setdefault(row["role"], {})[row["version"]] = (row["incarnation"], row["step"])
        return found

    def newest(self, role: str) -> int:
        """The last number that was given to weights of `role`; 0 without one."""
        ((version,),) = self._select(
            "SELECT coalesce(max(version), 0) FROM versions WHERE role = ?", role
        )
        return int(version)

    def updates(self, roles: Sequence[str], step: int) -> int:
        """Updates up to `step` that are live, of the one learner that trains all of `roles`."""
        sql = "SELECT role, step FROM commits WHERE NOT rolled_back AND step <= ?"
        return len({made for role, made in self._select(sql, step) if role in roles})

    def issued(self) -> dict[str, int]:
        """Role → episodes ever created, as counted when they were: the law's left side."""
        return {
            str(role): int(number)
            for role, number in self._select("SELECT role, created FROM counters")
        }

    def tally(self) -> dict[str, dict[str, int]]:
        """Role → state → number of rows (0 included), as they are: the law's right side, not
        compared with anything."""
        with self._together():
            return _tally(self.issued(), self._counts())

    def _counts(self) -> list[sqlite3.Row]:
        """The file's episodes, counted by `role`, `state` and `life` and `step` of the commit, if
        any, of `by`."""
        # In two parts, each of which one index has whole.
        sql = (
            "SELECT role, state, NULL AS by, NULL AS life, NULL AS step, count(*) AS number FROM"
            " episodes WHERE commit_step IS NULL GROUP BY role, state UNION ALL SELECT role, state,"
            " commit_role, commit_incarnation, commit_step, count(*) FROM episodes WHERE"
            " commit_step IS NOT NULL GROUP BY commit_role, commit_incarnation, commit_step, state,"
            " role"
        )
        return self._select(sql)

    def check(self) -> dict[str, dict[str, int]]:
        """Assert law 3 over the whole file; returns `tally`. InvariantError when created != sum
        over states, when trained rows and live commits disagree, or when a void has a reward."""
        with self._together() as db:
            created, counts = self.issued(), self._counts()
            states_of = _tally(created, counts)
            for role, states in states_of.items():
                if created.get(role, 0) != sum(states.values()):
                    raise InvariantError(
                        f"{role}: created {created.get(role, 0)} != sum over states of {states}"
                    )
            members = Counter[tuple[str, int, int]]()
            for row in counts:
                if row["state"] == State.TRAINED.value:
                    members[row["by"], row["life"], row["step"]] += row["number"]
            sql = "SELECT role, incarnation, step, episodes FROM commits WHERE NOT rolled_back"
            live = {tuple(key): episodes for *key, episodes in db.execute(sql)}
            odd = [key for key, episodes in live.items() if members[key] != episodes]
            trained, bound = members.total(), sum(live.values())
            if odd or trained != bound:
                found = [
                    f"{'/'.join(map(str, key))}: {live[key]}, rows {members[key]}" for key in odd
                ]
                raise InvariantError(
                    f"{trained} trained rows but commits hold {bound} episodes {found}"
                )
            sql = "SELECT count(*) FROM episodes WHERE state = 'voided' AND reward IS NOT NULL"
            if paid := db.execute(sql).fetchone()[0]:
                raise InvariantError(f"{paid} void episodes have a reward")
        return states_of

    def outcomes(self, asks: str = PROPOSAL) -> dict[str, int]:
        """Counts by cause: `void/<cause>`, `drop/<cause>`, `reject/<rule>` (of episodes of the kind
        `asks`) and `reject/<role>_<form>`. Of a dropped proposal the rule is its game's (`unnamed` without
        one), of a dropped attempt the form is on record no more (`solver_no_answer`). Of
        evaluations only voids count (law 2)."""
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
        return {
            str(name): int(number)
            for name, number in sorted(tuple(row) for row in self._select(sql, asks))
        }

    def digest(self) -> str:
        """sha256 (hex) over episodes and games sorted by id, without times and places: equal for
        deterministic runs."""
        total = hashlib.sha256()
        with self._together() as db:
            for sql in _DIGESTED:
                for row in db.execute(sql):
                    total.update(json.dumps(tuple(row)).encode() + b"\n")
        return total.hexdigest()


def _tally(created: Iterable[str], counts: Iterable[sqlite3.Row]) -> dict[str, dict[str, int]]:
    found = {role: {state.value: 0 for state in State} for role in created}
    for row in counts:
        found.setdefault(row["role"], {known.value: 0 for known in State})[row["state"]] += row[
            "number"
        ]
    return found


def _opened(path: Path, readonly: bool) -> sqlite3.Connection:
    hold(
        not readonly or path.is_file(),
        "a ledger file must exist",
        path,
        "give the path of a run's ledger.db",
    )
    mode = "ro" if readonly else "rwc"
    db: sqlite3.Connection | None = None
    try:
        uri = f"{path.absolute().as_uri()}?mode={mode}"
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
        if getattr(error, "sqlite_errorname", "").startswith(_PLACE):
            rule = (
                "a ledger can be opened where it lies; beside one that was not closed SQLite"
                " writes, also to read it"
            )
            raise InputError(
                rule, f"{path} ({error})", "copy the run's folder to where you may write"
            ) from error
        rule = "a ledger file must be this project's SQLite"
        raise InputError(rule, f"{path} ({error})", "use another file") from error
    return db
