"""The ledger as a book: one-way states, write-once facts, retries that change nothing, laws that can fail."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ssp.base.episode import Outcome, State
from ssp.base.errors import InputError, InvariantError
from ssp.record.ledger import Ledger


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    yield book
    book.close()


def play(ledger: Ledger, names: list[str], role: str = "solver", state: str = "queued", reward: float = 1.0) -> None:
    ledger.create([{"id": n, "game_id": f"g{n}", "role": role} for n in names])
    facts = {"outcome": "scored", "reward": reward} if state == "queued" else {}
    if state != "created":
        ledger.advance([{"id": n, "state": state, **facts} for n in names])


def test_after_folding_the_file_alone_is_whole(ledger, tmp_path):
    play(ledger, ["a", "b"])
    ledger.fold()
    (tmp_path / "copy.db").write_bytes(ledger.path.read_bytes())
    copy = Ledger(tmp_path / "copy.db", readonly=True)
    assert copy.digest() == ledger.digest()
    copy.close()


def test_a_damaged_page_is_refused(ledger):
    for start in range(0, 2000, 100):
        play(ledger, [f"{n:06}" for n in range(start, start + 100)])
    ledger.fold()
    content = bytearray(ledger.path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    ledger.path.write_bytes(content)
    with pytest.raises(InputError, match="this project's SQLite"):
        Ledger(ledger.path, readonly=True)


@pytest.mark.parametrize("final", ["dropped", "kept", "voided"])
def test_a_final_state_stays(ledger, final):
    play(ledger, ["a"])
    ledger.advance([{"id": "a", "state": final, "cause": "stale"}])
    before = ledger.get(["a"])
    assert ledger.advance([{"id": "a", "state": final, "cause": "late"}]) == 0
    assert ledger.get(["a"]) == before
    other = "kept" if final != "kept" else "dropped"
    with pytest.raises(InvariantError, match=f"a: state {final} may not become {other}"):
        ledger.advance([{"id": "a", "state": other, "cause": "x"}])


def test_every_call_twice_is_once(ledger):
    calls = [
        lambda: ledger.create_games([{"id": "g", "target": "bino", "attempts": 2}]),
        lambda: ledger.create([{"id": n, "game_id": "g", "role": "solver"} for n in "abc"]),
        lambda: ledger.advance([{"id": n, "state": State.RUNNING} for n in "abc"]),
        lambda: ledger.judge_games([{"id": "g", "question": "q", "verdict": "valid", "win_rate": 0.5}]),
        lambda: ledger.advance([{"id": n, "state": "queued", "outcome": Outcome.SCORED, "reward": 1} for n in "ab"]),
        lambda: ledger.advance([{"id": "c", "state": "voided", "cause": "engine_died"}]),
        lambda: ledger.next_version("solver", 1, 1),
        lambda: ledger.commit("solver", 1, 1, 1, ["a"]),
        lambda: ledger.rollback({"solver": 0}),
        lambda: ledger.advance([{"id": "c", "state": "voided", "cause": "engine_died"}]),
    ]
    for call in calls:
        call()
        rows, digest, tally = ledger.get(["a", "b", "c"]) if calls.index(call) else [], ledger.digest(), ledger.check()
        call()
        assert (ledger.digest(), ledger.check()) == (digest, tally)
        assert not rows or ledger.get(["a", "b", "c"]) == rows


def test_a_round_is_settled_whole_or_not_at_all_and_once(ledger):
    ledger.create_games([{"id": "g", "target": "t"}])
    ledger.create([{"id": n, "game_id": "g", "role": "solver", "state": "running"} for n in "ab"])
    games = [{"id": "g", "verdict": "valid", "attempts": 2, "win_rate": 0.5}]
    queued = [{"id": n, "state": "queued", "outcome": "scored", "reward": 1.0} for n in "ab"]
    digest = ledger.digest()
    with pytest.raises(InvariantError, match="never created, the first is ghost"):
        ledger.settle(games, [*queued, {"id": "ghost", "state": "running"}])
    assert ledger.digest() == digest
    ledger.settle(games, queued)
    assert ledger.judged() == ["g"]
    digest = ledger.digest()
    ledger.settle(games, queued)
    assert ledger.digest() == digest != "" and ledger.check()["solver"]["queued"] == 2
    ledger.commit("solver", 1, 1, 1, ["a"])
    with pytest.raises(InvariantError, match="a: state trained may not become queued"):
        ledger.settle(games, queued)  # not a repetition: a was trained since it was queued


def test_updates_are_the_live_ones_of_who_trains_these_roles(ledger):
    play(ledger, list("abc"))
    play(ledger, ["p"], role="proposer")
    for step, id in enumerate("abc", 1):
        ledger.commit("solver", 1, step, step, [id])
    ledger.commit("proposer", 1, 1, 1, ["p"])
    ledger.rollback({"solver": 2, "proposer": 2})
    asked = (["solver"], 9), (["solver"], 1), (["proposer"], 9), (["solver", "proposer"], 9), ([], 9)
    assert [ledger.updates(roles, step) for roles, step in asked] == [2, 1, 1, 2, 0]


def test_an_episode_begins_created_or_running(ledger):
    ledger.create([{"id": "a", "game_id": "g", "role": "solver", "state": State.RUNNING}])
    assert ledger.get(["a"])[0]["state"] == "running" and ledger.issued() == {"solver": 1}
    with pytest.raises(InvariantError, match="b: it may not begin as queued"):
        ledger.create([{"id": "b", "game_id": "g", "role": "solver", "state": "queued"}])


def test_facts_are_written_once(ledger):
    play(ledger, ["a"])
    with pytest.raises(InvariantError, match=r"a: reward is already 1.0 and may not become 0.0"):
        ledger.advance([{"id": "a", "state": "queued", "reward": 0.0}])
    with pytest.raises(InvariantError, match="no column 'speed'"):
        ledger.advance([{"id": "a", "state": "queued", "speed": 3}])
    with pytest.raises(InvariantError, match="finite"):
        ledger.create([{"id": "n", "game_id": "g", "role": "solver", "reward": float("nan")}])


def test_a_void_has_no_reward_and_no_way_into_a_batch(ledger):
    play(ledger, ["a", "b"])
    assert ledger.advance([{"id": "a", "state": "voided", "cause": "judge_down", "reward": 0.5}]) == 1
    (row,) = ledger.get(["a"])
    assert (row["outcome"], row["reward"], row["cause"]) == ("void", None, "judge_down")
    with pytest.raises(InvariantError, match="a may not become trained"):
        ledger.commit("solver", 1, 1, 1, ["a", "b"])
    assert ledger.get(["b"])[0]["state"] == "queued"
    play(ledger, ["v"], state="created")
    with pytest.raises(InvariantError, match="a void has no reward"):
        ledger.advance([{"id": "v", "state": "queued", "outcome": "void", "reward": 0.0}])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"state": "kept"}, "outcome None may not end as kept"),
        ({"state": "kept", "outcome": "void"}, "outcome void may not end as kept"),
        ({"state": "dropped", "outcome": "scored", "reward": 1.0}, "dropped needs a cause"),
        ({"state": "voided"}, "voided needs a cause"),
        ({"state": "trained", "outcome": "scored", "reward": 1.0}, "only through commit"),
    ],
)
def test_final_states_need_their_facts(ledger, change, message):
    play(ledger, ["a"], state="running")
    with pytest.raises(InvariantError, match=message):
        ledger.advance([{"id": "a", **change}])


def test_foreign_ids_are_bugs(ledger):
    play(ledger, ["a"])
    with pytest.raises(InvariantError, match="another game or role"):
        ledger.create([{"id": "a", "game_id": "other", "role": "solver"}])


def test_commits_follow_each_other(ledger):
    play(ledger, list("abcd"))
    ledger.commit("solver", 2, 5, 1, ["a"])
    with pytest.raises(InvariantError, match="does not follow step 5"):
        ledger.commit("solver", 2, 5 - 1, 2, ["b"])
    with pytest.raises(InvariantError, match="does not follow step 5"):
        ledger.commit("solver", 3, 5, 2, ["b"])  # a newer incarnation: this step is live until it is rolled back
    with pytest.raises(InvariantError, match="incarnation 2"):
        ledger.commit("solver", 1, 6, 2, ["b"])
    with pytest.raises(InvariantError, match="another version or batch"):
        ledger.commit("solver", 2, 5, 1, ["b"])
    with pytest.raises(InvariantError, match="twice"):
        ledger.commit("solver", 2, 6, 2, ["b", "b"])
    with pytest.raises(InvariantError, match="may not become trained"):
        ledger.commit("solver", 2, 6, 2, ["a"])
    assert ledger.commit("solver", 2, 6, 2, []) == 0


def test_rollback_drops_later_commits_and_closes_what_was_open(ledger):
    play(ledger, ["t1", "t2", "q"])
    play(ledger, ["p1"], role="proposer")
    play(ledger, ["r"], state="running")
    play(ledger, ["k"])
    ledger.advance([{"id": "k", "state": "kept"}])
    ledger.commit("solver", 1, 1, 1, ["t1"])
    ledger.commit("solver", 1, 2, 2, ["t2"])
    ledger.commit("proposer", 1, 2, 2, ["p1"])
    assert ledger.rollback({"solver": 1, "proposer": 2}) == {"commits": 1, "trained": 1, "queued": 1, "interrupted": 1}
    found = {row["id"]: (row["state"], row["cause"], row["reward"]) for row in ledger.get(["t1", "t2", "q", "r", "k"])}
    assert found == {
        "t1": ("trained", None, 1.0),
        "t2": ("dropped", "rolled_back", 1.0),
        "q": ("dropped", "rolled_back", 1.0),
        "r": ("voided", "interrupted", None),
        "k": ("kept", None, 1.0),
    }
    assert ledger.get(["p1"])[0]["state"] == "trained"
    ledger.check()
    play(ledger, ["n"])
    with pytest.raises(InvariantError, match="was rolled back"):
        ledger.commit("solver", 1, 2, 2, ["t2"])
    ledger.commit("solver", 2, 2, 3, ["n"])
    assert ledger.check()["solver"]["trained"] == 2


def test_versions_only_grow(ledger, tmp_path):
    first = ledger.next_version("solver", 1, 0)
    assert ledger.next_version("solver", 1, 0) == first
    assert ledger.next_version("solver", 1, 1) == first + 1
    ledger.rollback({"solver": 0})
    again = Ledger(tmp_path / "ledger.db")
    assert again.next_version("solver", 2, 1) == first + 2
    assert again.next_version("proposer", 1, 0) == 1
    assert [again.next_version("run"), again.next_version("run")] == [1, 2]


def test_counts_by_cause_keep_proposals_attempts_and_evaluations_apart(ledger):
    """All broke the same form. A dropped attempt's row has the drop's cause in place of its own; what an evaluation
    rejects is nobody's lesson, and what a fault ends is void there too."""
    ledger.create_games([{"id": "gp", "target": "t"}])
    ledger.judge_games([{"id": "gp", "verdict": "valid"}])
    roles = {"p": "proposer", "s": "solver", "t": "solver", "e": "eval", "f": "eval"}
    kinds = {"proposer": "proposal", "solver": "attempt", "eval": "evaluation"}
    ledger.create([{"id": n, "game_id": "gp", "role": role, "kind": kinds[role]} for n, role in roles.items()])
    rejected = {"outcome": "rejected", "cause": "malformed"}
    ledger.advance([{"id": n, "state": "queued", **rejected, "reward": 0} for n in "ps"])
    ledger.advance([{"id": "e", "state": "kept", **rejected}])
    ledger.advance([{"id": "t", "state": "dropped", "outcome": "rejected", "cause": "no_signal", "reward": 0}])
    ledger.advance([{"id": "f", "state": "voided", "cause": "retriever_down"}])
    named = "drop/no_signal reject/malformed reject/solver_malformed reject/solver_no_answer void/retriever_down"
    assert ledger.outcomes() == dict.fromkeys(named.split(), 1)


DAMAGE = [
    ("DELETE FROM episodes WHERE id = 'b'", "created 2 != sum over states"),
    ("UPDATE counters SET created = 3", "created 3 != sum over states"),
    ("UPDATE episodes SET state = 'trained' WHERE id = 'b'", "2 trained rows but commits hold 1"),
    ("UPDATE episodes SET commit_step = 9 WHERE id = 'a'", "solver/1/1"),
    ("DELETE FROM commits", "commits hold 0"),
    ("UPDATE episodes SET state = 'voided' WHERE id = 'b'", "void episodes have a reward"),
]


@pytest.mark.parametrize("damage, message", DAMAGE)
def test_the_law_can_fail(ledger, tmp_path, damage, message):
    play(ledger, ["a", "b"])
    ledger.commit("solver", 1, 1, 1, ["a"])
    ledger.check()
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute(damage)
    with pytest.raises(InvariantError, match=message):
        ledger.check()


@pytest.mark.parametrize("damage, message", DAMAGE)
def test_a_steps_proof_fails_for_what_the_step_wrote(ledger, damage, message):
    ledger.recheck()
    play(ledger, ["x", "y", "z"])
    ledger.recheck()  # over the whole file
    play(ledger, ["a", "b"])
    ledger.commit("solver", 1, 1, 1, ["a"])
    ledger._db.execute(damage.replace("created = 3", "created = 7"))
    expected = message.replace("created 2", "created 5").replace("created 3", "created 7")
    with pytest.raises(InvariantError, match=expected):
        ledger.recheck()


def test_a_steps_proof_reads_what_is_new_and_all_when_it_has_doubled(ledger, tmp_path):
    """Another program's writes are seen when the episodes have doubled since all were read."""
    play(ledger, ["x", "y", "z"])
    ledger.commit("solver", 1, 1, 1, ["x"])
    ledger.recheck()
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute("UPDATE episodes SET state = 'dropped' WHERE id = 'y'")
    play(ledger, ["a", "b"])
    ledger.recheck()
    ledger.commit("solver", 1, 2, 2, ["a"])
    ledger.rollback({"solver": 0})
    ledger.recheck()
    play(ledger, ["c"])
    with pytest.raises(InvariantError, match="counted as written"):
        ledger.recheck()


def test_digest_ignores_order_times_and_places(tmp_path):
    digests = set()
    for run, names in enumerate((["a", "b"], ["b", "a"])):
        book = Ledger(tmp_path / f"{run}.db")
        play(book, names)
        book.advance([{"id": n, "state": "queued", "file": f"{run}.parquet", "row": names.index(n)} for n in names])
        digests.add(book.digest())
    assert len(digests) == 1
    book.advance([{"id": "a", "state": "kept"}])
    assert book.digest() not in digests


def test_files_that_are_no_ledger_are_refused(tmp_path):
    with pytest.raises(InputError, match="must exist"):
        Ledger(tmp_path / "none.db", readonly=True)
    (tmp_path / "text.db").write_text("not a database, but long enough to be looked at" * 40)
    with pytest.raises(InputError, match="must be this project's SQLite"):
        Ledger(tmp_path / "text.db", readonly=True)


def test_a_ledger_of_an_earlier_form_is_refused(tmp_path: Path) -> None:
    """One without the columns that say what ids said before."""
    Ledger(tmp_path / "ledger.db").close()
    db = sqlite3.connect(tmp_path / "ledger.db")
    db.execute("ALTER TABLE episodes DROP COLUMN round")
    db.close()
    for readonly in (True, False):
        with pytest.raises(InputError, match="no such column: round"):
            Ledger(tmp_path / "ledger.db", readonly)
