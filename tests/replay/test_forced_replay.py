"""`ssp replay --forced`: whole runs come out of their records again, and every planted change is found."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from replayruns import KEPT, copied, play, put, rewrite, rows
from trainruns import ledger_is_sound, run

from launch import replay
from ssp.base.episode import EVAL, PROPOSER, Episode
from ssp.base.errors import InputError
from ssp.base.tokenlog import Kind
from ssp.record import episodes as transcripts
from ssp.record.runfolder import RunFolder
from ssp.selfplay.workers import build
from ssp.views.replay.forced import BOUNDS, Forced
from ssp.views.replay.record import Records


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps with own policies."""
    return play(tmp_path_factory.mktemp("replay") / "whole", "steps=2", "proposer.batch=24")


def all_same(folder: Path) -> tuple[Counter[str], float]:
    """Every episode of a run, none of which may differ: how often each thing was compared, the largest difference."""
    records = Records(RunFolder(folder))
    found = records.episodes(records.played())
    seen: Counter[str] = Counter()
    largest = 0.0
    for one, results in zip(found, Forced(records).check(found), strict=True):
        assert [str(result) for result in results if not result.same] == [], one.episode.id
        role = EVAL if one.evaluates else one.episode.role
        seen.update(f"{role} {result.what}" for result in results if not result.untold)
        seen[role] += 1
        largest = max(largest, *(result.largest for result in results))
    return seen, largest


@pytest.mark.slow
def test_every_episode_of_a_run_comes_out_of_its_record_again(whole: Path) -> None:
    seen, largest = all_same(whole)
    assert seen[PROPOSER] == 48 and seen["solver"] >= 6 and seen[EVAL] == 24
    for role in (PROPOSER, "solver", EVAL):
        assert seen[f"{role} log-probs"] == seen[f"{role} ids"] == seen[f"{role} mask"] == seen[role]
        for what in ("outcome", "versions", "reward", "queries"):  # that none is due is compared too
            assert seen[f"{role} {what}"] == seen[role], (role, what)
    assert seen["proposer verdict"] == 48
    assert 0 < largest < BOUNDS["float32"] / 5


@pytest.mark.slow
def test_an_engine_that_rounds_more_has_a_wider_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own run comes out again; a bound of float32 finds differences, and so does the wide one where they are large."""
    folder = play(tmp_path / "run", "steps=1", "proposer.batch=8", "defaults.engine.dtype=bfloat16")
    assert replay.main([str(folder), "--all"]) == 0
    assert replay.main([str(folder), "--all", "--bound", "1e-4"]) == 1
    row = pick(folder, "attempt")
    rewrite(folder, row, lambda found: other_logprob(found, 0.6))
    assert replay.main([f"{folder}:{row['id']}"]) == 1
    assert f"(bound {BOUNDS['bfloat16']:g})" in capsys.readouterr().out


@pytest.mark.slow
def test_several_answers_of_the_verifier_come_out_again(tmp_path: Path) -> None:
    folder = play(tmp_path / "run", "steps=1", "proposer.batch=8", "referee.samples=3", "referee.needed=2")
    seen, _ = all_same(folder)
    assert seen["proposer verdict"] == 8


@pytest.mark.slow
def test_the_referee_is_told_what_the_rows_asked_for(tmp_path: Path, whole: Path) -> None:
    """With evidence=counted a verdict rests on it."""
    asked = {str(row["target"]): number % 3 + 1 for number, row in enumerate(rows(whole, "SELECT target FROM games"))}
    file = tmp_path / "targets.jsonl"
    row = {"sys_question_example": ""}
    told = [{**row, "ground_truth": name, "search_turns": str(n)} for name, n in asked.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in told))
    records = Records(RunFolder(play(tmp_path / "run", "steps=1", "proposer.batch=8", f"data.targets={file}")))
    proposals = records.episodes([row for row in records.played() if row["role"] == PROPOSER])
    assert len(proposals) == 8
    for found in proposals:
        target = found.game["target"]
        assert records.asked(found) == (target, asked[target])


@pytest.mark.slow
def test_limits_that_drop_observations_come_out_again(tmp_path: Path) -> None:
    """Contexts that are read anew, a shared policy, a second start of the run."""
    limits = "defaults.limits={overflow: drop, total_tokens: 150, turn_tokens: 24}"
    shared = ["proposer.policy=shared", "solver.policy=shared"]
    folder = play(tmp_path / "run", "steps=1", limits, *shared)
    play(folder, "steps=2", limits, *shared, "resume=auto")
    blocks = [transcripts.read(path) for path in sorted((folder / "episodes").glob("*.parquet"))]
    assert any(episode.log.drops for block in blocks for episode in block), "else the limit is too high"
    assert {row["incarnation"] for row in rows(folder, "SELECT * FROM versions WHERE role = 'solver'")} == {1, 2}
    seen, _ = all_same(folder)
    assert seen["proposer reward"] >= 20


def pick(folder: Path, which: str) -> dict[str, Any]:
    """A row of the ledger with at least one search and a reward; of a proposal an accepted one, or not."""
    verdict = {"accepted": "valid", "rejected": "rejected"}.get(which)
    role = "solver" if verdict is None else PROPOSER
    sql = f"SELECT e.* FROM episodes e JOIN games g ON g.id = e.game_id WHERE e.role = '{role}' AND reward IS NOT NULL"
    found = rows(folder, sql + (f" AND verdict = '{verdict}'" if verdict else ""))
    return next(row for row in found if episode(folder, row).queries)


def episode(folder: Path, row: dict[str, Any]) -> Episode:
    return transcripts.read(folder / "episodes" / row["file"])[row["row"]]


def place(found: Episode, kind: Kind) -> int:
    return [at for at, other in enumerate(found.log.kinds) if other == kind][2]


def other_token(kind: Kind) -> Callable[[Episode], None]:
    def change(found: Episode) -> None:
        at = place(found, kind)
        found.log.ids[at] = found.log.ids[at] + 1

    return change


def other_mask(kind: Kind, to: Kind) -> Callable[[Episode], None]:
    def change(found: Episode) -> None:
        found.log.kinds[place(found, kind)] = int(to)

    return change


def other_logprob(found: Episode, by: float = 3e-4) -> None:
    found.log.logprobs[place(found, Kind.MODEL)] -= by


PLANTED: dict[str, tuple[Callable[[Episode], object], Kind, str]] = {
    "a token of the policy": (other_token(Kind.MODEL), Kind.MODEL, "text"),
    "a token of a document": (other_token(Kind.OBSERVATION), Kind.OBSERVATION, "text"),
    "a log-prob": (other_logprob, Kind.MODEL, "log-probs"),
    "a mask bit off": (other_mask(Kind.MODEL, Kind.OBSERVATION), Kind.MODEL, "mask"),
    "a mask bit on": (other_mask(Kind.OBSERVATION, Kind.MODEL), Kind.OBSERVATION, "mask"),
}
"""Name → the change of an attempt, of which kind the changed token is, what differs. What rows and files can say otherwise
beside their tokens is `tests/launch/test_inspect.py`'s."""


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_a_change_in_an_episode_is_found_at_its_place(
    whole: Path, tmp_path: Path, planted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, kind, what = PLANTED[planted]
    folder = copied(whole, tmp_path / "run")
    row = pick(folder, "attempt")
    wanted = f"{what}: DIFFERS at token {place(episode(folder, row), kind)},"
    rewrite(folder, row, change)
    assert replay.main([f"{folder}:{row['id']}"]) == 1
    assert f"first difference, in {row['id']}: {wanted}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "sql", "value", "said"),
    [
        ("attempt", "UPDATE episodes SET reward = reward + 0.5 WHERE id = :id", None, "reward: DIFFERS"),
        ("accepted", "UPDATE games SET verdict = 'rejected', rule = ? WHERE id = :game", "leakage", "verdict: DIFFERS"),
        ("accepted", "UPDATE games SET verdict = 'rejected', rule = ? WHERE id = :game", "not_answerable", "verdict: "),
        ("rejected", "UPDATE games SET verdict = 'valid', rule = NULL WHERE id = :game", None, "verdict: DIFFERS"),
        ("attempt", "UPDATE games SET question = question || ' seat' WHERE id = :game", None, "ids: DIFFERS at token"),
        ("accepted", "UPDATE games SET verdict = NULL WHERE id = :game", None, "verdict: DIFFERS, recorded None"),
        ("rejected", "UPDATE games SET verdict = 'void' WHERE id = :game", None, "verdict: DIFFERS, recorded 'void'"),
    ],
)
def test_a_change_in_the_ledger_is_found(
    whole: Path, tmp_path: Path, which: str, sql: str, value: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(whole, tmp_path / "run")
    row = pick(folder, which)
    assert replay.main([f"{folder}:{row['id']}"]) == 0
    assert "DIFFERS" not in capsys.readouterr().out
    names = {":id": row["id"], ":game": row["game_id"]}
    statement = re.sub(r":\w+", lambda found: f"'{names[found[0]]}'", sql)
    put(folder, statement, *([] if value is None else [value]))
    assert replay.main([f"{folder}:{row['id']}"]) == 1
    assert said in capsys.readouterr().out


@pytest.mark.slow
def test_rewards_of_turns_and_guides_are_not_made_up_and_their_code_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "def paid(response, golds, turns, judged):\n    return [0.1 * len(s) for s in turns[:-1]] + [float(judged)]\n"
        "def guide(question):\n    return 0.5\n"
    )
    folder = play(
        tmp_path / "run", "steps=1", f"solver.reward={code}:paid", f"proposer.reward_options.guide={code}:guide"
    )
    code.write_text("raise SystemExit('executed')")
    for which in ("attempt", "accepted"):
        row = pick(folder, which)
        assert replay.main([f"{folder}:{row['id']}"]) == 0
        assert "reward: NOT COMPARED" in capsys.readouterr().out


@pytest.mark.slow
def test_weights_that_are_gone_are_said(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied(whole, tmp_path / "run")
    (folder / "checkpoints").unlink()
    for kept in ("proposer/v1", "solver/v1"):
        (folder / "checkpoints" / kept).parent.mkdir(parents=True)
        (folder / "checkpoints" / kept).symlink_to(whole / "checkpoints" / kept)
    late = rows(folder, "SELECT * FROM episodes WHERE role = 'solver' AND policy_version_max = 2")[0]["id"]
    with pytest.raises(InputError, match="v2, which is gone"):
        replay.main([f"{folder}:{late}"])
    solvers = rows(folder, "SELECT * FROM episodes WHERE role = 'solver'")
    left = sum(row["policy_version_max"] > 1 for row in solvers)
    assert replay.main([str(folder), "--all", "--role", "solver"]) == 0
    assert f"{left} of {len(solvers)} episodes are left out: their checkpoints are gone" in capsys.readouterr().out
    (folder / "checkpoints" / "solver" / "v1").unlink()
    first = next(row["id"] for row in solvers if row["policy_version_max"] == 1)
    assert replay.main([f"{folder}:{first}"]) == 0, "the start model is there as long as the run's model is"


@pytest.mark.slow
def test_what_cannot_be_compared_is_said(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(whole, tmp_path / "run")
    row = pick(folder, "accepted")
    config = (folder / "config.yaml").read_text()
    monkeypatch.setattr(build, "judge", lambda *args: pytest.fail("an endpoint is asked"))
    judge = (
        "judge:\n  kind: exact\n  url: ''\n  model: ''",
        "judge:\n  kind: llm\n  url: http://127.0.0.1:9/v1\n  model: m",
    )
    (folder / "config.yaml").write_text(config.replace(*judge))
    assert judge[0] in config
    assert replay.main([f"{folder}:{row['id']}"]) == 0
    said = capsys.readouterr().out
    assert "verdict: NOT COMPARED, every rule is kept, as on record" in said and "1 comparisons could not" in said
    put(folder, "UPDATE games SET verdict = 'rejected', rule = 'leakage' WHERE id = ?", row["game_id"])
    assert replay.main([f"{folder}:{row['id']}"]) == 1, "but a rule that is kept cannot have been broken"


@pytest.mark.slow
def test_data_that_a_run_names_as_a_world_is_found(whole: Path, tmp_path: Path) -> None:
    """As `ssp train` writes it: only the one-process run of these tests has paths in its config.yaml."""
    folder = copied(whole, tmp_path / "run")
    config = (folder / "config.yaml").read_text()
    named = re.sub(
        r"\S+/worlds/v1-12/\S+\.jsonl", "world:heldout", re.sub(r"\S+/worlds/v1-11/\S+", "world:train", config)
    )
    assert named.count("world:heldout") == 3 and "/worlds/" not in named
    (folder / "config.yaml").write_text(named)
    for role in (EVAL, PROPOSER):
        assert replay.main([str(folder), "--all", "--limit", "3", "--role", role]) == 0


def test_what_is_typed_wrongly_is_refused(tmp_path: Path) -> None:
    for argv, message in (
        (["a", "b", "--all"], "2 names"),
        (["a:b", "--limit", "3"], "no --all"),
        (["a:b", "--role", "eval"], "no --all"),
        ([str(tmp_path), "--all"], "a run's folder"),
        ([f"{tmp_path}"], "RUN:EPISODE"),
    ):
        with pytest.raises(InputError, match=message):
            replay.main(argv)


IN_FLIGHT = """steps=6 proposer.batch=24 solver.batch=12 proposer.algorithm=grpo proposer.loss=tis
    schedule.max_staleness.proposer=2 schedule.max_staleness.solver=2 schedule.in_flight=true
    ray.dashboard=-1""".split()


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.timeout(900)
def test_tokens_that_several_versions_drew_come_out_again(tmp_path: Path) -> None:
    """A run in flight on Ray: every log-prob by its own version over the keys of those before."""
    with run(tmp_path / "run", *IN_FLIGHT, *KEPT) as made:
        assert made.wait(800.0) == 0, made.text()
        ledger_is_sound(made)
    _, largest = all_same(made.folder)
    assert largest < BOUNDS["float32"]
    several = rows(made.folder, "SELECT * FROM episodes WHERE policy_version_min < policy_version_max AND file != ''")
    assert several, "no weights changed in the middle of an episode"
    print(f"{len(several)} episodes of several versions; largest difference {largest:.1e}")
