"""A league whose run is killed, goes back, loses workers or files: no episode twice, and the same opponents after all."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from ssp.base.episode import PROPOSER, ROLES, SOLVER
from ssp.extras.league.matchmaker import Matchmaker
from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.selfplay.health import Collapse
from ssp.selfplay.recovery import Recovery
from ssp.selfplay.transfer.loader import read
from ssp.selfplay.workers import learner
from tests.selfplay import anyfaults, fakes
from tests.selfplay.anyfaults import one_pair_a_game
from tests.selfplay.fakes import FakeLearner, Stage, config
from tests.selfplay.ninelives import die_at

LEAGUE = {"league__match": "mix", "league__every": 2, "league__size": 3, "steps": 8, "save__every": 2}


def stage(path: Path, jitter: int | None = None, **changes: Any) -> Stage:
    return Stage(config(**{**LEAGUE, **changes}), path, jitter=jitter)


def played(path: Path, **changes: Any) -> Stage:
    made = stage(path, **changes)
    made.whole()
    return made


def lineage(made: Stage) -> list[tuple[Any, ...]]:
    """What the final weights were trained on and by whose help, by update: episodes whatever process played them, rewards,
    and who was met, by the update that made it."""
    steps = {role: {v: step for v, (_, step) in of.items()} for role, of in made.ledger.versions().items()}
    found = set()
    for row in made.rows("SELECT * FROM episodes WHERE state = 'trained'"):
        other = SOLVER if row["role"] == PROPOSER else PROPOSER
        met = steps[other].get(row["opponent_version_min"])
        id = re.sub(r"-i\d+|\.\d+$", "", row["id"])
        found.add((id, row["commit_step"], row["reward"], steps[row["role"]][row["policy_version_min"]], met))
    return sorted(found, key=str)


LIVES = [
    (FakeLearner, "export", 4, False),
    (FakeLearner, "export", 5, True),
    (learner, "save_file", 6, False),  # with half a folder aside
    (RunFolder, "write_state", 4, False),
    (Ledger, "commit", 9, False),
    (Matchmaker, "tidy", 8, False),
    (Matchmaker, "settled", 7, True),
    (shutil, "rmtree", 9, False),  # in the middle of a removal
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    with pytest.MonkeyPatch.context() as patch:
        fakes.scripted(patch)
        return played(tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # from 3.12 on
@pytest.mark.parametrize(("where", "name", "call", "after"), LIVES)
def test_kill_nine_changes_no_opponent(
    tmp_path: Path, whole: Stage, where: Any, name: str, call: int, after: bool
) -> None:
    """Killed in the middle of what keeps members, and gone on with: who met whom, and what was learned, are the same."""
    child = os.fork()
    if not child:
        setattr(where, name, die_at(call, getattr(where, name), after))
        try:
            stage(tmp_path / "run").play()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert 0 < len(Ledger(tmp_path / "run" / "ledger.db").versions()[SOLVER]) < 9
    rest = played(tmp_path / "run")
    assert lineage(rest) == lineage(whole)
    mine, theirs = rest.state()["league"], whole.state()["league"]
    assert mine["league"] == theirs["league"]
    for role in ROLES:
        assert [*mine["kept"][role]] == [*theirs["kept"][role]]
        for step, version in mine["kept"][role].items():
            assert read(tmp_path / "run" / "members" / role / f"v{version}")["w"].tolist() == [int(step)]
    assert not [*(tmp_path / "run" / "members").glob("*/*.tmp-*"), *(tmp_path / "run" / "members").glob("*/.*")]


@pytest.mark.parametrize("bounds", [(0, 0), (1, 2)])
def test_a_collapse_takes_the_league_back_and_draws_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int]
) -> None:
    """Weights that are rolled back are no members any more, and their folders go."""
    done = []
    examine = Recovery.examine

    def collapse(self: Recovery, step: int, figures: dict[str, dict[str, float]], stopping: bool) -> None:
        if SOLVER in figures and step == 7 and not done:
            done.append({path.name for path in (tmp_path / "run" / "members" / SOLVER).glob("v*")})
            raise Collapse("collapse, said a test.")
        examine(self, step, figures, stopping)

    monkeypatch.setattr(Recovery, "examine", collapse)
    made = stage(tmp_path / "run", steps=10, health__on_collapse="rollback", bounds=bounds)
    lineup = made.play()._lineup
    made.settled()
    assert lineup._league.redraws == 1  # what was drawn would lead there again
    assert made.state()["rollbacks"] == 1 and any("with other draws" in text for text in made.sink.events)
    kept = made.state()["league"]["kept"][SOLVER]
    live = {c["version"] for c in made.rows("SELECT version FROM commits WHERE NOT rolled_back AND role = 'solver'")}
    gone = {c["version"] for c in made.rows("SELECT version FROM commits WHERE rolled_back AND role = 'solver'")}
    assert gone and {*kept.values()} <= {1, *live}
    there = {path.name for path in (tmp_path / "run" / "members" / SOLVER).glob("v*")}
    assert not there & {f"v{version}" for version in gone}
    assert done[0] & {f"v{version}" for version in gone}  # there were such members
    table = made.state()["league"]["league"]["table"]
    assert max(row[0] for row in table) <= 10


@pytest.mark.parametrize(
    "changes",
    [
        {"proposer__policy": "shared", "solver__policy": "shared"},
        {"game__batch": "resample", "proposer__batch": 4},
        {"game__batch": "replay", "proposer__batch": 4},
        {"solver__algorithm": "remax"},
        {"game__proposals": 2, "proposer__algorithm": "rloo"},
        {"bounds": (3, 3), "league__every": 3},
        {"league__match": "mix"},
    ],
)
def test_a_league_with(tmp_path: Path, changes: dict[str, Any]) -> None:
    made = stage(tmp_path / "run", jitter=2, **{"league__match": "prioritised", **changes})
    made.whole()
    one_pair_a_game(made)
    assert made.rows("SELECT id FROM games WHERE id LIKE 'r%n'")
    assert made.rows("SELECT id FROM episodes WHERE role = 'proposer' AND state = 'kept'")
    replayed = made.rows("SELECT id, state FROM episodes WHERE game_id LIKE 'r%x%' AND id NOT LIKE '%greedy%'")
    assert bool(replayed) == (made.cfg.game.batch == "replay")
    assert all(row["state"] != "kept" for row in replayed)  # the newest solver's, whoever asked them once
    past = "SELECT game_id FROM episodes WHERE role = 'solver' AND state = 'kept' AND id NOT LIKE '%greedy%'"
    assert not made.rows(f"SELECT id FROM episodes WHERE id LIKE '%greedy%' AND game_id IN ({past})")
    every = made.cfg.league.every
    for role in ROLES:
        members = [int(step) for step in made.state()["league"]["kept"][role]]
        assert all(later - earlier >= every for earlier, later in zip(members, members[1:], strict=False)), members


@pytest.mark.parametrize("seed", range(6))
def test_with_a_league_too_anything_may_fail_at_any_time(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_pair_a_game(anyfaults.played(tmp_path / "run", seed, monkeypatch, league=True))
