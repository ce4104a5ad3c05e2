"""Rows of the ledger: the schema, and what may be written to a row (no database here)."""

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict, get_args, get_type_hints

from ssp.base.episode import Outcome, State
from ssp.base.errors import InvariantError

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
WATCH = Path(__file__).with_name("watch.sql").read_text(encoding="utf-8")


class EpisodeRow(TypedDict):
    """A row of `episodes`, as a run writes it."""

    id: str
    game_id: str
    role: str
    state: str
    commit_role: str | None
    commit_incarnation: int | None
    commit_step: int | None
    created: float
    finished: float | None
    outcome: str  # None until it is known
    cause: str | None
    reward: float | None
    policy_version_min: int | None
    policy_version_max: int | None
    opponent_version_min: int | None
    opponent_version_max: int | None
    file: str | None
    row: int | None
    round: int  # from 1; of an evaluation the update after which it was asked
    kind: str
    attempt: int  # of its game; of an evaluation its number in this start of the run
    issue: int
    incarnation: int
    past: int  # 1: played by a past version, met as an opponent
    item: str | None  # id of the question that an evaluation asked


class GameRow(TypedDict):
    """A row of `games`, as a run writes it."""

    id: str
    target: str
    question: str | None
    verdict: str  # None until it is judged
    rule: str | None
    proposer_version: int | None
    attempts: int | None
    win_rate: float | None
    round: int
    kind: str
    number: int  # the place in the run's order of rows; negative for a replayed question
    incarnation: int


OfGames = tuple[list[GameRow], list[EpisodeRow]]
"""Rows of games, and of their episodes."""


def plain(rows: Sequence[Any]) -> list[Any]:
    """Whole rows, each an `EpisodeRow` or a `GameRow`, of what SQLite gives."""
    # Of a wide row `dict(row)` would look each column up by its name, which takes twice the time.
    names = rows[0].keys() if rows else []
    return [dict(zip(names, row, strict=True)) for row in rows]


def _facts(row: type, keys: int) -> dict[str, type]:
    """The columns behind the first `keys` ones, and their types; of `str | None` it is str."""
    hints = list(get_type_hints(row).items())[keys:]
    return {name: (get_args(hint) or (hint,))[0] for name, hint in hints}


FACTS, GAME_FACTS = _facts(EpisodeRow, 9), _facts(GameRow, 1)
"""Columns that may be set, and their types."""

EPISODE_COLUMNS = ("id", "game_id", "role", "state", *FACTS, "created", "finished")
MOVED = ("state", "outcome", "cause", "reward", "finished")
"""Columns that entering a state may set by itself."""

Row = dict[str, Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})


def facts_of(change: Mapping[str, Any], allowed: Mapping[str, type], keys: Sequence[str]) -> Row:
    """The given facts as plain Python values. None and "" mean not known; an unknown column or a
    NaN is a bug."""
    facts: Row = {}
    for name, value in change.items():
        if value is None or value == "" or name in keys:
            continue
        kind = allowed.get(name)
        if kind is None:
            raise InvariantError(
                f"{change.get('id')}: the ledger has no column {name!r} to set; it has"
                f" {sorted(allowed)}"
            )
        if type(value) is not kind:
            value = kind(value.value if isinstance(value, Enum) else value)
        if kind is float and not math.isfinite(value):
            raise InvariantError(
                f"{change.get('id')}: {name} must be a finite number, found {value}"
            )
        facts[name] = value
    return facts


def write_once(row: Row, facts: Row, replaceable: Sequence[str] = ()) -> bool:
    """Fill `row` with `facts`. True when something changed; InvariantError when a fact would be
    replaced."""
    changed = False
    for name, value in facts.items():
        before = row[name]
        if before == value:
            continue
        if before is not None and name not in replaceable:
            raise InvariantError(
                f"{row['id']}: {name} is already {before!r} and may not become {value!r}"
            )
        row[name] = value
        changed = True
    return changed


def move(row: Row, change: Mapping[str, Any], now: float) -> bool:
    """Apply one `advance` to a row in memory. True when the row changed."""
    earlier, state = State(row["state"]), State(change["state"])
    episode = f"episode {row['id']}"
    if state is earlier and state.final:
        return False
    if state is not earlier and not state.may_follow(earlier):
        raise InvariantError(f"{episode}: state {earlier.value} may not become {state.value}")
    if state is State.TRAINED:
        raise InvariantError(f"{episode}: {earlier.value} becomes trained only through commit()")

    facts = facts_of(change, FACTS, ("id", "state"))
    replaceable: Sequence[str] = ("cause",) if state.final else ()
    if state is State.VOIDED:
        replaceable = ("cause", "outcome")
        facts["outcome"] = Outcome.VOID.value
        facts.pop("reward", None)
        row["reward"] = None
    changed = write_once(row, facts, replaceable) or state is not earlier
    row["state"] = state.value

    outcome = row["outcome"]
    void = outcome == Outcome.VOID.value
    if void and row["reward"] is not None:
        raise InvariantError(f"{episode}: a void has no reward, found {row['reward']}")
    if state.final:
        row["finished"] = now
        if outcome is None or void != (state is State.VOIDED):
            raise InvariantError(f"{episode}: outcome {outcome} may not end as {state.value}")
        if state in (State.VOIDED, State.DROPPED) and not row["cause"]:
            raise InvariantError(f"{episode}: {state.value} needs a cause")
    return changed
