"""Proofs over a whole ledger: the conservation law, counts by cause, the digest.

Owns the laws that no single row can show. Promises that each proof reads rows only and trusts no cached sum, except the
`created` tally, which exists to be compared with them. Refuses to write.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence

from ssp.base.episode import PROPOSER, SOLVER, State
from ssp.base.errors import InvariantError

_DIGESTED = (
    "SELECT id, game_id, role, state, outcome, cause, reward, policy_version_min, policy_version_max, "
    "opponent_version_min, opponent_version_max, commit_role, commit_incarnation, commit_step FROM episodes ORDER BY id",
    "SELECT id, target, question, verdict, rule, proposer_version, attempts, win_rate FROM games ORDER BY id",
)
"""What a game was; the ids say the other columns too."""


def issued(db: sqlite3.Connection) -> dict[str, int]:
    """Role → episodes ever created, as counted when they were."""
    return {str(role): int(number) for role, number in db.execute("SELECT role, created FROM counters")}


def tally(db: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """Role → state → number of rows, for every role that has rows or issued episodes."""
    states_of = {role: {state.value: 0 for state in State} for role in issued(db)}
    for role, state, number in db.execute("SELECT role, state, count(*) FROM episodes GROUP BY role, state"):
        states_of.setdefault(role, {known.value: 0 for known in State})[state] = number
    return states_of


def check(db: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """Role → state → number of episodes (every state is present, 0 included).

    InvariantError when created != sum over states, when trained rows and live commits disagree, or when a void has a
    reward.
    """
    created, states_of = issued(db), tally(db)
    for role, states in states_of.items():
        if created.get(role, 0) != sum(states.values()):
            raise InvariantError(f"{role}: created {created.get(role, 0)} != sum over states of {states}")
    _check_commits(db, sum(states["trained"] for states in states_of.values()))
    paid = db.execute("SELECT count(*) FROM episodes WHERE state = 'voided' AND reward IS NOT NULL").fetchone()[0]
    if paid:
        raise InvariantError(f"{paid} void episodes have a reward")
    return states_of


def _check_commits(db: sqlite3.Connection, trained: int) -> None:
    """Every live commit has exactly its trained rows, and no trained row is without one."""
    bound = db.execute("SELECT coalesce(sum(episodes), 0) FROM commits WHERE NOT rolled_back").fetchone()[0]
    odd = db.execute(
        "SELECT c.role, c.incarnation, c.step, c.episodes, count(e.id) FROM commits c LEFT JOIN episodes e ON "
        "e.commit_role = c.role AND e.commit_incarnation = c.incarnation AND e.commit_step = c.step "
        "AND e.state = 'trained' WHERE NOT c.rolled_back GROUP BY 1, 2, 3 HAVING count(e.id) != c.episodes"
    ).fetchall()
    if odd or trained != bound:
        found = [f"{role}/{incarnation}/{step}: {said}, rows {rows}" for role, incarnation, step, said, rows in odd]
        raise InvariantError(f"{trained} trained rows but commits hold {bound} episodes {found}")


def updates(db: sqlite3.Connection, roles: Sequence[str], step: int) -> int:
    """Live updates up to `step` of the one learner that trains all of `roles`."""
    sql = "SELECT role, step FROM commits WHERE NOT rolled_back AND step <= ?"
    return len({made for role, made in db.execute(sql, (step,)) if role in roles})


def placed(db: sqlite3.Connection) -> list[tuple[str, int, str]]:
    """File, row and id of every episode that has a transcript, in this order."""
    return [tuple(row) for row in db.execute("SELECT file, row, id FROM episodes WHERE file != '' ORDER BY 1, 2")]


def outcomes(db: sqlite3.Connection) -> dict[str, int]:
    """Counts by cause: `void/<cause>`, `drop/<cause>`, `reject/<rule>` (of proposals) and `reject/solver_<form>`.

    A dropped row's cause is the drop's: the rule of a dropped proposal is its game's (`unnamed` without one), the form in
    which a dropped attempt ended is on record no more (`solver_no_answer`). Of evaluations only voids count: these are
    faults whoever they hit (law 2), and from what an evaluation rejects nobody would have learned.
    """
    rule = (
        f"CASE WHEN e.role = '{SOLVER}' THEN 'solver_' || CASE e.state WHEN 'dropped' THEN 'no_answer' ELSE e.cause END "
        "WHEN e.state = 'dropped' THEN g.rule ELSE e.cause END"
    )
    sql = (
        "SELECT 'void/' || e.cause AS name, count(*) FROM episodes e WHERE e.state = 'voided' GROUP BY name "
        "UNION ALL SELECT 'drop/' || e.cause AS name, count(*) FROM episodes e WHERE e.state = 'dropped' GROUP BY name "
        f"UNION ALL SELECT 'reject/' || coalesce({rule}, 'unnamed') AS name, count(*) "
        "FROM episodes e LEFT JOIN games g ON g.id = e.game_id "
        f"WHERE e.outcome = 'rejected' AND e.role IN ('{PROPOSER}', '{SOLVER}') GROUP BY name"
    )
    return {str(name): int(number) for name, number in sorted(tuple(row) for row in db.execute(sql))}


def digest(db: sqlite3.Connection) -> str:
    """sha256 (hex) over episodes and games sorted by id; when and where rows were made stays out."""
    total = hashlib.sha256()
    for sql in _DIGESTED:
        for row in db.execute(sql):
            total.update(json.dumps(tuple(row)).encode() + b"\n")
    return total.hexdigest()
